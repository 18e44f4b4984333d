"""Bring the local copy of a log up to the end of its chain."""

from __future__ import annotations

import logging

from tenure.chain.bootstrap import begin_at_checkpoint
from tenure.chain.chain import Chain, Freed
from tenure.chain.copy import DIVERGED, LocalCopy
from tenure.chain.notes import Notes
from tenure.chain.place import Step
from tenure.log.disk import Disk
from tenure.log.segment import segment_numbers

__all__ = ["CatchUp"]

logger = logging.getLogger("tenure.chain")


class CatchUp:
    """The reading half of a member: links become bytes at their places."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._copy = LocalCopy(disk)

    @property
    def diverged_bytes(self) -> int:
        """Bytes that were moved aside."""
        return self._copy.diverged_bytes

    async def run(self, chain: Chain, notes: Notes) -> Notes:
        """Read the chain into the local copy, durably; return the notes of its end, for the caller to save.

        Raises as `Chain.follow`, and OSError.
        """
        try:
            if not segment_numbers(self._disk):
                notes = await begin_at_checkpoint(chain, self._disk, self._copy, notes) or notes
            notes = await self._follow(chain, notes)
        finally:
            self._copy.close()
        if self.diverged_bytes:
            logger.warning(
                "%d bytes of this directory were never part of its home's history: they were moved to %s/",
                self.diverged_bytes,
                DIVERGED,
            )
        return notes

    async def _follow(self, chain: Chain, notes: Notes) -> Notes:
        """Go to the end of the chain; where links were deleted behind this directory, by way of a checkpoint."""
        try:
            async for step in chain.follow(notes.place):
                self._apply(step, notes)
                notes = notes.after(step)
        except Freed:
            anew = await begin_at_checkpoint(chain, self._disk, self._copy, notes)
            if anew is None or anew.place[:2] <= notes.place[:2]:
                raise
            return await self._follow(chain, anew)
        self._copy.sync()
        return notes

    def _apply(self, step: Step, notes: Notes) -> None:
        """Bring one link into the copy; where the copy went another way, what it holds from there on is moved aside."""
        link, aside = step.link, f"{step.before.epoch:010d}-{step.before.number:020d}"
        if link.is_fence:
            if not notes.owns(link.nonce):
                self._copy.cut(step.before.end, aside=aside)
            return
        runs = [run for run in link.runs if not self._copy.is_dropped(run)]
        if (difference := self._copy.first_difference(runs)) is not None:
            self._copy.cut(difference, aside=aside)
            self._copy.write(runs)
