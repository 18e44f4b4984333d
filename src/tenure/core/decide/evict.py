"""Evict records over a cap or a TTL: the oldest first, never one that is held or parked.

Eviction is part of decisions about something else, so it never fails: where the log takes no event now, a later command
evicts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from tenure.core.decide.decision import Payloads, Steps
from tenure.core.events import Evicted
from tenure.core.state.ranges import to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

__all__ = ["evict_over_cap", "evict_over_ttl"]

_STEP_MAX = 10_000
"""How many records one step evicts at most."""


def evict_over_cap(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[None]:
    """Evict the oldest free records while a topic that discards old ones is over a cap; the newest one always stays."""
    if topic.config.discard == "old":
        with suppress(TenureError):
            yield from _over_cap(state, topic, now_ms, payloads)


def _over_cap(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[None]:
    config = topic.config
    state.pass_time(topic, now_ms)  # a lease that has run out protects nothing
    while True:
        records = max(topic.count - config.cap_records, 0) if config.cap_records else 0
        size = max(topic.bytes - config.cap_bytes, 0) if config.cap_bytes else 0
        if not records and not size:
            return
        seqs: list[int] = []
        freed = 0
        for seq, weight in _evictable(topic, payloads, topic.evict_from, topic.head_seq):
            if (len(seqs) >= records and freed >= size) or len(seqs) == _STEP_MAX:
                break
            seqs.append(seq)
            freed += weight
        if not seqs:
            return
        yield [Evicted(now_ms, topic.id, to_runs(seqs), len(seqs), freed, "cap")]


def evict_over_ttl(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[None]:
    """Evict the free records older than the topic's TTL. A log that takes no writes keeps them until it does."""
    if topic.config.ttl_ms and topic.count:
        with suppress(TenureError):
            yield from _over_ttl(state, topic, now_ms, payloads)


def _over_ttl(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[None]:
    state.pass_time(topic, now_ms)
    end = _older_than(topic, now_ms - topic.config.ttl_ms)
    while topic.evict_from < end:
        found = list(islice(_evictable(topic, payloads, topic.evict_from, end), _STEP_MAX))
        if found:
            seqs, freed = [seq for seq, _ in found], sum(size for _, size in found)
            yield [Evicted(now_ms, topic.id, to_runs(seqs), len(seqs), freed, "ttl")]
        if len(found) < _STEP_MAX:
            topic.evict_from = max(topic.evict_from, end)


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


def _evictable(topic: Topic, payloads: Payloads, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Return the live records that are neither held nor parked, with their sizes, from the oldest on."""
    in_flight, parked = (topic.queue.in_flight, topic.queue.parked) if topic.queue is not None else ({}, {})
    for seq, size in payloads.sizes(topic, max(lo, topic.floor), hi):
        if seq not in in_flight and seq not in parked:
            yield seq, size
