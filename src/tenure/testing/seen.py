"""`Seen`: the rows of a history, sorted for the rules of ``check_history``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from tenure.testing.history import Call, Delivery, End, History, Mark, Watched

__all__ = ["JobKey", "Place", "Seen", "neighbours"]

JobKey = tuple[str, int]


class Place(NamedTuple):
    """A payload at a seq of a topic, as an answer, a delivery or a watch named it."""

    topic: str
    seq: int
    id: str


class Seen:
    """The rows, sorted for each rule."""

    def __init__(self, history: History) -> None:
        self.sent: set[str] = set()
        self.failed: set[str] = set()
        self.acknowledged: dict[str, None] = {}
        self.calls: list[Call] = []
        self.watches: dict[tuple[str, str], list[Watched]] = defaultdict(list)
        self.places: dict[Place, None] = {}
        self.deliveries: list[Delivery] = []
        self.ends: dict[tuple[JobKey, str], list[End]] = defaultdict(list)
        self.acks: list[End] = []
        self.marked: dict[str, set[str]] = defaultdict(set)
        self.buried: dict[str, int] = {}
        self.losses: list[int] = []
        for row in history:
            match row:
                case Call():
                    self._call(row)
                case Watched():
                    self._watched(row)
                case Delivery():
                    self.deliveries.append(row)
                    self.places[Place(row.topic, row.seq, row.id)] = None
                case End() if row.outcome != "fail":
                    self._end(row)
                case End():
                    pass
                case Mark():
                    self._mark(row)
        self.deliveries.sort(key=lambda delivery: (delivery.at, delivery.deliveries))
        self.by_job: dict[JobKey, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            self.by_job[delivery.topic, delivery.seq].append(delivery)

    def _call(self, row: Call) -> None:
        self.calls.append(row)
        self._place(row.topic, row.seqs, row.ids)
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

    def _watched(self, row: Watched) -> None:
        self.watches[row.by, row.topic].append(row)
        self.marked["watched"].update(row.ids)
        self._place(row.topic, row.seqs, row.ids)

    def _mark(self, row: Mark) -> None:
        self.marked[row.what].update(row.ids)
        if row.what == "power_loss":
            self.losses.append(row.at)
        if row.what == "dead_letter":
            self.buried.update(zip(row.ids, row.tries, strict=False))

    def _place(self, topic: str, seqs: list[int], ids: list[str]) -> None:
        for seq, id in zip(seqs, ids, strict=False):
            self.places[Place(topic, seq, id)] = None

    @property
    def found(self) -> set[str]:
        """The payloads that were seen anywhere after they were sent."""
        found = {delivery.id for delivery in self.deliveries}
        return found.union(*(self.marked[what] for what in ("dead_letter", "removed", "remaining", "watched")))

    def era(self, at: int) -> int:
        """Return how many power losses came before a time."""
        return sum(loss <= at for loss in self.losses)

    def ended(self, delivery: Delivery) -> list[End]:
        """Return what was done under this delivery's lease, in order of time."""
        job = (delivery.topic, delivery.seq)
        return sorted(self.ends.get((job, delivery.lease), ()), key=lambda end: end.at)


def neighbours(deliveries: list[Delivery]) -> Iterable[tuple[Delivery, Delivery]]:
    """Pair every delivery of a job with the one before it; a repeated answer to one claim counts once."""
    distinct: dict[str, Delivery] = {}
    for delivery in deliveries:
        distinct.setdefault(delivery.lease, delivery)
    return pairwise(distinct.values())
