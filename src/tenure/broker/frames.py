"""Frames of records as they are read: the table of each, and its payload in memory or still in the log."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

from tenure.contract.records import Stored
from tenure.core.append_head import AppendHead
from tenure.core.events import Appended, Carried
from tenure.core.records import ends_of, unpack
from tenure.core.state.ranges import each
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt

__all__ = ["Frame", "LargeFrame", "Table"]

_ENTRY_BYTES = 300


class Table:
    """The seqs of a frame and where each record ends: enough to compute sizes without the payload."""

    __slots__ = ("ends", "first_seq", "seqs")

    def __init__(self, ends: array[int], first_seq: int, seqs: list[int] | None = None) -> None:
        self.ends = ends
        self.first_seq = first_seq
        self.seqs = seqs

    @classmethod
    def of(cls, event: Appended | Carried) -> Table:
        """Return the table of a frame that was read."""
        ends = ends_of(event.ends, len(event.blobs))
        return cls(ends, event.lo, event.seqs) if isinstance(event, Carried) else cls(ends, event.first_seq)

    @classmethod
    def guess(cls, topic: Topic, first: int, follower: int, size: int) -> Table:
        """Return a table for a frame that cannot be read: even shares for those of its seqs that are alive.

        A share is what a record of the topic weighs on average, but not less than if the frame still held all seqs it
        answers for, and not more than if it held only the live ones. The table is kept, so removals one by one do not
        take more than the frame weighs between them.
        """
        seqs = list(each(topic.live_runs(first, follower)))
        count = len(seqs)
        least, average = size * count // (follower - first), topic.bytes * count // max(topic.count, 1)
        total = min(max(average, least), size)
        return cls(array("I", (total * (i + 1) // count for i in range(count))), first, seqs)

    def between(self, lo: int, hi: int) -> range:
        """Return the indices of the records with seqs in ``[lo, hi)``."""
        if self.seqs is not None:
            return range(bisect_left(self.seqs, lo), bisect_left(self.seqs, hi))
        return range(max(lo - self.first_seq, 0), min(hi - self.first_seq, len(self.ends)))

    def seq(self, index: int) -> int:
        """Return the seq of record ``index``."""
        return self.first_seq + index if self.seqs is None else self.seqs[index]

    def start(self, index: int) -> int:
        """Return where record ``index`` starts."""
        return self.ends[index - 1] if index else 0

    def size(self, index: int) -> int:
        """Return the size of record ``index`` in bytes."""
        return self.ends[index] - self.start(index)

    def span_bytes(self, indices: range) -> int:
        """Return the size of neighbouring records together."""
        return self.ends[indices[-1]] - self.start(indices[0]) if indices else 0


class Frame:
    """The records of one append, or of several that were rewritten together. ``lost`` says why they cannot be read.

    ``held_bytes`` is what it takes in memory.
    """

    __slots__ = ("ats_ms", "blobs", "held_bytes", "lost", "plain", "table", "ts_ms", "tss_ms")

    def __init__(self, event: Appended | Carried) -> None:
        self.table = Table.of(event)
        self.lost = event.lost if isinstance(event, Carried) else None
        self.blobs = event.blobs
        self.plain = event.plain
        self.ts_ms = 0 if isinstance(event, Carried) else event.ts_ms
        self.tss_ms: list[int] | None = event.tss_ms if isinstance(event, Carried) else None
        self.ats_ms: list[int] | None = event.ats_ms if isinstance(event, Carried) else None
        self.held_bytes = len(event.blobs)

    def payload(self, indices: range) -> bytes:
        """Return the bytes of neighbouring records, back to back. Raises Corrupt where the disk refuses to read."""
        return self.blobs[self.table.start(indices.start) : self.table.ends[indices.stop - 1]]

    def _unpacked(self, index: int, blob: bytes) -> Stored:
        ts_ms = self.ts_ms if self.tss_ms is None else self.tss_ms[index]
        data, extras = unpack(blob, self.plain)
        return Stored(self.table.seq(index), ts_ms, data, extras.tag, extras.node, extras.meta, extras.hops)

    def records(self, lo: int, hi: int) -> list[Stored]:
        """Return the records with seqs in ``[lo, hi)``; bare ones in one go, because most of a claim's time is spent
        here. Raises Corrupt where their payload is lost.
        """
        if self.lost is not None:
            raise Corrupt(self.lost, code="unreadable")
        chosen, table, ts_ms = self.table.between(lo, hi), self.table, self.ts_ms
        is_bare = self.plain and self.tss_ms is None
        if len(chosen) <= 1:
            if is_bare:
                return [Stored(table.seq(index), ts_ms, self.payload(chosen)) for index in chosen]
            return [self._unpacked(index, self.payload(chosen)) for index in chosen]
        blobs, base = self._span(chosen)
        stops, first = table.ends[chosen.start : chosen.stop], table.start(chosen.start) - base
        if base:
            stops = array("I", [stop - base for stop in stops])
        starts = array("I", (first,)) + stops[:-1]
        if not is_bare:
            return [self._unpacked(index, blobs[a:b]) for index, a, b in zip(chosen, starts, stops, strict=True)]
        seqs = range(table.first_seq + chosen.start, table.first_seq + chosen.stop)
        return [Stored(seq, ts_ms, blobs[a:b]) for seq, a, b in zip(seqs, starts, stops, strict=True)]

    def _span(self, indices: range) -> tuple[bytes, int]:
        """Return bytes that contain the payload of these records, and the offset in the payload where they begin."""
        return self.blobs, 0


class LargeFrame(Frame):
    """An append whose payload stays in the log: a record costs what it weighs, however large its append was.

    The whole frame was verified before; ``read`` returns a part of its body.
    """

    __slots__ = ("_at", "_read")

    def __init__(self, head: AppendHead, read: Callable[[int, int], bytes]) -> None:
        self.table = Table(ends_of(head.ends, head.blobs_bytes), head.first_seq)
        self.lost = self.tss_ms = self.ats_ms = None
        self.blobs = b""
        self.plain, self.ts_ms = head.plain, head.ts_ms
        self.held_bytes = len(head.ends) + _ENTRY_BYTES
        self._at, self._read = head.blobs_at, read

    def payload(self, indices: range) -> bytes:
        start = self.table.start(indices.start)
        size = self.table.ends[indices.stop - 1] - start
        payload = self._read(self._at + start, size)
        if len(payload) < size:
            raise Corrupt("a segment was cut short while it was in use. Verify the directory.", code="unreadable")
        return payload

    def _span(self, indices: range) -> tuple[bytes, int]:
        return self.payload(indices), self.table.start(indices.start)
