"""Reading records by topic and seq from their frames, with caches of frames and of record tables."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator

from tenure.contract.records import Stored
from tenure.core.events import Appended, Carried, decode
from tenure.core.records import ends_of, unpack
from tenure.core.state.frame_index import find
from tenure.core.state.ranges import each
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt
from tenure.log.interface import Log

__all__ = ["TABLES_MAX", "Frame", "Reader", "Table"]

TABLES_MAX = 256
"""How many tables a reader keeps, about 4 bytes per record each."""
_CACHE_FROM_BYTES = 2048
_YOUNG_BYTES = 2 << 20
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


class Frame:
    """The records of one append, or of several that were rewritten together. ``lost`` says why they cannot be read."""

    __slots__ = ("ats_ms", "blobs", "lost", "plain", "table", "ts_ms", "tss_ms")

    def __init__(self, event: Appended | Carried) -> None:
        self.table = Table.of(event)
        self.lost = event.lost if isinstance(event, Carried) else None
        self.blobs = event.blobs
        self.plain = event.plain
        self.ts_ms = 0 if isinstance(event, Carried) else event.ts_ms
        self.tss_ms: list[int] | None = event.tss_ms if isinstance(event, Carried) else None
        self.ats_ms: list[int] | None = event.ats_ms if isinstance(event, Carried) else None

    def blob(self, index: int) -> bytes:
        """Return the bytes of record ``index``."""
        return self.blobs[self.table.start(index) : self.table.ends[index]]

    def record(self, index: int) -> Stored:
        """Return record ``index``, unpacked."""
        ts_ms = self.ts_ms if self.tss_ms is None else self.tss_ms[index]
        data, extras = unpack(self.blob(index), self.plain)
        return Stored(self.table.seq(index), ts_ms, data, extras.tag, extras.node, extras.meta, extras.hops)

    def records(self, lo: int, hi: int) -> list[Stored]:
        """Return the records with seqs in ``[lo, hi)``; bare ones in one go, because most of a claim's time is spent
        here. Raises Corrupt where their payload is lost.
        """
        if self.lost is not None:
            raise Corrupt(self.lost, code="unreadable")
        chosen = self.table.between(lo, hi)
        if not self.plain or self.tss_ms is not None or not chosen:
            return [self.record(index) for index in chosen]
        ends, blobs, ts_ms = self.table.ends, self.blobs, self.ts_ms
        if len(chosen) == 1:
            return [Stored(self.table.seq(chosen.start), ts_ms, self.blob(chosen.start))]
        stops = ends[chosen.start : chosen.stop]
        starts = array("I", (self.table.start(chosen.start),)) + stops[:-1]
        seqs = range(self.table.first_seq + chosen.start, self.table.first_seq + chosen.stop)
        return [Stored(seq, ts_ms, blobs[a:b]) for seq, a, b in zip(seqs, starts, stops, strict=True)]


class Reader:
    """A reader of records with a cache of the last large frames, because neighbours tend to be read next.

    What was just appended is likely to be claimed next, so the newest appends are kept as they are, in two
    generations: when the young one is full it becomes the old one, and no entry is evicted by itself. Tables are cached
    apart and longer: an ack of some of a frame's jobs needs nothing else.

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

    def remember(self, location: int, event: Appended) -> None:
        """Cache what was just appended for its first reader."""
        self._young[location] = event
        self._young_bytes += len(event.blobs) + _ENTRY_BYTES
        if self._young_bytes > _YOUNG_BYTES:
            self._old, self._young, self._young_bytes = self._young, {}, 0

    def frame(self, location: int) -> Frame:
        """Return the frame at a location. Raises Corrupt where it cannot be read whole."""
        frame = self._frames.get(location)
        return frame if frame is not None else self._open(location, self._event(location))

    def refused_ms(self, segment: int, now_ms: int) -> int:
        """Return how long the disk has refused reads of a segment, counted from the first call about it."""
        if self._refused[0] != segment:
            self._refused = (segment, now_ms)
        return now_ms - self._refused[1]

    def _event(self, location: int) -> Appended | Carried:
        kept = self._young.get(location) or self._old.get(location)
        if kept is not None:
            return kept
        kind, _, body = self._log.read(location)
        event = decode(kind, body)
        if event.__class__ is not Appended and event.__class__ is not Carried:
            raise Corrupt(f"the frame at location {location:#x} holds no records", location=location)
        return event

    def _open(self, location: int, event: Appended | Carried) -> Frame:
        frame = Frame(event)
        if len(frame.blobs) >= _CACHE_FROM_BYTES:
            self._keep(location, frame)
        return frame

    def _keep(self, location: int, frame: Frame) -> None:
        self._frames[location] = frame
        self._cached_bytes += len(frame.blobs)
        while self._cached_bytes > self._cache_bytes_max and len(self._frames) > 1:
            _, old = self._frames.popitem(last=False)
            self._cached_bytes -= len(old.blobs)

    def records(self, topic: Topic, runs: list[int]) -> list[Stored]:
        """Return the records of live seqs, ascending. Raises Corrupt where one of them cannot be read."""
        if len(runs) == 2 and runs[1] == 1:
            seq, entries = runs[0], topic.frame_index
            at, index = find(entries, seq)
            entry = entries[at]
            location = entry.segment << 32 | entry.offsets[index]
            frame = self._frames.get(location)
            if frame is None:
                event = self._young.get(location) or self._event(location)
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
            for first, follower, location, _ in _frames(topic, start, start + n):
                lo, hi = max(start, first), min(start + n, follower)
                try:
                    found += self.frame(location).records(lo, hi)
                except Corrupt as error:
                    lost.update(dict.fromkeys(range(lo, hi), error))
        return found, lost

    def sizes(self, topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield (seq, bytes) of the live records with seqs in ``[lo, hi)``, ascending; guessed where unreadable."""
        for first, follower, location, size in _frames(topic, lo, hi):
            table = self._table(topic, first, follower, location=location, size=size)
            for index in table.between(lo, hi):
                seq = table.seq(index)
                if not topic.is_dead(seq):
                    yield seq, table.size(index)

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
            else:
                table = self._table(topic, first, follower, location=location, size=size)
                total += sum(table.size(i) for i in table.between(lo, hi) if not topic.is_dead(table.seq(i)))
        return total

    def _table(self, topic: Topic, first: int, follower: int, *, location: int, size: int) -> Table:
        """Return the table of the frame that holds ``[first, follower)``; a guess where it cannot be read."""
        table = self._tables.get(location)
        if table is None:
            try:
                table = self.frame(location).table
            except Corrupt:
                table = Table.guess(topic, first, follower, size)
            if len(table.ends) > 1:
                self._tables[location] = table
                if len(self._tables) > self.tables_max:
                    self._tables.popitem(last=False)
        return table


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
