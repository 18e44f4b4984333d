"""A place in the chain: the next slot, the digest of the link before it, and where the log ends there."""

from __future__ import annotations

from typing import NamedTuple

from tenure.chain.link import NO_DIGEST, Link

__all__ = ["End", "Place", "Step"]


class End(NamedTuple):
    """Where the log ends: the offset after the last byte, and the last batch. Segments are numbered from 1 on."""

    segment: int = 0
    offset: int = 0
    batch: int = 0


class Place(NamedTuple):
    """A place between two links: ``epoch`` and ``number`` name the next slot."""

    epoch: int
    number: int
    digest: bytes = NO_DIGEST
    end: End = End()
    #: The slot of the link before, None at the beginning.
    before: tuple[int, int] | None = None

    def after(self, link: Link, digest: bytes) -> Place:
        """Return the place after a link that was found in the next slot."""
        slot = (self.epoch, self.number)
        if link.is_fence:
            return Place(link.epoch, 0, digest, self.end, slot)
        end = self.end
        if link.runs:
            end = End(link.runs[-1].segment, link.runs[-1].end, link.last_batch)
        return Place(self.epoch, self.number + 1, digest, end, slot)


class Step(NamedTuple):
    """One link of a walk, with the places before and after it."""

    link: Link
    before: Place
    after: Place
