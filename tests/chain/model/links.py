"""Links of the modelled chain, interned: a link is a small number, and equal bytes are the same number.

A link names the link before it (`prev`), as the digest in a real one does, so a link stands for its whole history: the
functions here answer questions about that history, each link's answer computed once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "GENESIS",
    "NONE",
    "Link",
    "Slot",
    "ancestors",
    "comparable",
    "data_count",
    "fences",
    "intern",
    "link",
    "newest_data",
    "next_slot",
    "operations",
    "path",
]

Slot = tuple[int, int]
NONE: Final = 0


class Link(NamedTuple):
    """A link in the slot `(epoch, number)`; a fence there ends the epoch and begins the next."""

    epoch: int
    number: int
    prev: int
    nonce: int  # 0 for data
    operations: tuple[int, ...]
    directory: int = 0  # who sent a fence: the first nonce of its directory
    is_released: bool = False  # the last data link of a leader that gives up

    @property
    def slot(self) -> Slot:
        return self.epoch, self.number

    @property
    def is_fence(self) -> bool:
        return self.nonce > 0


class _Facts(NamedTuple):
    next_slot: Slot
    ancestors: frozenset[int]
    operations: tuple[int, ...]
    data_count: int
    fences: tuple[int, ...]


_NOTHING: Final = Link(-1, -1, -1, 0, ())
_links: list[Link] = [_NOTHING]
_facts: list[_Facts] = [_Facts((0, 0), frozenset(), (), 0, ())]
_numbers: dict[Link, int] = {_NOTHING: NONE}


def intern(new: Link) -> int:
    """Return the number of a link, the same for equal ones."""
    known = _numbers.get(new)
    if known is not None:
        return known
    before, number = _facts[new.prev], len(_links)
    _links.append(new)
    _facts.append(
        _Facts(
            next_slot=(new.epoch + 1, 0) if new.is_fence else (new.epoch, new.number + 1),
            ancestors=before.ancestors | {number},
            operations=before.operations + new.operations,
            data_count=before.data_count + (not new.is_fence),
            fences=(*before.fences, number) if new.is_fence else before.fences,
        )
    )
    _numbers[new] = number
    return number


def link(number: int) -> Link:
    """Return the link behind a number."""
    return _links[number]


def next_slot(number: int) -> Slot:
    """Return the slot behind a link: the next number, or the first of the epoch that a fence begins."""
    return _facts[number].next_slot


def ancestors(number: int) -> frozenset[int]:
    """Return the link and all before it."""
    return _facts[number].ancestors


def operations(number: int) -> tuple[int, ...]:
    """Return the operations of the history that ends with this link, in order."""
    return _facts[number].operations


def data_count(number: int) -> int:
    """Return how many data links the history has: a segment is sealed after every few of them."""
    return _facts[number].data_count


def fences(number: int) -> tuple[int, ...]:
    """Return the fences of the history, oldest first."""
    return _facts[number].fences


def newest_data(number: int) -> int:
    """Return the newest data link of the history, `NONE` if there is none."""
    while number != NONE and _links[number].is_fence:
        number = _links[number].prev
    return number


def path(number: int, behind: int) -> list[int]:
    """Return the links of the history after `behind`, oldest first; `behind` must be one of its links."""
    found = []
    while number != behind:
        found.append(number)
        number = _links[number].prev
    return found[::-1]


def comparable(one: int, other: int) -> bool:
    """Report whether one of the two histories begins with the other."""
    return one in _facts[other].ancestors or other in _facts[one].ancestors


# The fence with which the log began: epoch 0 has no other link, and its creator leads epoch 1.
GENESIS: Final = intern(Link(0, 0, NONE, 1, (), 1))
