"""``check_history``: find anomalies of a queue in the history of its clients.

It checks what Jepsen checks in queues (lost, unexpected, duplicated, out of order, torn) and what leases add: an
acknowledged ack that is undone, two workers that hold one job at the same time, a dead letter at the wrong time. An
operation whose outcome is unknown counts both ways, so only certain anomalies are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from tenure.testing.history import Delivery, History
from tenure.testing.report import HistoryReport
from tenure.testing.seen import Seen, neighbours

__all__ = ["check_history"]


def check_history(history: History, *, deliveries_max: Mapping[str, int] | None = None) -> HistoryReport:
    """Look for anomalies of every kind that a report has.

    ``deliveries_max`` are the limits of queues with dead letters, by topic; without it, dead letters may come at any
    time. Leave a job that was nacked as dead out of the counts of dead letters.
    """
    seen = Seen(history)
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
        out_of_order=_out_of_order(seen),
        torn=_torn(seen),
        misburied=_misburied(seen, deliveries_max or {}),
    )


def _lost(seen: Seen) -> tuple[list[str], list[str], list[str]]:
    found = seen.found
    order = list(seen.acknowledged)
    kept = [index for index, id in enumerate(order) if id in found]
    if not kept:
        return order, [], []
    first, last = kept[0], kept[-1]
    middle = [id for id in order[first:last] if id not in found]
    return order[:first], middle, order[last + 1 :]


def _vanished(seen: Seen) -> list[str]:
    """Return delivered payloads without an ack that may have counted, which are nowhere at the end."""
    settled = seen.marked["dead_letter"] | seen.marked["removed"] | seen.marked["remaining"]
    settled |= {d.id for d in seen.deliveries if any(end.what == "ack" for end in seen.ended(d))}
    delivered = dict.fromkeys(delivery.id for delivery in seen.deliveries)
    return [id for id in delivered if id not in settled and id in seen.acknowledged]


def _unexpected(seen: Seen) -> list[str]:
    found = []
    places = [(d.id, f"delivered as seq {d.seq} of {d.topic!r}") for d in seen.deliveries]
    for what in ("dead_letter", "remaining", "watched"):
        places += [(id, f"seen as {what.replace('_', ' ')}") for id in sorted(seen.marked[what])]
    for id, place in dict(places).items():
        if id in seen.failed:
            found.append(f"{id}: {place}, though its produce failed")
        elif id not in seen.sent:
            found.append(f"{id}: {place}, but never sent")
    by_seq: dict[tuple[str, int], list[str]] = defaultdict(list)
    for topic, seq, id in seen.places:
        by_seq[topic, seq].append(id)
    found += [f"seq {seq} of {topic!r} was {' and '.join(ids)}" for (topic, seq), ids in by_seq.items() if len(ids) > 1]
    return found


def _duplicated(seen: Seen) -> list[str]:
    found = []
    for (topic, seq), deliveries in seen.by_job.items():
        for before, after in neighbours(deliveries):
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
    for topic, seq, id in seen.places:
        seqs[topic, id].add(seq)
    for (topic, id), places in seqs.items():
        if len(places) > 1 and id not in seen.marked["redriven"]:
            found.append(f"{id}: one payload became seqs {sorted(places)} of {topic!r}")
    return found


def _undone(seen: Seen) -> list[str]:
    """Return jobs delivered, counted, or still there after their ack was acknowledged."""
    found = []
    there = (seen.marked["dead_letter"] | seen.marked["remaining"]) - seen.marked["redriven"]
    for ack in seen.acks:
        deliveries = seen.by_job.get((ack.topic, ack.seq), [])
        mine = next((d for d in deliveries if d.lease == ack.lease), None)
        if mine is not None and mine.id in there:
            found.append(f"{mine.id} (seq {ack.seq} of {ack.topic!r}): acked under {ack.lease}, and there at the end")
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


def _overlapping(seen: Seen) -> list[str]:
    found = []
    for (topic, seq), deliveries in seen.by_job.items():
        for before, after in neighbours(deliveries):
            if seen.era(before.at) != seen.era(after.at):
                continue
            deadline, ended_at = _held_until(seen, before, after.at)
            if after.at <= deadline and (ended_at is None or after.at < ended_at):
                found.append(
                    f"{after.id} (seq {seq} of {topic!r}): {before.lease} of {before.node!r} runs until {deadline}, "
                    f"{after.lease} of {after.node!r} starts at {after.at}"
                )
    return found


def _held_until(seen: Seen, delivery: Delivery, before_ms: int) -> tuple[int, int | None]:
    """Return the deadline that certainly holds at a time, and when the lease may have ended before it."""
    deadline = delivery.deadline
    for end in seen.ended(delivery):
        if end.at > before_ms:
            break
        if end.what != "extend":
            return deadline, end.at
        deadline = end.deadline if end.outcome == "ok" else min(deadline, end.deadline)
    return deadline, None


def _out_of_order(seen: Seen) -> list[str]:
    """Return answers of one producer whose seqs do not rise, and reads that skip or repeat a seq."""
    found = []
    last: dict[tuple[str, str], int] = {}
    answered: set[str] = set()
    for call in seen.calls:
        if not call.seqs or answered.issuperset(call.ids):  # a repeated call is answered with its first seqs
            continue
        answered.update(call.ids)
        before = last.get((call.by, call.topic), 0)
        if len(call.seqs) != len(call.ids) or any(b <= a for a, b in pairwise([before, *call.seqs])):
            found.append(f"{call.ids[0]}: {call.by!r} was answered {call.seqs} of {call.topic!r} after {before}")
        last[call.by, call.topic] = max(call.seqs)
    for (by, topic), reads in seen.watches.items():
        seen_by = [pair for read in reads for pair in zip(read.seqs, read.ids, strict=True)]
        found += [
            f"{id}: {by!r} saw it, seq {b} of {topic!r}, after seq {a}"
            for (a, _), (b, id) in pairwise(seen_by)
            if b != a + 1
        ]
    return found


def _torn(seen: Seen) -> list[str]:
    """Return calls without an acknowledgement of which some payloads are there and some are not."""
    found, there = {}, seen.found
    for call in seen.calls:
        ids = set(call.ids)
        if ids.isdisjoint(seen.acknowledged) and not ids.isdisjoint(there) and not ids <= there:
            names = ", ".join(sorted(ids - there))
            found[names] = f"{min(ids & there)}: appended, but not {names} of the same call"
    return list(found.values())


def _misburied(seen: Seen, deliveries_max: Mapping[str, int]) -> list[str]:
    """Return jobs tried more often than allowed, and dead letters before the last try that is."""
    found, limits = [], {}
    for delivery in seen.deliveries:
        limit = deliveries_max.get(delivery.topic, 0)
        limits[delivery.id] = limit
        tries = delivery.tries or delivery.deliveries
        if limit and tries > limit:
            found.append(f"{delivery.id} (seq {delivery.seq} of {delivery.topic!r}): try {tries} of {limit}")
    limits |= {id: deliveries_max.get(call.topic, 0) for call in seen.calls if call.topic for id in call.ids}
    for id, count in seen.buried.items():
        limit = limits.get(id, 0)
        if limit and count and count != limit:
            found.append(f"{id}: a dead letter after {count} tries of {limit}")
    return found
