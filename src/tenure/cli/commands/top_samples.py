"""`Sampler`: take samples of a server for `tenure top`, and compute the rates between them.

A queue's ``in`` and ``out`` are computed per queue: how far its head moved, and how many records left it (acked,
dead-lettered, deleted, evicted). Claims and acks are counted by the server as a whole. The first 5,000 topics of the
prefix are sampled.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.cli.commands.topics import each_topic

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import TopicInfo

__all__ = ["SORTS", "Row", "Sample", "Sampler"]

_DEPTHS_MAX: Final = 24
_TOPICS_MAX: Final = 5_000
_TOTALS: Final = ("produced", "claimed", "acked", "nacked", "expired", "lost", "returned", "dead_lettered")
_TOTAL: Final = re.compile(rf"^tenure_({'|'.join(_TOTALS)})_total (\S+)$", re.MULTILINE)


class Row(msgspec.Struct):
    """One queue now; rates are per second, None where there is no earlier sample to compare with. ``suspects`` are
    those of the ready jobs whose worker was lost.
    """

    topic: str
    ready: int
    suspects: int
    in_flight: int
    delayed: int
    dead: int
    oldest_ms: int | None
    in_rate: float | None
    out_rate: float | None
    depths: list[int]


SORTS: Final[dict[str, Any]] = {
    "ready": lambda row: (-row.ready, row.topic),
    "rate": lambda row: (-(row.in_rate or 0) - (row.out_rate or 0), -row.ready, row.topic),
    "oldest": lambda row: (-(row.oldest_ms or 0), row.topic),
    "name": lambda row: row.topic,
}


class Sample(msgspec.Struct):
    """The server now: rates and totals over all queues, and its queues. Totals count since the server was started."""

    uptime_ms: int
    version: str
    restarted: bool
    rates: dict[str, float | None]
    totals: dict[str, int]
    queues: list[Row]


class _Before(msgspec.Struct):
    at_s: float
    started_ms: int
    totals: dict[str, float]
    topics: dict[str, tuple[int, int]]


class Sampler:
    """Samples a server, and keeps the last sample and the last depths of each queue."""

    def __init__(self, client: Client, *, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._before: _Before | None = None
        self._depths: dict[str, deque[int]] = {}

    def take(self, now_s: float) -> Sample:
        """Take one sample. Raises what the client raises; the next one is compared with the last that succeeded."""
        health = self._client.health()
        totals = {name: float(value) for name, value in _TOTAL.findall(self._client.metrics())}
        topics = islice(each_topic(self._client, self._prefix), _TOPICS_MAX)
        infos = [info for info in topics if info.queue is not None]
        before = self._before
        restarted = before is not None and health.started_ms != before.started_ms
        span_s = now_s - before.at_s if before is not None and not restarted else 0.0
        rates = {
            name: _rate(totals.get(name, 0.0), before.totals.get(name), span_s) if before else None for name in _TOTALS
        }
        rows = [self._row(info, before.topics.get(info.topic) if before else None, span_s) for info in infos]
        for gone in self._depths.keys() - {info.topic for info in infos}:
            del self._depths[gone]
        seen = {info.topic: (info.head_seq, info.head_seq - info.count) for info in infos}
        self._before = _Before(now_s, health.started_ms, totals, seen)
        whole = {name: int(totals.get(name, 0)) for name in _TOTALS}
        return Sample(health.uptime_ms, health.version, restarted, rates, whole, rows)

    def _row(self, info: TopicInfo, before: tuple[int, int] | None, span_s: float) -> Row:
        queue = info.queue
        assert queue is not None
        depths = self._depths.setdefault(info.topic, deque(maxlen=_DEPTHS_MAX))
        depths.append(queue.ready + queue.in_flight + queue.delayed)
        came, went = before if before is not None else (None, None)
        return Row(
            info.topic,
            queue.ready,
            queue.suspects,
            queue.in_flight,
            queue.delayed,
            queue.dead,
            queue.oldest_ready_ms if queue.ready else None,
            _rate(info.head_seq, came, span_s),
            _rate(info.head_seq - info.count, went, span_s),
            list(depths),
        )


def _rate(now: float, before: float | None, span_s: float) -> float | None:
    """Return a rate per second, or None where it is unknown. The counts of a queue that was created again are lower."""
    if before is None or span_s <= 0 or now < before:
        return None
    return round((now - before) / span_s, 1)
