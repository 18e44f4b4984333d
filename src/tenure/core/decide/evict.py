"""Evict records over a cap or a TTL: the oldest first, never one that is held or parked.

Eviction is part of decisions about something else, so it never fails: where the log takes no event now, a later command
evicts. One decision looks at a bounded number of records. Where more have to go, their topic is behind, and the broker
evicts the others in later turns of its loop; a claim waits for that, because it must not hand out an expired record.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress

from tenure.core.decide.decision import Payloads, Steps, present
from tenure.core.events import Evicted
from tenure.core.state.queue import NEVER
from tenure.core.state.ranges import first_absent, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

__all__ = ["evict_over_cap", "evict_over_ttl", "expired_before"]

_WINDOW = 256


def evict_over_cap(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[bool]:
    """Evict the oldest free records while a topic that discards old ones is over a cap; the newest one always stays.

    Return whether nothing is left to do, or nothing can be done now; else the topic is behind.
    """
    config = topic.config
    if config.discard != "old" or not (config.cap_records or config.cap_bytes):
        return True
    with suppress(TenureError):
        if not (yield from present(topic, now_ms)):  # a lease that has run out protects nothing
            return False
        records = max(topic.count - config.cap_records, 0) if config.cap_records else 0
        size = max(topic.bytes - config.cap_bytes, 0) if config.cap_bytes else 0
        if not records and not size:
            return True
        found, reached = _look(state, topic, payloads, topic.head_seq, records=records, size=size)
        if found:
            yield [_evicted(topic, now_ms, found, "cap")]
        topic.evict_from = max(topic.evict_from, reached)
        if reached < topic.head_seq and _is_over_cap(topic):
            state.behind[topic] = None
            return False
    return True


def _is_over_cap(topic: Topic) -> bool:
    config = topic.config
    return 0 < config.cap_records < topic.count or 0 < config.cap_bytes < topic.bytes


def evict_over_ttl(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[bool]:
    """Evict free records older than the topic's TTL, as many as one step does.

    Return whether none is left; else the topic is behind. A log that takes no writes keeps them until it does.
    """
    if not topic.config.ttl_ms or not topic.count:
        return True
    with suppress(TenureError):
        if not (yield from present(topic, now_ms)):
            return False
        end = expired_before(topic, now_ms)
        if topic.evict_from >= end:
            return True
        found, reached = _look(state, topic, payloads, end)
        if found:
            yield [_evicted(topic, now_ms, found, "ttl")]
        topic.evict_from = max(topic.evict_from, reached)
        if reached < end:
            state.behind[topic] = None
            return False
    return True


def _evicted(topic: Topic, now_ms: int, found: list[tuple[int, int]], reason: str) -> Evicted:
    seqs, freed = [seq for seq, _ in found], sum(size for _, size in found)
    return Evicted(now_ms, topic.id, to_runs(seqs), len(seqs), freed, reason)


def expired_before(topic: Topic, now_ms: int) -> int:
    """Return the first seq that is not older than the topic's TTL."""
    return _older_than(topic, now_ms - topic.config.ttl_ms) if topic.config.ttl_ms else topic.floor


def _older_than(topic: Topic, limit_ms: int) -> int:
    """Return the first seq that was appended after ``limit_ms``."""
    end = topic.floor
    for at, entry in enumerate(topic.frame_index):
        index = bisect_right(entry.times_ms, limit_ms)
        if index == len(entry.times_ms):
            end = topic.frame_index[at + 1].firsts[0] if at + 1 < len(topic.frame_index) else topic.head_seq + 1
            continue
        return max(end, entry.firsts[index]) if index else end
    return end


def _look(
    state: State, topic: Topic, payloads: Payloads, end: int, *, records: int = 0, size: int = 0
) -> tuple[list[tuple[int, int]], int]:
    """Look at the seqs below ``end``, from the oldest that may be free on, as many as one step does.

    Return (seq, bytes) of the live ones that are neither held nor parked, and the seq before which no other is free.
    With ``records`` or ``size``, stop after so many of them, and so many bytes.
    """
    in_flight, parked = (topic.queue.in_flight, topic.queue.parked) if topic.queue is not None else ({}, {})
    found: list[tuple[int, int]] = []
    lo, looks, freed = max(topic.evict_from, topic.floor), state.step_jobs_max or NEVER, 0
    while lo < end and looks > 0:
        lo = first_absent(topic.dead, lo) if topic.dead else lo
        hi = min(lo + min(looks, _WINDOW), end)
        for seq, weight in payloads.sizes(topic, lo, hi):
            if (records or size) and len(found) >= records and freed >= size:
                return found, seq
            if seq not in in_flight and seq not in parked:
                found.append((seq, weight))
                freed += weight
        lo, looks = hi, looks - _WINDOW
    return found, lo
