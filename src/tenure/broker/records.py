"""Reading records by topic and seq from their frames, with caches of frames and of record tables."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from tenure.broker.frames import Frame, LargeFrame, Table
from tenure.contract.records import Stored
from tenure.core.append_head import read_head
from tenure.core.events import KIND_OF, Appended, Carried, decode
from tenure.core.records import ends_of
from tenure.core.state.frame_index import find
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt
from tenure.log.interface import Log

__all__ = ["LARGE_BYTES", "TABLES_MAX", "Reader"]

TABLES_MAX = 256
"""How many tables a reader keeps, about 4 bytes per record each."""
LARGE_BYTES = 1 << 16
"""Payload of an append from which on single records are read from the log, and not the whole append."""
_VERIFIED_MAX = 1 << 14
_APPENDED = KIND_OF[Appended]
_CACHE_FROM_BYTES = 2048
_YOUNG_BYTES = 2 << 20
_HEAD_BYTES_MAX = 1 << 20
_ENTRY_BYTES = 300


class Reader:
    """A reader of records with a cache of the last large frames, because neighbours tend to be read next.

    What was just appended is likely to be claimed next, so the newest appends are kept as they are, in two
    generations: when the young one is full it becomes the old one, and no entry is evicted by itself. Tables are cached
    apart and longer: an ack of some of a frame's jobs needs nothing else. Of a large append only the table is kept.
    It is verified before its first record is read, and not again while it is among the last so many: then a record
    costs what it weighs.

    Damage raises an error only where the records themselves are wanted: their size is guessed where it cannot be read.
    """

    def __init__(self, log: Log, cache_bytes_max: int) -> None:
        self._log = log
        self.tables_max = TABLES_MAX
        self._refused = (0, 0)
        self._cache_bytes_max = cache_bytes_max
        self._cached_bytes = 0
        self._young: dict[int, Appended] = {}
        self._old: dict[int, Appended] = {}
        self._young_bytes = 0
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._tables: OrderedDict[int, Table] = OrderedDict()
        self._verified: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def remember(self, location: int, event: Appended) -> None:
        """Cache what was just appended for its first reader, unless it is so large that it would displace the rest."""
        size = len(event.blobs) + _ENTRY_BYTES
        if size > _YOUNG_BYTES // 2:
            return
        self._young[location] = event
        self._young_bytes += size
        if self._young_bytes > _YOUNG_BYTES:
            self._old, self._young, self._young_bytes = self._young, {}, 0

    def frame(self, location: int, size: int) -> Frame:
        """Return the frame at a location, with so many bytes of payload. Raises Corrupt where it cannot be read."""
        frame = self._frames.get(location)
        return frame if frame is not None else self._open(location, self._event(location, size))

    def refused_ms(self, segment: int, now_ms: int) -> int:
        """Return how long the disk has refused reads of a segment, counted from the first call about it."""
        if self._refused[0] != segment:
            self._refused = (segment, now_ms)
        return now_ms - self._refused[1]

    def _event(self, location: int, size: int) -> Appended | Carried | None:
        """Return the event at a location, None where it is too large to be read as a whole."""
        kept = self._young.get(location) or self._old.get(location)
        if kept is not None:
            return kept
        return None if size >= LARGE_BYTES else self._read(location)

    def _read(self, location: int) -> Appended | Carried:
        kind, _, body = self._log.read(location)
        event = decode(kind, body)
        if event.__class__ is not Appended and event.__class__ is not Carried:
            raise Corrupt(f"the frame at location {location:#x} holds no records", location=location)
        return event

    def _open(self, location: int, event: Appended | Carried | None) -> Frame:
        frame = self._open_large(location) if event is None else Frame(event)
        if frame.held_bytes >= _CACHE_FROM_BYTES or event is None:
            self._keep(location, frame)
        return frame

    def _open_large(self, location: int) -> Frame:
        """Open a frame of which parts will be read, after all of it was verified once.

        What trimming has rewritten is read whole: it is no larger than a step of that.
        """
        if location not in self._verified:
            kind, length = self._log.check(location)
            self._verified[location] = (kind, length)
            if len(self._verified) > _VERIFIED_MAX:
                self._verified.popitem(last=False)
        kind, length = self._verified[location]
        if kind != _APPENDED:
            return Frame(self._read(location))
        read = partial(self._read_part, location)
        return LargeFrame(read_head(read, length), read)

    def _read_part(self, location: int, start: int, count: int) -> bytes:
        """Read a part of a frame that was verified; where the disk refuses, the frame has to be verified again."""
        try:
            return self._log.read_part(location, start, count)
        except Corrupt:
            self._verified.pop(location, None)
            if (frame := self._frames.pop(location, None)) is not None:
                self._cached_bytes -= frame.held_bytes
            raise

    def _keep(self, location: int, frame: Frame) -> None:
        self._frames[location] = frame
        self._cached_bytes += frame.held_bytes
        while self._cached_bytes > self._cache_bytes_max and len(self._frames) > 1:
            _, old = self._frames.popitem(last=False)
            self._cached_bytes -= old.held_bytes

    def records(self, topic: Topic, runs: list[int]) -> list[Stored]:
        """Return the records of live seqs, ascending. Raises Corrupt where one of them cannot be read."""
        if len(runs) == 2 and runs[1] == 1:
            seq, entries = runs[0], topic.frame_index
            at, index = find(entries, seq)
            entry = entries[at]
            location = entry.segment << 32 | entry.offsets[index]
            frame = self._frames.get(location)
            if frame is None:
                event = self._young.get(location) or self._event(location, entry.sizes[index])
                if event.__class__ is Appended and event.count == 1 and event.plain:
                    return [Stored(seq, event.ts_ms, event.blobs)]  # a single put: there is no table to build
                frame = self._open(location, event)
            return frame.records(seq, seq + 1)
        found, lost = self.readable(topic, runs)
        if lost:
            raise next(iter(lost.values()))
        return found

    def readable(self, topic: Topic, runs: list[int]) -> tuple[list[Stored], dict[int, Corrupt]]:
        """Return the records of live seqs that can be read, ascending, and for each other seq the error."""
        found: list[Stored] = []
        lost: dict[int, Corrupt] = {}
        for start, n in zip(runs[::2], runs[1::2], strict=True):
            for first, follower, location, size in _frames(topic, start, start + n):
                lo, hi = max(start, first), min(start + n, follower)
                try:
                    found += self.frame(location, size).records(lo, hi)
                except Corrupt as error:
                    lost.update(dict.fromkeys(range(lo, hi), error))
        return found, lost

    def sizes(self, topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield (seq, bytes) of the live records with seqs in ``[lo, hi)``, ascending; guessed where unreadable."""
        for first, follower, location, size in _frames(topic, lo, hi):
            if follower == first + 1:  # one record: the index says what it weighs
                if first >= lo and not topic.is_dead(first):
                    yield first, size
                continue
            table = self._table(topic, first, follower, location=location, size=size)
            for index in table.between(max(lo, first), min(hi, follower)):
                seq = table.seq(index)
                if not topic.is_dead(seq):
                    yield seq, table.size(index)

    def fitting(self, topic: Topic, runs: list[int], bytes_max: int) -> list[int]:
        """Return the longest prefix of these live seqs whose records take at most so many bytes; one always fits.

        The index alone shows most that all of them fit. Where they do not, the table of one frame is read.
        """
        if topic.bytes <= bytes_max or _most_bytes(topic, runs) <= bytes_max:
            return runs
        left, taken = bytes_max, list[int]()
        for lo, n in zip(runs[::2], runs[1::2], strict=True):
            end, left = self._fitting_end(topic, lo, lo + n, left)
            if not taken and end == lo:
                end = lo + 1
            if end > lo:
                taken += (lo, end - lo)
            if end < lo + n or left <= 0:
                break
        return taken

    def _fitting_end(self, topic: Topic, lo: int, hi: int, left: int) -> tuple[int, int]:
        """Return the first of these live seqs whose record does not fit, and the bytes that are left then."""
        for first, follower, location, size in _frames(topic, lo, hi):
            start, end = max(lo, first), min(hi, follower)
            if (start, end) == (first, follower) and size <= left:
                left -= size
                continue
            table = self._table(topic, first, follower, location=location, size=size)
            for index in table.between(start, end):
                left -= table.size(index)
                if left < 0:
                    return table.seq(index), left
        return hi, left

    def weigh(self, topic: Topic, runs: list[int]) -> int:
        """Return how many bytes the records of these live seqs take. Whole frames are not read for it, and the sizes
        in frames that cannot be read are guessed.
        """
        if len(runs) == 2:
            lo, n = runs
            if n == 1:  # one job that was put by itself: no more than a look into the index
                entries = topic.frame_index
                at, index = find(entries, lo)
                entry = entries[at]
                firsts = entry.firsts
                seq_after = firsts[index + 1] if index + 1 < len(firsts) else _seq_after(topic, at)
                if firsts[index] == lo and seq_after == lo + 1:
                    return entry.sizes[index]
            return self._weigh_run(topic, lo, lo + n)
        return sum(self._weigh_run(topic, lo, lo + n) for lo, n in zip(runs[::2], runs[1::2], strict=True))

    def _weigh_run(self, topic: Topic, lo: int, hi: int) -> int:
        total = 0
        for first, follower, location, size in _frames(topic, lo, hi):
            if lo <= first and follower <= hi and first >= topic.floor and not topic.dead_between(first, follower):
                total += size
                continue
            table = self._table(topic, first, follower, location=location, size=size)
            start, end = max(lo, first), min(hi, follower)
            chosen = table.between(start, end)
            if start >= topic.floor and not topic.dead_between(start, end):
                total += table.span_bytes(chosen)
            else:
                total += sum(table.size(i) for i in chosen if not topic.is_dead(table.seq(i)))
        return total

    def _table(self, topic: Topic, first: int, follower: int, *, location: int, size: int) -> Table:
        """Return the table of the frame that holds ``[first, follower)``; a guess where it cannot be read."""
        table = self._tables.get(location)
        if table is None:
            try:
                table = self._head_table(location, first, size) or self.frame(location, size).table
            except Corrupt:
                table = Table.guess(topic, first, follower, size)
            if len(table.ends) > 1:
                self._tables[location] = table
                if len(self._tables) > self.tables_max:
                    self._tables.popitem(last=False)
        return table

    def _head_table(self, location: int, first: int, size: int) -> Table | None:
        """Return the table of a large append from its head, or None where it is none that the index agrees with.

        Its payload is not read to verify it: a step that looks at many such appends would read them all. What the
        records of the frame weigh together is what the index says, so no damage moves that.
        """
        if size < LARGE_BYTES or location in self._frames:
            return None

        def read(start: int, count: int) -> bytes:
            return self._log.read_part(location, start, min(count, _HEAD_BYTES_MAX))  # a damaged length may be any

        try:
            head = read_head(read, size)
            table = Table(ends_of(head.ends, head.blobs_bytes), head.first_seq)
        except (Corrupt, ValueError):
            return None
        index, ends = first - head.first_seq, table.ends
        is_known = 0 <= index < len(ends) and ends[-1] - table.start(index) == size
        return table if is_known and all(a <= b for a, b in pairwise(ends)) else None


def _most_bytes(topic: Topic, runs: list[int]) -> int:
    """Return a bound on the bytes of these records: those of all the frames that they are in."""
    entries, total = topic.frame_index, 0
    for lo, n in zip(runs[::2], runs[1::2], strict=True):
        at, index = find(entries, lo)
        index = max(index, 0)
        while at < len(entries):
            firsts = entries[at].firsts
            end = bisect_left(firsts, lo + n)
            total += sum(entries[at].sizes[index:end])
            if end < len(firsts):
                break
            at, index = at + 1, 0
    return total


def _seq_after(topic: Topic, at: int) -> int:
    """Return the first seq after those that piece ``at`` holds."""
    return topic.frame_index[at + 1].firsts[0] if at + 1 < len(topic.frame_index) else topic.head_seq + 1


def _frames(topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the frames that hold seqs in ``[lo, hi)``, ascending: (first seq, seq after its last, location, bytes)."""
    entries = topic.frame_index
    if not entries or lo >= hi:
        return
    at, index = find(entries, lo)
    index = max(index, 0)
    while at < len(entries):
        entry = entries[at]
        firsts, base = entry.firsts, entry.segment << 32
        seq_after = _seq_after(topic, at)
        while index < len(firsts):
            if firsts[index] >= hi:
                return
            follower = firsts[index + 1] if index + 1 < len(firsts) else seq_after
            yield firsts[index], follower, base | entry.offsets[index], entry.sizes[index]
            index += 1
        at, index = at + 1, 0
