"""Trimming: what is alive in the oldest segment is rewritten at the tail, step by step; then the segment is dropped.

The log is kept below twice its live bytes plus a few segments. Frames, bases and tables come on top of the live bytes,
and where jobs are tiny they outweigh them: such a log would never be small enough. So what is rewritten is also bounded
by half of what is dropped and present, and the cost of rewriting stays within the cost of having written. A step moves
a bounded number of bytes in a bounded time; other work runs between.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from itertools import accumulate

import msgspec
from pyroaring import BitMap

from tenure.broker.engine import Engine
from tenure.broker.frames import Frame, LargeFrame
from tenure.core.events import Carried, TopicCarried
from tenure.core.state.frame_index import FramePlace, SegmentIndex
from tenure.core.state.snapshot import count_items, dump_topic
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt

__all__ = [
    "PATIENCE_MS",
    "Taken",
    "carried",
    "fits",
    "is_all_deferred",
    "is_based_on_oldest",
    "merged_spread_ms",
    "trim_due",
    "trim_step",
]

Taken = tuple[FramePlace, Frame, list[int]]
"""A frame, where it lies, and the runs of its seqs that are still wanted."""

PATIENCE_MS = 60_000
"""How long reads of a segment must have been refused by the disk before their payload is given up with the segment."""
_SPREAD_MS = 1_000
_SPREAD_PARTS = 100
_LOOK_BYTES = 64
_RUNS_SHOWN = 20
_logger = logging.getLogger("tenure.broker")


def trim_due(engine: Engine) -> bool:
    """Return whether the log is larger than its live bytes justify.

    On a full disk less is enough: an oldest segment that is used up, or acks that need the room kept for them.
    """
    log = engine.log
    segments = log.segments(2)
    if len(segments) == 1:
        return False
    total = log.used_bytes
    slack = 0 if log.crowded else engine.settings.spare_segments * engine.settings.segment_bytes
    excess = total - 2 * engine.state.live_bytes - slack
    if excess > 0 and engine.dropped_bytes + total >= 2 * engine.rewritten_bytes and not _is_pinned(engine, excess):
        return True
    if log.reserve_used and (engine.fruitless_bytes < total or engine.state.live_bytes != engine.trimmed_live_bytes):
        return True
    return log.crowded and _is_spent(engine, segments[0].number)


def _is_pinned(engine: Engine, excess: int) -> bool:
    """Return whether a reader in another process has yet to read the oldest segment and its pin still holds."""
    pin = engine.pin
    return pin is not None and engine.log.segments(2)[1].first_batch > pin.batch and excess <= pin.bytes_max


def _is_spent(engine: Engine, segment: int) -> bool:
    """Return whether a segment holds no live record, judged by the floors of its topics: then freeing it is cheap.

    It is asked after every sync of a full disk. A topic that was found spent stays so, because only the newest segment
    gets records: so each topic is looked at once, and then the one that holds the segment.
    """
    if engine.spent_below[0] != segment:
        engine.spent_below = (segment, 0)
    for topic_id in engine.state.holders.get(segment, BitMap()).iter_equal_or_larger(engine.spent_below[1]):
        topic = engine.state.by_id.get(topic_id)
        if topic is not None and _is_held_by(topic, segment):
            engine.spent_below = (segment, topic_id)
            return False
    return True


def _is_held_by(topic: Topic, segment: int) -> bool:
    entries = [entry for entry in topic.frame_index if entry.segment == segment]
    return any(topic.floor < _seq_after(topic, entry) for entry in entries)


def is_all_deferred(engine: Engine, deferred: BitMap) -> bool:
    """Return whether nothing is left of the oldest segment but bases that were deferred."""
    [oldest] = engine.log.segments(1)
    return not engine.state.holders.get(oldest.number, BitMap()) - deferred


def is_based_on_oldest(engine: Engine, topics: BitMap) -> bool:
    """Return whether the base of one of these topics is in the oldest segment."""
    [oldest] = engine.log.segments(1)
    return any(topic.base == oldest.number for topic_id in topics if (topic := engine.state.by_id.get(topic_id)))


def trim_step(engine: Engine, deferred: BitMap | None = None) -> int:
    """Move a bounded part of the oldest segment to the tail, or drop the segment after nothing in it matters.

    Topics whose base is too large for a step are added to ``deferred``, and wait for the caller to log it; without
    one, every base is written here.

    Return the batch with whose sync the segment is gone, or 0 while there is more of it to move. Raises Overloaded
    where the disk has no room left even for this, and Corrupt where it refuses to read; nothing is lost then, and a
    later step continues.
    """
    engine.write()
    if engine.state.live_bytes != engine.trimmed_live_bytes:
        engine.trimmed_live_bytes, engine.fruitless_bytes = engine.state.live_bytes, 0
    [oldest], before = engine.log.segments(1), engine.log.used_bytes
    is_empty = _empty(engine, oldest.number, deferred)
    engine.write()
    moved_bytes = engine.log.used_bytes - before
    engine.rewritten_bytes += moved_bytes
    engine.fruitless_bytes += moved_bytes
    if not is_empty:
        return 0
    batch = engine.log.drop(oldest.number)
    engine.dropped_bytes += oldest.used_bytes
    engine.state.holders.pop(oldest.number, None)
    return batch


class _Budget:
    """What one step may still move and how long it may take. The time is that of the machine, not log time."""

    def __init__(self, engine: Engine) -> None:
        self._clock = engine.clock
        self._end_ms = engine.clock.boot_ms() + engine.settings.trim_step_ms
        self.left_bytes = engine.settings.trim_step_bytes

    def is_spent(self) -> bool:
        """Return whether the step has to end."""
        return self.left_bytes <= 0 or self._clock.boot_ms() >= self._end_ms


def _empty(engine: Engine, segment: int, deferred: BitMap | None) -> bool:
    """Rewrite what matters in a segment, within the budget of one step; return True when nothing is left in it."""
    state, budget = engine.state, _Budget(engine)
    holders = state.holders.get(segment, BitMap())
    for topic_id in holders - deferred if deferred else holders.copy():
        topic = state.by_id.get(topic_id)
        if topic is None or _carry_topic(engine, topic, segment, budget=budget, deferred=deferred):
            holders.discard(topic_id)
        if budget.is_spent():
            break
    return not holders


def _carry_topic(engine: Engine, topic: Topic, segment: int, *, budget: _Budget, deferred: BitMap | None) -> bool:
    """Rewrite what a topic has in the segment, within the budget; return whether nothing of it is left there."""
    while (entry := next((entry for entry in topic.frame_index if entry.segment == segment), None)) is not None:
        _carry_frames(engine, topic, entry, budget)
        if budget.is_spent():
            return False
    if topic.base == segment:
        if deferred is not None and count_items(topic) > engine.settings.base_items_max:
            deferred.add(topic.id)
            return False
        return _carry_base(engine, topic, budget)
    return True


def _carry_base(engine: Engine, topic: Topic, budget: _Budget) -> bool:
    """Rewrite the base of a topic; return False while more of its past has to end first than one step ends."""
    now_ms = engine.now()
    if not engine.state.advance(topic, now_ms):
        return False
    snapshot = dump_topic(topic, now_ms=now_ms)
    engine.rewrite(TopicCarried(now_ms, topic.id, msgspec.Raw(snapshot)))
    budget.left_bytes -= len(snapshot)
    return True


def _carry_frames(engine: Engine, topic: Topic, entry: SegmentIndex, budget: _Budget) -> None:
    """Rewrite the live records of the next few frames of a piece as one frame; dead frames are only forgotten.

    What lies below the floor is passed over in one step; looking at any other frame costs a little of the budget too.
    Records that cannot be read are carried without their payload, so that they neither keep their segment nor vanish.
    """
    taken: list[Taken] = []
    missing: list[int] = []
    now_ms = engine.now()
    index, firsts = max(bisect_right(entry.firsts, topic.floor) - 1, 0), entry.firsts
    start = index
    while index < len(firsts) and (index == start or not budget.is_spent()):
        place = entry.place(index)
        alive = _alive(topic, entry, index)
        budget.left_bytes -= _LOOK_BYTES
        if alive:
            frame, is_read = _frame(engine, topic, place, end=alive[-2] + alive[-1])
            if taken and not fits(topic, taken[0], place, frame, now_ms=now_ms):
                break
            if isinstance(frame, LargeFrame) and place[2] >= 2 * engine.settings.trim_step_bytes:
                if not taken:
                    _carry_some(engine, topic, (place, frame, alive), lo=firsts[0], budget=budget)
                    return
                break
            taken.append((place, frame, alive))
            missing += [] if is_read else alive
            budget.left_bytes -= place[2]
        index += 1
    end = firsts[index] if index < len(firsts) else _seq_after(topic, entry)
    if not taken:
        topic.cut_frames(firsts[0], end)
        return
    event = carried(now_ms, topic, taken, lo=firsts[0], hi=end)
    engine.rewrite(event)
    if missing:
        _logger.warning("topic %s: the payload of seqs %s is lost: %s", topic.name, _spelled(missing), event.lost)


def _carry_some(engine: Engine, topic: Topic, taken: Taken, *, lo: int, budget: _Budget) -> None:
    """Rewrite the first records of an append that is too large for a step; the index keeps the rest where it is."""
    place, frame, alive = taken
    table, step_bytes = frame.table, engine.settings.trim_step_bytes
    start = table.between(alive[0], alive[0] + 1).start
    stop = bisect_right(table.ends, table.start(start) + step_bytes, lo=start + 1)
    hi, rest_bytes = table.seq(start) + stop - start, table.ends[-1] - table.ends[stop - 1]
    runs = topic.live_runs(alive[0], hi)
    event = carried(engine.now(), topic, [(place, frame, runs)], lo=lo, hi=hi)
    if stop < len(table.ends):
        event = msgspec.structs.replace(event, rest=[place[1], rest_bytes, place[3]])
    engine.rewrite(event)
    budget.left_bytes -= event.size_bytes


def _spelled(runs: list[int]) -> str:
    shown = [f"{lo}..{lo + n - 1}" if n > 1 else str(lo) for lo, n in zip(runs[::2], runs[1::2], strict=True)]
    return ", ".join(shown[:_RUNS_SHOWN]) + (f" and {len(shown) - _RUNS_SHOWN} more" if shown[_RUNS_SHOWN:] else "")


def _frame(engine: Engine, topic: Topic, place: FramePlace, *, end: int) -> tuple[Frame, bool]:
    """Return the frame at a place, and True; where it cannot be read, one without payload for its live records below
    ``end``, and False.

    Raises Corrupt where the disk refuses to read it, which may pass: bytes that fail their checksum stay bad, but these
    may be whole.
    """
    try:
        return engine.reader.frame(place[1], place[2]), True
    except Corrupt as error:
        if error.code == "unreadable" and engine.reader.refused_ms(place[1] >> 32, engine.now()) < PATIENCE_MS:
            raise
        seqs, sizes = zip(*engine.reader.sizes(topic, place[0], end), strict=True)
        ends, count = array("I", accumulate(sizes)).tobytes(), len(seqs)
        times_ms, none = [place[3]] * count, [0] * count
        event = Carried(0, topic.id, place[0], end, list(seqs), times_ms, none, ends, b"", True, error.message)
        return Frame(event), False


def _seq_after(topic: Topic, entry: SegmentIndex) -> int:
    at = topic.frame_index.index(entry) + 1
    return topic.frame_index[at].firsts[0] if at < len(topic.frame_index) else topic.head_seq + 1


def _alive(topic: Topic, entry: SegmentIndex, index: int) -> list[int]:
    """Return the runs of live seqs of frame ``index``."""
    end = entry.firsts[index + 1] if index + 1 < len(entry.firsts) else _seq_after(topic, entry)
    return topic.live_runs(entry.firsts[index], end)


def fits(topic: Topic, first: Taken, place: FramePlace, frame: Frame, *, now_ms: int) -> bool:
    """Return whether a frame may be merged with others: of the same layout, lost with lost, and of about one age.

    A frame has the age of its youngest record. The age is compared with the oldest record: from neighbour to neighbour,
    and from one rewrite to the next, the differences would add up.
    """
    if (first[1].plain, first[1].lost is None) != (frame.plain, frame.lost is None):
        return False
    oldest_ms = first[0][3] if first[1].ats_ms is None else first[1].ats_ms[0]
    return place[3] - oldest_ms <= merged_spread_ms(topic, now_ms - oldest_ms)


def merged_spread_ms(topic: Topic, age_ms: int) -> int:
    """Return by how much younger than its oldest record, of that age, the youngest of a merged frame may be.

    With a TTL all of the frame is evicted that much later than its oldest record should be; and it bounds how much too
    young the next job of a queue is shown. As it grows with the age, there are few frames, however many the ages.
    """
    spread_ms = age_ms // _SPREAD_PARTS
    if topic.config.ttl_ms:
        spread_ms = min(spread_ms, topic.config.ttl_ms // _SPREAD_PARTS)
    return max(_SPREAD_MS, spread_ms)


def carried(now_ms: int, topic: Topic, taken: list[Taken], *, lo: int, hi: int) -> Carried:
    """Return the event that rewrites the wanted records of frames of one layout as one frame for ``[lo, hi)``.

    Where their payload is lost, the first frame says why.
    """
    seqs: list[int] = []
    ats_ms: list[int] = []
    tss_ms: list[int] = []
    ends = array("I")
    blobs: list[bytes] = []
    for place, frame, runs in taken:
        table = frame.table
        span = table.between(runs[0], runs[-2] + runs[-1])
        if not span:
            continue
        base, payload = table.start(span.start), frame.payload(span)  # one read, however many runs there are
        for start, n in zip(runs[::2], runs[1::2], strict=True):
            chosen = table.between(start, start + n)
            if not chosen:
                continue
            begin, stops = table.start(chosen.start), table.ends[chosen.start : chosen.stop]
            moved = (ends[-1] if ends else 0) - begin
            ends.extend([stop + moved for stop in stops])
            seqs += [table.seq(index) for index in chosen]
            ats_ms += [place[3]] * len(chosen) if frame.ats_ms is None else frame.ats_ms[chosen.start : chosen.stop]
            tss_ms += [frame.ts_ms] * len(chosen) if frame.tss_ms is None else frame.tss_ms[chosen.start : chosen.stop]
            blobs.append(payload[begin - base : stops[-1] - base])
    first = taken[0][1]
    return Carried(
        now_ms, topic.id, lo, hi, seqs, ats_ms, tss_ms, ends.tobytes(), b"".join(blobs), first.plain, first.lost
    )
