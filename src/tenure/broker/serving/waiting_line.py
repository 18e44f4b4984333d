"""The waiting line of one queue: the order of its takers, and those that want nothing right now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

from tenure.broker.answer import Answer
from tenure.contract.commands import Claim
from tenure.contract.replies import Grant
from tenure.errors import TenureError

__all__ = ["Line", "QueueLines", "Taker", "divide"]


class Taker(Protocol):
    """A waiter for jobs of one queue. ``claim`` is what it asks for, but for how many jobs."""

    claim: Claim

    def wants(self) -> int:
        """Return how many jobs it would take now; 0 while it is full. When that changes, call the line's `wake`."""

    def hand(self, answer: Answer[Grant]) -> None:
        """Hand over a claim; a taker that wants no other one leaves the line."""

    def announce(self, suspects: int) -> None:
        """Note that so many suspects wait on the queue, and nobody asks for them."""

    def refuse(self, error: TenureError) -> None:
        """Answer with this error: the queue is gone, or the claim is impossible."""


def divide(ready: int, wants: Sequence[int]) -> list[int]:
    """Return shares of ``ready`` in proportion to ``wants``; what is left over goes to the first ones, one each."""
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

    A taker that is given jobs goes to the end. So in the long run all are served alike, also where takers come and go.
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
    def is_empty(self) -> bool:
        """Whether nobody is in line."""
        return not (self._hungry or self._full)

    @property
    def is_hungry(self) -> bool:
        """Whether a taker may want jobs."""
        return bool(self._hungry)

    def hungry(self) -> list[Taker]:
        """Return the takers that may want jobs, in the order of their turn."""
        return list(self._hungry)

    def add(self, taker: Taker) -> None:
        """Add a taker at the end of the line."""
        self._hungry[taker] = None

    def remove(self, taker: Taker) -> bool:
        """Remove a taker; return False where it was not there."""
        if taker in self._hungry:
            del self._hungry[taker]
            return True
        if taker in self._full:
            self._full.remove(taker)
            return True
        return False

    def wake(self, taker: Taker) -> bool:
        """Put a taker that was full at the end of the line: it may want jobs again. Return False where it was in it."""
        if taker not in self._full:
            return False
        self._full.remove(taker)
        self._hungry[taker] = None
        return True

    def move_to_end(self, taker: Taker) -> None:
        """Put a taker that was given jobs behind the others."""
        if taker in self._hungry:
            self._hungry.move_to_end(taker)

    def shares(self, ready: int) -> list[tuple[Taker, int]]:
        """Return which takers get how many of the ready jobs, in the order in which they go to the end of the line.

        Fewer jobs than takers go to the first ones, one each, and no other is looked at. Otherwise all are given their
        part; those that get an odd job more come last, so the next odd one goes to another taker.
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
        """Return the first takers that want jobs, and how many; set those apart that do not."""
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


class QueueLines:
    """The waiting lines of one queue: the takers that ask for ``suspects``, and all others, the ``ordinary`` ones.

    ``asking`` has both by the ``suspects`` of a claim. It is looked at several times for each job, so it is no call.
    """

    def __init__(self) -> None:
        self.ordinary = Line()
        self.suspects = Line()
        self.asking = (self.ordinary, self.suspects)

    @property
    def is_hungry(self) -> bool:
        """Whether a taker may want jobs."""
        return self.ordinary.is_hungry or self.suspects.is_hungry

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in line."""
        return self.ordinary.is_empty and self.suspects.is_empty

    def __len__(self) -> int:
        return len(self.ordinary) + len(self.suspects)

    def __iter__(self) -> Iterator[Taker]:
        yield from self.ordinary
        yield from self.suspects
