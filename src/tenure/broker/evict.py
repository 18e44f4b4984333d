"""Caps and TTLs that an owner set: the oldest records go first, but never one that somebody holds or that is parked.

Eviction rides along with commands that have done, or will do, something else, so it never raises: what a log cannot
take in now is evicted by a later command.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from tenure.broker.engine import Engine
from tenure.core.events import Evicted
from tenure.core.ranges import to_runs
from tenure.core.topic import Topic
from tenure.errors import TenureError

__all__ = ["evict_over_cap", "evict_over_ttl"]

_STEP_MAX = 10_000


def evict_over_cap(engine: Engine, topic: Topic, now: int) -> None:
    """Evict the oldest free records while the topic is over a cap and discards old ones; the newest record always
    stays.
    """
    if topic.config.discard == "old":
        with suppress(TenureError):
            _evict_over_cap(engine, topic, now)


def _evict_over_cap(engine: Engine, topic: Topic, now: int) -> None:
    config = topic.config
    engine.pass_time(topic, now)  # a lease that has run out protects nothing
    while True:
        records = max(topic.count - config.cap_records, 0) if config.cap_records else 0
        size = max(topic.bytes - config.cap_bytes, 0) if config.cap_bytes else 0
        if not records and not size:
            return
        seqs: list[int] = []
        freed = 0
        for seq, weight in _free(engine, topic, topic.evict_from, topic.head_seq):
            if (len(seqs) >= records and freed >= size) or len(seqs) == _STEP_MAX:
                break
            seqs.append(seq)
            freed += weight
        if not seqs:
            return
        _evict(engine, topic, seqs, freed, now=now, reason="cap")


def evict_over_ttl(engine: Engine, topic: Topic, now: int) -> None:
    """Evict the free records older than the topic's TTL. A log that takes no writes keeps them until it does."""
    if topic.config.ttl_ms and topic.count:
        with suppress(TenureError):
            _evict_over_ttl(engine, topic, now)


def _evict_over_ttl(engine: Engine, topic: Topic, now: int) -> None:
    engine.pass_time(topic, now)
    end = _older_than(topic, now - topic.config.ttl_ms)
    while topic.evict_from < end:
        found = list(islice(_free(engine, topic, topic.evict_from, end), _STEP_MAX))
        if found:
            _evict(engine, topic, [seq for seq, _ in found], sum(size for _, size in found), now=now, reason="ttl")
        if len(found) < _STEP_MAX:
            topic.evict_from = max(topic.evict_from, end)


def _older_than(topic: Topic, limit_ms: int) -> int:
    """The first seq that was appended after ``limit_ms``."""
    end = topic.floor
    for at, piece in enumerate(topic.pieces):
        index = bisect_right(piece.times, limit_ms)
        if index == len(piece.times):
            end = topic.pieces[at + 1].firsts[0] if at + 1 < len(topic.pieces) else topic.head_seq + 1
            continue
        return max(end, piece.firsts[index]) if index else end
    return end


def _free(engine: Engine, topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Live records that nobody holds and that are not parked, with their sizes, from the oldest on."""
    in_flight, parked = (topic.queue.in_flight, topic.queue.parked) if topic.queue is not None else ({}, {})
    for seq, size in engine.reader.sizes(topic, max(lo, topic.floor), hi):
        if seq not in in_flight and seq not in parked:
            yield seq, size


def _evict(engine: Engine, topic: Topic, seqs: list[int], size: int, *, now: int, reason: str) -> None:
    event = Evicted(now, topic.id, to_runs(seqs), len(seqs), size, reason)
    engine.commit(event, topic.id, urgent=True)
    engine.metrics.evicted += len(seqs)
