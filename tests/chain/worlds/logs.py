"""The log of a simulated leader: numbered operations, in a file of their own or in a whole `ShippedLog`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from tenure.chain.copy import DIVERGED
from tenure.chain.leadership import Leadership
from tenure.chain.link import Run
from tenure.chain.notes import Notes, save_notes
from tenure.chain.shipped import ShippedLog
from tenure.log.segment import HEAD_BYTES, SEGMENTS, Head, segment_name
from tenure.testing.simdisk import SimDisk
from tests.chain.worlds.blocking import blocking

__all__ = ["BareLog", "LeaderLog", "WholeLog", "body", "diverged_ops", "ops_in"]

SEGMENT_BYTES: Final = 1_024
_FIRST: Final = 1
_OP: Final = re.compile(rb"<op (\d{10})>")
_OP_BYTES: Final = 15


def body(op: int) -> bytes:
    """Return the bytes of an operation."""
    return b"<op %010d>" % op


def ops_in(data: bytes) -> list[int]:
    """Return the operations that some bytes hold, in order."""
    return [int(number) for number in _OP.findall(data)]


def diverged_ops(disk: SimDisk) -> set[int]:
    """Return the operations that were moved aside."""
    return {op for name in disk.names() if name.startswith(f"{DIVERGED}/") for op in ops_in(disk.content(name))}


class LeaderLog(Protocol):
    """What a simulated leader writes to."""

    leadership: Leadership

    async def open(self) -> list[int]:
        """Ship what an earlier life had not shipped; return the operations of the log then."""

    def append(self, ops: Sequence[int], *, sync: bool) -> None:
        """Write operations here; ``sync`` makes them outlast a power loss."""

    async def ship(self) -> None:
        """Commit all that was written. Raises as `Leadership.ship`."""

    async def release(self) -> None:
        """Give up the lead."""


class BareLog:
    """The protocol alone: one segment file, whose bytes are the runs of links."""

    def __init__(self, disk: SimDisk, leadership: Leadership, notes: Notes) -> None:
        self.disk = disk
        self.leadership = leadership
        self.notes = notes
        self._noted_ms = leadership.clock.boot_ms()

    async def open(self) -> list[int]:
        if self._end() > self.leadership.place.end.offset:
            await self.ship()
        return ops_in(self._content()[: self.leadership.place.end.offset])

    def append(self, ops: Sequence[int], *, sync: bool) -> None:
        name, end = segment_name(_FIRST), self._end()
        if end == 0:
            self.disk.mkdir(SEGMENTS)
            file, head = self.disk.create(name), Head(_FIRST, 1, self.leadership.chain.log_id, 1, 0, 0).pack()
        else:
            file, head = self.disk.open(name, write=True), b""
        self.disk.pwrite(file, head + b"".join(map(body, ops)), end)
        self.disk.close(file)
        if sync:
            self._sync()

    async def ship(self) -> None:
        self._sync()
        data, shipped = self._content()[: self._end()], self.leadership.place.end
        batches = (len(data) - HEAD_BYTES) // _OP_BYTES
        run = Run(_FIRST, shipped.offset, data[shipped.offset :])
        await self.leadership.ship([run], first_batch=shipped.batch + 1, last_batch=batches)
        now_ms = self.leadership.clock.boot_ms()
        if now_ms - self._noted_ms >= self.leadership.chain.settings.place_ms:
            self.note()

    async def release(self) -> None:
        await self.leadership.release()
        self.note()

    def note(self) -> None:
        """Note how far the chain goes."""
        self._noted_ms = self.leadership.clock.boot_ms()
        save_notes(self.disk, self.notes.after(self.leadership.last, self.leadership.place))

    def _content(self) -> bytes:
        return self.disk.content(segment_name(_FIRST)) if segment_name(_FIRST) in self.disk.names() else b""

    def _end(self) -> int:
        """Return where the log ends here; half an operation at the end is a write that a power loss cut."""
        content = self._content()
        if len(content) < HEAD_BYTES:
            return 0
        end = HEAD_BYTES
        while _OP.fullmatch(content[end : end + _OP_BYTES]):
            end += _OP_BYTES
        return end

    def _sync(self) -> None:
        file = self.disk.open(segment_name(_FIRST), write=True)
        self.disk.sync(file)
        self.disk.close(file)
        self.disk.sync_dir(SEGMENTS)
        self.disk.sync_dir("")


class WholeLog:
    """The log of the product, with its segments, rolls and recovery."""

    def __init__(self, disk: SimDisk, leadership: Leadership, notes: Notes) -> None:
        self.disk = disk
        self.leadership = leadership
        self._log = ShippedLog.lead(disk, leadership, notes, segment_bytes=SEGMENT_BYTES)

    async def open(self) -> list[int]:
        def replay() -> list[int]:
            return [op for *_, data in self._log.replay() for op in ops_in(bytes(data))]

        return await blocking(replay)

    def append(self, ops: Sequence[int], *, sync: bool) -> None:
        """Write operations here; they outlast a power loss once they are shipped."""
        self._log.append([(20, 1, body(op)) for op in ops])
        self._log.write()

    async def ship(self) -> None:
        def sync() -> None:
            self._log.sync()

        await blocking(sync)

    async def release(self) -> None:
        await blocking(self._log.close)
