"""Histograms per queue since the broker was opened: time in the queue, processing time, deliveries.

They are kept in memory and never logged: they are about this process's time, and a restart starts them again. They see
each event before the fold does, while the state still shows which lease held a job since when. An event of a thousand
jobs is measured at a few of them, evenly spread and weighted, so that it costs what one of few jobs does. In the same
way a queue that has had a thousand jobs is measured at one in eight of those that come one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.contract.replies import Distribution, QueueMeters, WorstJob
from tenure.core.events import Acked, Claimed, Released
from tenure.core.state.frame_index import find
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each
from tenure.core.state.topic import Topic
from tenure.histogram import Histogram

__all__ = ["Meters", "QueueTotals"]

QUEUES_MAX: Final = 10_000
"""How many queues have numbers of their own, about 1 KiB each; the one that got them first gives them up first."""
TIME_BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000),
    *(300_000, 900_000, 3_600_000, 21_600_000, 86_400_000),
)
DELIVERY_BOUNDS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 20, 50)
_SAMPLES: Final = 8
_ALL_MEASURED: Final = 1_000
"""How many jobs of a queue are all measured, where they come one by one."""


class QueueTotals:
    """The numbers of one queue. ``worst`` is the job that was tried most often of late: (seq, tries)."""

    __slots__ = ("acked", "claimed", "deliveries", "in_queue_ms", "processing_ms", "released", "since", "worst")

    def __init__(self, since: int) -> None:
        self.since = since
        self.claimed = self.acked = self.released = 0
        self.in_queue_ms = Histogram(TIME_BOUNDS_MS)
        self.processing_ms = Histogram(TIME_BOUNDS_MS)
        self.deliveries = Histogram(DELIVERY_BOUNDS)
        self.worst = (0, 0)


class Meters:
    """The numbers of all queues, by topic id."""

    def __init__(self) -> None:
        self._queues: dict[int, QueueTotals] = {}

    def claimed(self, topic: Topic, event: Claimed) -> int:
        """Measure how long jobs waited for their first delivery, from the append on, and which came back most often.

        Returns how many jobs the event is about, as the others do.
        """
        queue, entries, runs = topic.queue, topic.frame_index, event.runs
        assert queue is not None
        meters, counts = self._queues.get(event.topic) or self._begin(event), queue.deliveries
        seen = meters.claimed
        if runs[1] == 1 and seen >= _ALL_MEASURED and seen % _SAMPLES and not counts and len(runs) == 2:
            meters.claimed = seen + 1
            return 1
        total, samples = _sample(runs, 0 if counts else seen)
        meters.claimed = seen + total
        for seq, weight in samples:
            if seq not in counts:
                at, index = find(entries, seq)
                meters.in_queue_ms.observe(max(event.at_ms - entries[at].times_ms[max(index, 0)], 0), weight)
            elif queue.tries(seq) + 1 >= meters.worst[1] or topic.is_dead(meters.worst[0]):
                meters.worst = (seq, queue.tries(seq) + 1)
        return total

    def acked(self, topic: Topic, event: Acked) -> int:
        """Measure how long work took, and how many deliveries."""
        queue, runs = topic.queue, event.runs
        assert queue is not None
        meters, counts = self._queues.get(event.topic) or self._begin(event), queue.deliveries
        seen = meters.acked
        if runs[1] == 1 and seen >= _ALL_MEASURED and seen % _SAMPLES and len(runs) == 2:
            meters.acked = seen + 1
            return 1
        total, samples = _sample(runs, seen)
        meters.acked = seen + total
        for seq, weight in samples:
            row = queue.in_flight.get(seq)
            if row is not None:
                meters.processing_ms.observe(event.at_ms - queue.leases.since_ms(row), weight)
                meters.deliveries.observe(counts.get(seq, 1), weight)
        return total

    def released(self, event: Released) -> int:
        """Count jobs that came back."""
        released = count(event.runs)
        meters = self._queues.get(event.topic) or self._begin(event)
        meters.released += released
        return released

    def forget(self, topic_id: int) -> None:
        """Drop the numbers of a queue that is gone."""
        self._queues.pop(topic_id, None)

    def _begin(self, event: Claimed | Acked | Released) -> QueueTotals:
        """Start the numbers of the queue of this event, its first."""
        if len(self._queues) >= QUEUES_MAX:
            del self._queues[next(iter(self._queues))]
        meters = self._queues[event.topic] = QueueTotals(event.at_ms)
        return meters

    def report(self, topic: Topic, queue: Queue, *, wall_offset_ms: int) -> QueueMeters:
        """Return the numbers of one queue; totals count jobs since ``since``, which is None before the first event."""
        totals = self._queues.get(topic.id)
        since = None if totals is None else totals.since + wall_offset_ms
        totals = totals or QueueTotals(0)
        if topic.is_dead(totals.worst[0]):
            totals.worst = (0, 0)
        seq, tries = totals.worst
        return QueueMeters(
            topic=topic.name,
            since=since,
            claimed=totals.claimed,
            acked=totals.acked,
            released=totals.released,
            expired=queue.expired,
            failed_before=len(queue.deliveries_ended),
            worst=WorstJob(seq, queue.deliveries.get(seq, tries), tries) if seq else None,
            in_queue_ms=_distribution(totals.in_queue_ms),
            processing_ms=_distribution(totals.processing_ms),
            deliveries=_distribution(totals.deliveries),
        )


def _sample(runs: list[int], seen: int) -> tuple[int, Sequence[tuple[int, int]]]:
    """Return how many seqs are in these runs, and a few of them, evenly spread, each with how many it stands for.

    ``seen`` counts the jobs before these: a single one after many stands for its neighbours, which are not measured.
    """
    if len(runs) == 2 and runs[1] == 1:
        return 1, ((runs[0], 1 if seen < _ALL_MEASURED else _SAMPLES),)
    total = count(runs)
    if total <= _SAMPLES:
        return total, [(seq, 1) for seq in each(runs)]
    wanted = [total * k // _SAMPLES for k in range(_SAMPLES + 1)]
    samples: list[tuple[int, int]] = []
    passed, k = 0, 0
    for i in range(0, len(runs), 2):
        lo, n = runs[i], runs[i + 1]
        while k < _SAMPLES and wanted[k] < passed + n:
            samples.append((lo + wanted[k] - passed, wanted[k + 1] - wanted[k]))
            k += 1
        passed += n
    return total, samples


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(
        bounds=list(histogram.bounds),
        counts=list(histogram.counts),
        count=histogram.count,
        sum=histogram.total,
        p50=histogram.quantile(0.5),
        p90=histogram.quantile(0.9),
        p99=histogram.quantile(0.99),
    )
