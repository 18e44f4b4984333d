"""Bring the local copy of a log up to the end of its chain."""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    """The reading half of a member: links become bytes at their places.

    ``save`` is called at each fence with the notes up to there. So what was moved aside at a fence is behind a start
    that is cut short, and the next one does not take the chain's bytes for it. ``passed`` is called after each link
    that was brought in, and ``begun_anew`` where the copy began again at a checkpoint of the home.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        save: Callable[[Notes], None],
        passed: Callable[[Step], None] = lambda step: None,
        begun_anew: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._copy = LocalCopy(disk)
        self._save = save
        self._passed = passed
        self._begun_anew = begun_anew

    @property
    def diverged_bytes(self) -> int:
        """Bytes that were moved aside."""
        return self._copy.diverged_bytes

    async def run(self, chain: Chain, notes: Notes) -> Notes:
        """Read the chain into the local copy, durably; save and return the notes of its end, which is proven.

        Raises as `Chain.follow`, and OSError.
        """
        before = self.diverged_bytes
        try:
            if not segment_numbers(self._disk):
                notes = await begin_at_checkpoint(chain, self._disk, self._copy, notes) or notes
            notes = await self.go_on(chain, notes)
            self.note(notes)
        finally:
            self._copy.close()
        if self.diverged_bytes > before:
            logger.warning(
                "%d bytes of this directory were never part of its home's history: they were moved to %s/",
                self.diverged_bytes - before,
                DIVERGED,
            )
        return notes

    async def go_on(self, chain: Chain, notes: Notes, *, proves_end: bool = True) -> Notes:
        """Read what came since into the copy, and return the notes after it, which are saved at fences alone.

        Where links were deleted behind this directory, it goes on by way of a checkpoint. Raises as ``run``.
        """
        try:
            async for step in chain.follow(notes.place, proves_end=proves_end):
                self._apply(step, notes)
                notes = notes.after(step)
                if step.link.is_fence:
                    self.note(notes)
                self._passed(step)
        except Freed:
            anew = await begin_at_checkpoint(chain, self._disk, self._copy, notes)
            if anew is None or anew.place[:2] <= notes.place[:2]:
                raise
            self._begun_anew()
            return await self.go_on(chain, anew)
        return notes

    def note(self, notes: Notes) -> None:
        """Make the copy durable, then the notes of how far it goes."""
        self.sync()
        self._save(notes)

    def sync(self) -> None:
        """Make the copy durable; the caller notes how far it goes."""
        self._copy.sync()

    def close(self) -> None:
        """Close the files of the copy."""
        self._copy.close()

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
