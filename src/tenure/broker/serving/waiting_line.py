"""The line of those who wait on one queue: whose turn it is, and who wants nothing right now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

from tenure.broker.answer import Answer
from tenure.contract.commands import Claim
from tenure.contract.replies import Grant
from tenure.errors import TenureError

__all__ = ["Line", "Taker", "divide"]


class Taker(Protocol):
    """A waiter for jobs of one queue. ``claim`` is what it asks for, but for how many jobs."""

    claim: Claim

    def wants(self) -> int:
        """How many jobs it would take right now; 0 while it is full. When that changes, the line must be told."""

    def give(self, answer: Answer[Grant]) -> bool:
        """Hand over a claim; True if it wants no more, ever."""

    def refuse(self, error: TenureError) -> None:
        """The queue is gone, or the claim is impossible."""


def divide(ready: int, wants: Sequence[int]) -> list[int]:
    """Shares of ``ready`` in proportion to ``wants``; what is left over goes to the first ones, one each."""
    total = sum(wants)
    if total <= ready:
        return list(wants)
    shares = [ready * want // total for want in wants]
    left = ready - sum(shares)
    for index, want in enumerate(wants):
        if not left:
            break
        if shares[index] < want:
            shares[index] += 1
            left -= 1
    return shares


class Line:
    """Takers in the order of their turn. Those that are full stand apart, so a pass does not look at them.

    Whoever is given something goes to the end. So in the long run everybody is served alike, also where takers come
    and go.
    """

    def __init__(self) -> None:
        self._hungry: OrderedDict[Taker, None] = OrderedDict()
        self._full: set[Taker] = set()

    def __len__(self) -> int:
        return len(self._hungry) + len(self._full)

    def __iter__(self) -> Iterator[Taker]:
        yield from self._hungry
        yield from self._full

    @property
    def is_hungry(self) -> bool:
        """Whether anybody may want something."""
        return bool(self._hungry)

    def add(self, taker: Taker) -> None:
        """Go to the end of the line."""
        self._hungry[taker] = None

    def remove(self, taker: Taker) -> bool:
        """Leave; False where it was not there."""
        if taker in self._hungry:
            del self._hungry[taker]
            return True
        if taker in self._full:
            self._full.remove(taker)
            return True
        return False

    def wake(self, taker: Taker) -> bool:
        """One that was full may want something again: it goes to the end of the line; False where it was in it."""
        if taker not in self._full:
            return False
        self._full.remove(taker)
        self._hungry[taker] = None
        return True

    def move_to_end(self, taker: Taker) -> None:
        """It got something: others come first now."""
        if taker in self._hungry:
            self._hungry.move_to_end(taker)

    def shares(self, ready: int) -> list[tuple[Taker, int]]:
        """Who gets how many of the jobs that are ready, in the order in which they go to the end of the line.

        Fewer jobs than takers go to the first ones, one each, and nobody else is looked at. Otherwise all are given
        their part; those that get an odd job more come last, so the next one goes to somebody else.
        """
        if ready < len(self._hungry):
            return [(taker, 1) for taker, _ in self._look(ready)]
        wanting = self._look(len(self._hungry))
        wants = [want for _, want in wanting]
        total = sum(wants)
        if total <= ready:
            return wanting
        given = [
            (share * total > ready * want, taker, share)
            for (taker, want), share in zip(wanting, divide(ready, wants), strict=True)
            if share
        ]
        given.sort(key=lambda part: part[0])
        return [(taker, share) for _, taker, share in given]

    def _look(self, count_max: int) -> list[tuple[Taker, int]]:
        """The first ones that want something, and how much; those before them that do not are set apart."""
        found: list[tuple[Taker, int]] = []
        full: list[Taker] = []
        for taker in self._hungry:
            if len(found) == count_max:
                break
            want = taker.wants()
            if want:
                found.append((taker, want))
            else:
                full.append(taker)
        for taker in full:
            del self._hungry[taker]
            self._full.add(taker)
        return found
