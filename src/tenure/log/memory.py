"""A log in memory, for tests and for queues that need not outlive their process.

It keeps the contract of the log on a disk except durability: a sync succeeds at once. Segments and batches have the
same numbers, so code written for one runs on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from tenure.errors import Closed, Invalid, NotFound, TenureError
from tenure.log.features import FeatureSet
from tenure.log.frame import HEADER_BYTES
from tenure.log.interface import Entry, Frame, Position, SegmentInfo, Sync, UnknownPosition
from tenure.log.segment import HEAD_BYTES

__all__ = ["MemoryLog"]


class _Segment:
    __slots__ = ("end", "entries", "first_batch", "number")

    def __init__(self, number: int, first_batch: int) -> None:
        self.number = number
        self.first_batch = first_batch
        self.end = HEAD_BYTES
        #: offset → (batch, entry), ascending.
        self.entries: dict[int, tuple[int, Entry]] = {}


class _MemorySync:
    is_instant = True

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def run(self) -> None:
        """Return at once: there is no disk."""


class MemoryLog:
    """A :class:`~tenure.log.interface.Log` without files.

    >>> from tenure.log import MemoryLog
    >>> log = MemoryLog()
    >>> [location] = log.append([(16, 7, b"body")])
    >>> log.read(location)
    (16, 7, b'body')
    """

    def __init__(self, *, segment_bytes: int = 64 << 20) -> None:
        self.epoch = 1
        self.pending_batch = 1
        self.written_batch = self.synced_batch = 0
        self.has_home = False
        self.failed: TenureError | None = None
        self.crowded = self.reserve_used = self.sync_frees_room = False
        self.preamble: Callable[[], Sequence[Entry]] | None = None
        self.log_ms: Callable[[], int] = int
        self.granted_until_ms = inf
        self.features = FeatureSet().all_on()
        self._segment_bytes = segment_bytes
        self._segments = [_Segment(1, 1)]
        self._written_end = HEAD_BYTES
        self._closed_bytes = 0
        self._has_pending = False
        self._sealed_batch = 0
        self._dropped = 0
        self._closed = False

    def reopen(self) -> MemoryLog:
        """Open it again, as after a restart: the next epoch, with everything that was written."""
        self._closed = False
        self.epoch += 1
        return self

    def reserve(self, ack_bytes: int, growth_bytes: int = 0) -> None:
        """Do nothing: there is no disk to be full."""

    @property
    def pending_segment(self) -> int:
        return self._segments[-1].number

    def spares_due(self) -> bool:
        """Return False: memory needs no file for a roll."""
        return False

    def prepare_spares(self) -> None:
        """Do nothing."""

    def append(self, entries: Sequence[Entry], *, urgent: bool = False, reclaim: bool = False) -> list[int]:
        self._check_open()
        need = sum(HEADER_BYTES + len(body) for _, _, body in entries)
        current = self._segments[-1]
        if current.end + need > self._segment_bytes and current.end > HEAD_BYTES:
            preamble = () if self.preamble is None else self.preamble()
            current = self._roll()
            self._join(current, preamble)
        return self._join(current, entries)

    def _join(self, current: _Segment, entries: Sequence[Entry]) -> list[int]:
        locations = []
        for entry in entries:
            locations.append(current.number << 32 | current.end)
            current.entries[current.end] = (self.pending_batch, entry)
            current.end += HEADER_BYTES + len(entry[2])
            self._has_pending = True
        return locations

    def append_one(self, kind: int, topic: int, body: bytes, urgent: bool = False) -> int:
        return self.append(((kind, topic, body),), urgent=urgent)[0]

    def write(self) -> int:
        if self._has_pending:
            self._check_open()
            self.written_batch = self.pending_batch
            self.pending_batch += 1
            self._written_end = self._segments[-1].end
            self._has_pending = False
        return self.written_batch

    @property
    def sync_wait_ms(self) -> int:
        return 0

    @property
    def beat_wait_ms(self) -> int | None:
        return None

    def begin_sync(self) -> Sync:
        self._check_open()
        return _MemorySync(self.written_batch)

    def end_sync(self, sync: Sync) -> int:
        assert isinstance(sync, _MemorySync)
        self.synced_batch = max(self.synced_batch, sync.batch)
        return self.synced_batch

    def sync(self) -> int:
        self._check_open()
        self.synced_batch = self.write()
        return self.synced_batch

    def seal(self) -> None:
        self.sync()
        if self._sealed_batch != self.written_batch:
            self._own_batch()
            self._sealed_batch = self.synced_batch = self.written_batch

    def witness(self) -> bool:
        """Return False: memory needs no witness of a sync."""
        return False

    def read(self, location: int) -> tuple[int, int, bytes]:
        for segment in self._segments:
            if segment.number == location >> 32:
                found = segment.entries.get(location & 0xFFFFFFFF)
                if found is not None:
                    return found[1]
        raise NotFound(f"there is no frame at {location}", code="segment_dropped", segment=location >> 32)

    def check(self, location: int) -> tuple[int, int]:
        kind, _, body = self.read(location)
        return kind, len(body)

    def read_part(self, location: int, start: int, count: int) -> bytes:
        return self.read(location)[2][start : start + count]

    def contains(self, position: Position) -> bool:
        known = any(segment.number == position.segment for segment in self._segments)
        return known and position.batch <= self.written_batch + 1

    def replay(self, after: Position | None = None) -> Iterator[Frame]:
        if after is not None and not self.contains(after):
            raise UnknownPosition(f"segment {after.segment} is not part of the log")
        return self._frames(1 if after is None else after.batch, self.written_batch)

    def position(self) -> Position:
        current = self._segments[-1]
        return Position(current.number, self._written_end, self.written_batch + 1, dropped=self._dropped)

    def segments(self, limit: int | None = None) -> list[SegmentInfo]:
        closed = [SegmentInfo(each.number, each.end, each.first_batch) for each in self._segments[:-1][:limit]]
        current = self._segments[-1]
        return [*closed, SegmentInfo(current.number, self._written_end, current.first_batch)][:limit]

    @property
    def used_bytes(self) -> int:
        return self._closed_bytes + self._written_end

    def drop(self, segment: int) -> int:
        self._check_open()
        if len(self._segments) == 1 or segment != self._segments[0].number:
            raise Invalid(f"segment {segment} cannot be dropped: only the oldest can, and never the one being written")
        self.write()
        self._own_batch()
        self._dropped = segment
        self._closed_bytes -= self._segments[0].end
        del self._segments[0]
        return self.written_batch

    def checkpointed(self, position: Position) -> None:
        pass

    def turn_on_features(self) -> int:
        """Do nothing: no other version reads this log, so all of them are on from the start."""
        return self.write()

    def release_soon(self, hand_to: str) -> None:
        """Do nothing: it has no home."""

    def release(self, hand_to: str = "") -> None:
        """Do nothing: it has no home."""

    def close(self) -> None:
        if not self._closed:
            self.seal()
            self._closed = True

    def _frames(self, first_batch: int, last_batch: int) -> Iterator[Frame]:
        for segment in list(self._segments):
            base = segment.number << 32
            for offset, (batch, (kind, topic, body)) in list(segment.entries.items()):
                if first_batch <= batch <= last_batch:
                    yield kind, topic, base + offset, body

    def _own_batch(self) -> None:
        """Count a batch that would hold only a frame of the log's own."""
        self.written_batch = self.pending_batch
        self.pending_batch += 1

    def _roll(self) -> _Segment:
        self.write()
        self._closed_bytes += self._segments[-1].end
        self._segments.append(_Segment(self._segments[-1].number + 1, self.pending_batch))
        self._written_end = HEAD_BYTES
        return self._segments[-1]

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed: reopen it", code="closed")
