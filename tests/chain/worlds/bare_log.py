"""The log of a simulated leader without the product's log: small segment files, whose bytes are the runs of links.

It is the least that `Member`, `Leadership` and the home's upkeep can work with, so that a world costs milliseconds. It
does with them what `ShippedLog` does, in the same order.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from tenure.chain.home_upkeep import LeaderUpkeep
from tenure.chain.leadership import Leadership
from tenure.chain.link import Run
from tenure.chain.notes import Notes, NotesFile
from tenure.chain.place import Step
from tenure.chain.sending import Load, send
from tenure.log import checkpoint
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, SEGMENTS, Head, segment_name, segment_numbers
from tenure.testing.simdisk import SimDisk
from tests.chain.worlds.ops import OP_BYTES, body, ops_in

__all__ = ["BareLog"]

_SEGMENT_OPS: Final = 6
_EPOCH: Final = 1


class BareLog:
    """A log of operations, each a batch of its own. All that is written here is synced at once."""

    def __init__(self, disk: SimDisk, leadership: Leadership, notes: Notes) -> None:
        self.disk = disk
        self.leadership = leadership
        self.notes = NotesFile(disk, notes)
        self._upkeep = LeaderUpkeep(disk, leadership, self.notes)
        self._noted_ms = leadership.clock.boot_ms()
        self._ops: list[int] = []
        self._segment = 0
        self._end = 0

    def copy(self, disk: SimDisk, leadership: Leadership) -> BareLog:
        """Return this log as a machine remembers it that was set back to this moment."""
        other = BareLog(disk, leadership, self.notes.notes)
        other._ops, other._segment, other._end = list(self._ops), self._segment, self._end
        other._upkeep._sealed = dict(self._upkeep._sealed)
        other._upkeep._space._heads = dict(self._upkeep._space._heads)
        return other

    async def open(self) -> list[int]:
        """Ship what an earlier life had not shipped; return the operations of the log then."""
        for number in segment_numbers(self.disk):
            content = self.disk.content(segment_name(number))
            ops = ops_in(content)
            self._ops += ops
            self._segment, self._end = number, HEAD_BYTES + len(ops) * OP_BYTES
        await self.ship()
        return list(self._ops)

    def append(self, ops: Sequence[int]) -> bool:
        """Write operations here; return whether they outlast a power loss."""
        for op in ops:
            if self._segment == 0 or (self._end - HEAD_BYTES) // OP_BYTES >= _SEGMENT_OPS:
                self._roll()
            self._write(segment_name(self._segment), body(op))
            self._ops.append(op)
        return True

    async def ship(self) -> None:
        """Commit all that was written, and begin another epoch where this one is long. Raises as `Leadership.ship`."""
        settings = self.leadership.chain.settings
        if len(self._ops) == self.leadership.place.end.batch:
            return
        if self.leadership.place.number >= settings.epoch_links_max:
            await self._begin_next_epoch()
        await self._ship(self._runs(), last_batch=len(self._ops))
        now_ms = self.leadership.clock.boot_ms()
        if now_ms - self._noted_ms >= settings.place_ms:
            self._noted_ms = now_ms
            self.notes.save()

    async def release(self) -> None:
        """Ship everything, and give up the lead."""
        await self.ship()
        await self._ship((), last_batch=len(self._ops), is_released=True)
        self.notes.save()

    async def keep_house(self) -> None:
        """Bring a checkpoint of what is shipped to the home, and free what it replaces."""
        end = self.leadership.place.end
        if end.batch:
            position = Position(end.segment, end.offset, end.batch + 1)
            checkpoint.save(self.disk, position, b"%d operations" % end.batch)
            await self._upkeep.save(position, self.notes.notes)

    async def _ship(self, runs: Sequence[Run], *, last_batch: int, is_released: bool = False) -> None:
        load = Load(runs, last_batch, 0, "" if is_released else None)
        await send(self.leadership, load, has_parts=True, passed=self.notes.pass_step)

    async def _begin_next_epoch(self) -> None:
        nonce = secrets.token_bytes(16)
        self.notes.add_nonce(nonce)
        before = self.leadership.place
        await self.leadership.renew(nonce)
        self.notes.pass_step(Step(self.leadership.fence, before, self.leadership.place))

    def _runs(self) -> list[Run]:
        """Return the pieces of segments behind the end of the chain."""
        shipped = self.leadership.place.end
        runs = []
        for number in range(max(1, shipped.segment), self._segment + 1):
            start = shipped.offset if number == shipped.segment else 0
            content = self.disk.content(segment_name(number))
            if len(content) > start:
                runs.append(Run(number, start, content[start:]))
        return runs

    def _roll(self) -> None:
        log_id = self.leadership.chain.log_id
        head = Head(self._segment + 1, len(self._ops) + 1, log_id, _EPOCH, self._end, 0)
        self.disk.mkdir(SEGMENTS)
        self._segment, self._end = head.number, 0
        self.disk.close(self.disk.create(segment_name(head.number)))
        self._write(segment_name(head.number), head.pack())
        self.disk.sync_dir(SEGMENTS)
        self.disk.sync_dir("")

    def _write(self, name: str, data: bytes) -> None:
        file = self.disk.open(name, write=True)
        self.disk.pwrite(file, data, self._end)
        self.disk.sync(file)
        self.disk.close(file)
        self._end += len(data)
