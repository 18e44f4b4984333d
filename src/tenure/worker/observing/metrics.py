"""The metrics of a worker: plain counters per queue, and their Prometheus families.

The runtime adds to plain integers; names, labels and text are made at the scrape. So counting costs a job next to
nothing, and prometheus-client is needed only for the page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tenure.worker.verdict import VerdictKind

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["QueueStats", "Stats", "StatsCollector", "TimeHistogram"]

HANDLER_BOUNDS_MS: Final = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
QUEUED_BOUNDS_MS: Final = (*HANDLER_BOUNDS_MS, 1_800_000, 7_200_000, 86_400_000)

_COUNTERS: Final = {
    "leases_lost": "Jobs whose lease was lost before their verdict was sent; somebody else runs them again.",
    "returned": "Jobs given back as not tried: prefetched or interrupted by a drain, or without a process to run them.",
    "suspects": "Jobs run here of which a worker was lost before.",
    "indeterminate": "Verdicts of which nobody can tell whether they arrived.",
    "heartbeats": "Requests that extended leases.",
    "reconnects": "Times the source of jobs had to be opened again.",
    "settlements": "Requests that carried acks or nacks.",
    "puts": "Jobs put through the app on its event loop.",
    "producer_batches": "Requests in which single puts went out together.",
    "ticks": "Ticks of the schedule that this worker was the first to fire.",
}
_GAUGES: Final = {
    "in_flight": "Jobs whose handler runs now.",
    "prefetched": "Jobs held on a lease whose handler has not begun.",
}
_HISTOGRAMS: Final = {
    "handler_ms": ("handler_seconds", "How long handlers ran."),
    "queued_ms": ("queue_seconds", "From a job's append to its handler, with the delay that its producer asked for."),
}


class TimeHistogram:
    """Durations in ms, counted by bucket; ``bounds_ms`` are upper limits, and one more bucket holds longer ones."""

    __slots__ = ("bounds_ms", "counts", "total_ms")

    def __init__(self, bounds_ms: tuple[float, ...]) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        self.total_ms = 0.0

    def observe(self, ms: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds_ms, ms)] += 1
        self.total_ms += ms


class QueueStats:
    """The numbers of one queue in this process. ``in_flight`` and ``prefetched`` go up and down, the rest only up."""

    __slots__ = (
        *("acked", "nacked", "rejected", "undecided", "in_flight", "prefetched", "leases_lost", "heartbeats"),
        *("indeterminate", "reconnects", "settlements", "puts", "producer_batches", "ticks", "handler_ms", "queued_ms"),
        *("returned", "suspects"),
    )

    def __init__(self) -> None:
        self.acked = self.nacked = self.rejected = self.undecided = 0
        self.in_flight = self.prefetched = self.leases_lost = self.heartbeats = self.indeterminate = 0
        self.reconnects = self.settlements = self.puts = self.producer_batches = self.ticks = 0
        self.returned = self.suspects = 0
        self.handler_ms = TimeHistogram(HANDLER_BOUNDS_MS)
        self.queued_ms = TimeHistogram(QUEUED_BOUNDS_MS)

    def handled(self, kind: VerdictKind | None, *, handler_ms: float) -> None:
        """Count one handler that has ended. None is a job without a verdict: lost, given back, or undecided."""
        if kind is VerdictKind.ACK:
            self.acked += 1
        elif kind is VerdictKind.NACK:
            self.nacked += 1
        elif kind is VerdictKind.REJECT:
            self.rejected += 1
        else:
            self.undecided += 1
        self.handler_ms.observe(handler_ms)


class Stats:
    """The numbers of one worker process, by queue. Bounded by the queues that its app declares."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[str, QueueStats] = {}

    def queue(self, name: str) -> QueueStats:
        """Return the numbers of one queue; the same object every time, so that a runner can keep it."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueStats()
        return found


class StatsCollector:
    """A prometheus-client collector over `Stats`; every number is read at the scrape."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield every metric family, each with a sample per queue."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        queues = sorted(self._stats.queues.items())
        jobs = CounterMetricFamily("tenure_worker_jobs", "Handlers that ended.", labels=("queue", "verdict"))
        for queue, numbers in queues:
            for verdict in ("ack", "nack", "reject", "none"):
                jobs.add_metric((queue, verdict), _by_verdict(numbers, verdict))
        yield jobs
        for name, about in _COUNTERS.items():
            counter = CounterMetricFamily(f"tenure_worker_{name}", about, labels=("queue",))
            for queue, numbers in queues:
                counter.add_metric((queue,), getattr(numbers, name))
            yield counter
        for name, about in _GAUGES.items():
            gauge = GaugeMetricFamily(f"tenure_worker_{name}", about, labels=("queue",))
            for queue, numbers in queues:
                gauge.add_metric((queue,), getattr(numbers, name))
            yield gauge
        for name, (shown, about) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"tenure_worker_{shown}", about, labels=("queue",))
            for queue, numbers in queues:
                histogram = getattr(numbers, name)
                family.add_metric((queue,), _buckets(histogram), sum_value=histogram.total_ms / 1000)
            yield family


def _by_verdict(numbers: QueueStats, verdict: str) -> int:
    match verdict:
        case "ack":
            return numbers.acked
        case "nack":
            return numbers.nacked
        case "reject":
            return numbers.rejected
        case _:
            return numbers.undecided


def _buckets(histogram: TimeHistogram) -> list[tuple[str, float]]:
    """Return cumulative counts by upper limit in seconds, as Prometheus takes them."""
    # Another thread counts: read one copy, so that the sums agree with each other.
    counts, seen, buckets = list(histogram.counts), 0, list[tuple[str, float]]()
    for bound_ms, count in zip((*histogram.bounds_ms, None), counts, strict=True):
        seen += count
        buckets.append(("+Inf" if bound_ms is None else str(bound_ms / 1000), seen))
    return buckets
