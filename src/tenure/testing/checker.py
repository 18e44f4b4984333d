"""``check_history``: find anomalies of a queue in the history of its clients.

It checks what Jepsen checks in queues (lost, unexpected, duplicated) and what leases add: an acknowledged ack that is
undone, and two workers that hold one job at the same time. An operation whose outcome is unknown counts both ways, so
only certain anomalies are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from tenure.testing.history import Call, Delivery, End, History, Mark

__all__ = ["HistoryReport", "check_history"]

_SHOWN_MAX = 8
_Job = tuple[str, int]


class HistoryReport(msgspec.Struct, frozen=True):
    """The result of a check. Everything but the three totals is an anomaly.

    ``lost_*`` are payloads whose produce was acknowledged and that were never seen again, by their place in the order
    of acknowledged produces: a lost prefix points to a log cut at its start, a postfix to a lost tail. ``vanished``
    were delivered but never acked, and are not there at the end. The others are sentences.
    """

    produced: int = 0
    delivered: int = 0
    acked: int = 0
    lost_prefix: list[str] = []
    lost_middle: list[str] = []
    lost_postfix: list[str] = []
    vanished: list[str] = []
    unexpected: list[str] = []
    duplicated: list[str] = []
    undone: list[str] = []
    overlapping: list[str] = []

    @property
    def lost(self) -> list[str]:
        """Everything lost, in the order it was produced."""
        return self.lost_prefix + self.lost_middle + self.lost_postfix

    @property
    def anomalies(self) -> dict[str, list[str]]:
        """The anomalies by kind; only kinds that occurred."""
        kinds = (
            ("lost prefix", self.lost_prefix),
            ("lost middle", self.lost_middle),
            ("lost postfix", self.lost_postfix),
            ("vanished", self.vanished),
            ("unexpected", self.unexpected),
            ("duplicated without redelivery", self.duplicated),
            ("undone ack", self.undone),
            ("overlapping leases", self.overlapping),
        )
        return {kind: found for kind, found in kinds if found}

    @property
    def ok(self) -> bool:
        """Whether there is no anomaly."""
        return not self.anomalies

    def __str__(self) -> str:
        head = f"{self.produced} acknowledged produces, {self.delivered} deliveries, {self.acked} acks"
        if self.ok:
            return f"{head}: no anomaly"
        lines = [f"{head}:"]
        for kind, found in self.anomalies.items():
            lines.append(f"  {kind}: {len(found)}")
            lines += [f"    {item}" for item in found[:_SHOWN_MAX]]
            if len(found) > _SHOWN_MAX:
                lines.append(f"    … and {len(found) - _SHOWN_MAX} more")
        return "\n".join(lines)


def check_history(history: History) -> HistoryReport:
    """Look for lost, unexpected and duplicated jobs, undone acks and overlapping leases."""
    seen = _Seen(history)
    prefix, middle, postfix = _lost(seen)
    return HistoryReport(
        produced=len(seen.acknowledged),
        delivered=len(seen.deliveries),
        acked=len(seen.acks),
        lost_prefix=prefix,
        lost_middle=middle,
        lost_postfix=postfix,
        vanished=_vanished(seen),
        unexpected=_unexpected(seen),
        duplicated=_duplicated(seen),
        undone=_undone(seen),
        overlapping=_overlapping(seen),
    )


class _Seen:
    """The rows, sorted for each check."""

    def __init__(self, history: History) -> None:
        self.sent: set[str] = set()
        self.failed: set[str] = set()
        self.acknowledged: dict[str, None] = {}
        self.deliveries: list[Delivery] = []
        self.ends: dict[tuple[_Job, str], list[End]] = defaultdict(list)
        self.acks: list[End] = []
        self.marked: dict[str, set[str]] = defaultdict(set)
        self.losses: list[int] = []
        for row in history:
            match row:
                case Call():
                    self._call(row)
                case Delivery():
                    self.deliveries.append(row)
                case End() if row.outcome != "fail":
                    self._end(row)
                case End():
                    pass
                case Mark():
                    self.marked[row.what].update(row.ids)
                    if row.what == "power_loss":
                        self.losses.append(row.at)
        self.deliveries.sort(key=lambda delivery: (delivery.at, delivery.deliveries))
        self.by_job: dict[_Job, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            self.by_job[delivery.topic, delivery.seq].append(delivery)

    def _call(self, row: Call) -> None:
        if row.outcome == "fail":
            self.failed.update(row.ids)
            return
        self.sent.update(row.ids)
        self.failed.difference_update(row.ids)  # a later attempt with the same payloads
        if row.outcome == "ok":
            self.acknowledged.update(dict.fromkeys(row.ids))

    def _end(self, row: End) -> None:
        self.ends[(row.topic, row.seq), row.lease].append(row)
        if row.what == "ack" and row.outcome == "ok":
            self.acks.append(row)

    def era(self, at: int) -> int:
        """Return how many power losses came before a time."""
        return sum(loss <= at for loss in self.losses)

    def ended(self, delivery: Delivery) -> list[End]:
        """Return what was done under this delivery's lease, in order of time."""
        job = (delivery.topic, delivery.seq)
        return sorted(self.ends.get((job, delivery.lease), ()), key=lambda end: end.at)


def _lost(seen: _Seen) -> tuple[list[str], list[str], list[str]]:
    found = {delivery.id for delivery in seen.deliveries}
    for what in ("dead_letter", "removed", "remaining"):
        found |= seen.marked[what]
    order = list(seen.acknowledged)
    kept = [index for index, id in enumerate(order) if id in found]
    if not kept:
        return order, [], []
    first, last = kept[0], kept[-1]
    middle = [id for id in order[first:last] if id not in found]
    return order[:first], middle, order[last + 1 :]


def _vanished(seen: _Seen) -> list[str]:
    """Return delivered payloads without an ack that may have counted, which are nowhere at the end."""
    settled = seen.marked["dead_letter"] | seen.marked["removed"] | seen.marked["remaining"]
    settled |= {d.id for d in seen.deliveries if any(end.what == "ack" for end in seen.ended(d))}
    delivered = dict.fromkeys(delivery.id for delivery in seen.deliveries)
    return [id for id in delivered if id not in settled and id in seen.acknowledged]


def _unexpected(seen: _Seen) -> list[str]:
    found = []
    places = [(d.id, f"delivered as seq {d.seq} of {d.topic!r}") for d in seen.deliveries]
    for what in ("dead_letter", "remaining"):
        places += [(id, f"seen as {what.replace('_', ' ')}") for id in sorted(seen.marked[what])]
    for id, place in dict(places).items():
        if id in seen.failed:
            found.append(f"{id}: {place}, though its produce failed")
        elif id not in seen.sent:
            found.append(f"{id}: {place}, but never sent")
    for (topic, seq), deliveries in seen.by_job.items():
        ids = list(dict.fromkeys(delivery.id for delivery in deliveries))
        if len(ids) > 1:
            found.append(f"seq {seq} of {topic!r} was delivered as {' and as '.join(ids)}")
    return found


def _duplicated(seen: _Seen) -> list[str]:
    found = []
    for (topic, seq), deliveries in seen.by_job.items():
        for before, after in _neighbours(deliveries):
            if seen.era(before.at) != seen.era(after.at):
                continue  # a power loss may have set the counts back
            if after.deliveries <= before.deliveries:
                found.append(
                    f"{after.id} (seq {seq} of {topic!r}): delivery {after.deliveries} under {after.lease} at "
                    f"{after.at} follows delivery {before.deliveries} under {before.lease} at {before.at}"
                )
        if len({(d.lease, d.deliveries) for d in deliveries}) > len({d.lease for d in deliveries}):
            found.append(f"{deliveries[0].id} (seq {seq} of {topic!r}): one lease was answered with different counts")
    seqs: dict[tuple[str, str], set[int]] = defaultdict(set)
    for delivery in seen.deliveries:
        seqs[delivery.topic, delivery.id].add(delivery.seq)
    for (topic, id), places in seqs.items():
        if len(places) > 1 and id not in seen.marked["redriven"]:
            found.append(f"{id}: one payload became seqs {sorted(places)} of {topic!r}")
    return found


def _undone(seen: _Seen) -> list[str]:
    """Return jobs delivered, or counted, after their ack was acknowledged."""
    found = []
    for ack in seen.acks:
        deliveries = seen.by_job.get((ack.topic, ack.seq), [])
        mine = next((d for d in deliveries if d.lease == ack.lease), None)
        for other in deliveries:
            if other.lease == ack.lease:
                continue
            counted_later = mine is not None and other.deliveries > mine.deliveries
            if other.at > ack.at or (counted_later and seen.era(other.at) == seen.era(ack.at)):
                found.append(
                    f"{other.id} (seq {ack.seq} of {ack.topic!r}): acked under {ack.lease} at {ack.at}, "
                    f"delivered under {other.lease} at {other.at}"
                )
                break
    return found


def _overlapping(seen: _Seen) -> list[str]:
    found = []
    for (topic, seq), deliveries in seen.by_job.items():
        for before, after in _neighbours(deliveries):
            if seen.era(before.at) != seen.era(after.at):
                continue
            deadline, ended_at = _held_until(seen, before, after.at)
            if after.at <= deadline and (ended_at is None or after.at < ended_at):
                found.append(
                    f"{after.id} (seq {seq} of {topic!r}): {before.lease} of {before.node!r} runs until {deadline}, "
                    f"{after.lease} of {after.node!r} starts at {after.at}"
                )
    return found


def _held_until(seen: _Seen, delivery: Delivery, before_ms: int) -> tuple[int, int | None]:
    """Return the deadline that certainly holds at a time, and when the lease may have ended before it."""
    deadline = delivery.deadline
    for end in seen.ended(delivery):
        if end.at > before_ms:
            break
        if end.what != "extend":
            return deadline, end.at
        deadline = end.deadline if end.outcome == "ok" else min(deadline, end.deadline)
    return deadline, None


def _neighbours(deliveries: list[Delivery]) -> Iterable[tuple[Delivery, Delivery]]:
    """Pair every delivery of a job with the one before it; a repeated answer to one claim counts once."""
    distinct: dict[str, Delivery] = {}
    for delivery in deliveries:
        distinct.setdefault(delivery.lease, delivery)
    return pairwise(distinct.values())
