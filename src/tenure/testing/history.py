"""`History`: record what clients saw of a queue, for ``check_history``.

Rows are plain: several processes can write them, each to a file of JSON lines, and they are joined later. Every payload
carries an id of its own, which is looked for at the other end. Times are milliseconds of one clock.

How to record, so that no false anomaly is reported:

- A call's row has the time at which it was *sent*; a delivery's has the claim's own time, which is the answered
  deadline less the lease's duration (an answer may arrive late, and others may have claimed the job since). With
  ``leases_durable`` the deadline may have been moved by then: take the time of the answer where that is earlier.
- A call whose answer never came is ``unknown``: it counts as done wherever that excuses something, and as not done
  wherever that does. A produce that was only invoked is the same.
- Record the end: the claims and acks of a last drain, or what ``remaining`` finds. A job that is nowhere is lost.
- An answered produce may name its producer and its seqs: the seqs of one producer, which sends one call at a time, must
  rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

__all__ = ["Call", "Delivery", "End", "History", "Mark", "Outcome", "Row", "Watched"]

Outcome = Literal["invoke", "ok", "unknown", "fail"]


class Call(msgspec.Struct, frozen=True, tag="produce"):
    """A produce of payloads: first ``invoke``, then its outcome, with the seqs that were answered."""

    ids: list[str]
    outcome: Outcome
    at: int = 0
    topic: str = ""
    by: str = ""
    seqs: list[int] = []


class Watched(msgspec.Struct, frozen=True, tag="watched"):
    """Records that one reader of a topic saw, in their order. Nothing may be removed from the topic meanwhile."""

    by: str
    topic: str
    seqs: list[int]
    ids: list[str]


class Delivery(msgspec.Struct, frozen=True, tag="delivery"):
    """A job in a claim's answer, held by ``node`` from ``at`` until ``deadline`` has passed. ``tries`` is how many of
    its ``deliveries`` count, this one among them; 0 where all of them do.
    """

    topic: str
    seq: int
    id: str
    lease: str
    node: str
    deliveries: int
    at: int
    deadline: int
    tries: int = 0


class End(msgspec.Struct, frozen=True, tag="settle"):
    """An ack, a nack, a release (the worker's connection went away) or an extend of one job under one lease."""

    what: Literal["ack", "nack", "release", "extend"]
    topic: str
    seq: int
    lease: str
    outcome: Outcome
    at: int
    deadline: int = 0


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """A fact about payloads, or (``power_loss``) about everything.

    ``dead_letter``: seen in a dead-letter topic, after so many ``tries`` each where they are known. ``redriven``:
    put back to work, under a new seq. ``removed``: deleted or evicted on request. ``remaining``: still in the queue at
    the end.
    """

    what: Literal["dead_letter", "redriven", "removed", "remaining", "power_loss"]
    ids: list[str] = []
    at: int = 0
    tries: list[int] = []


Row = Call | Delivery | End | Mark | Watched

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Row).decode


class History:
    """Rows in the order in which they were recorded.

    >>> from tenure.testing import History, check_history
    >>> history = History()
    >>> history.produce(["a"], "invoke")
    >>> history.produce(["a"], "ok")
    >>> check_history(history).lost
    ['a']
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: list[Row] = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def produce(
        self,
        ids: Iterable[str],
        outcome: Outcome,
        *,
        at: int = 0,
        topic: str = "",
        by: str = "",
        seqs: Iterable[int] = (),
    ) -> None:
        """Record that payloads are about to be sent (``invoke``), or the answer.

        ``fail`` is for an error after which nothing was appended. Payloads of one call are appended all or none.
        """
        self.rows.append(Call(list(ids), outcome, at, topic, by, list(seqs)))

    def watched(self, topic: str, seqs: Iterable[int], ids: Iterable[str], *, by: str) -> None:
        """Record what a watch, or a reader by ``diff``, returned next."""
        self.rows.append(Watched(by, topic, list(seqs), list(ids)))

    def delivery(
        self,
        topic: str,
        seq: int,
        id: str,
        *,
        lease: str,
        node: str,
        deliveries: int,
        at: int,
        deadline: int,
        tries: int = 0,
    ) -> None:
        """Record that a claim returned this job."""
        self.rows.append(Delivery(topic, seq, id, lease, node, deliveries, at, deadline, tries))

    def ack(self, topic: str, seq: int, *, lease: str, outcome: Outcome, at: int) -> None:
        """Record an ack: ``ok`` where the job was counted, ``fail`` where it was skipped."""
        self.rows.append(End("ack", topic, seq, lease, outcome, at))

    def nack(self, topic: str, seq: int, *, lease: str, outcome: Outcome, at: int) -> None:
        """Record a nack."""
        self.rows.append(End("nack", topic, seq, lease, outcome, at))

    def release(self, topic: str, seq: int, *, lease: str, at: int) -> None:
        """Record that the connection of this delivery was closed: the broker may have given the job back."""
        self.rows.append(End("release", topic, seq, lease, "unknown", at))

    def extend(self, topic: str, seq: int, *, lease: str, outcome: Outcome, at: int, deadline: int) -> None:
        """Record an extend and the deadline that it asked for or got."""
        self.rows.append(End("extend", topic, seq, lease, outcome, at, deadline))

    def dead_letters(self, ids: Iterable[str], *, at: int = 0, tries: Iterable[int] = ()) -> None:
        """Record payloads found in a dead-letter topic, and how often each was tried: its deliveries, where all of them
        count. 0 is for not known.
        """
        self.rows.append(Mark("dead_letter", list(ids), at, list(tries)))

    def redriven(self, ids: Iterable[str], *, at: int = 0) -> None:
        """Record dead letters that were redriven: they may appear once more, under a new seq."""
        self.rows.append(Mark("redriven", list(ids), at))

    def removed(self, ids: Iterable[str], *, at: int = 0) -> None:
        """Record payloads that were deleted or evicted on request."""
        self.rows.append(Mark("removed", list(ids), at))

    def remaining(self, ids: Iterable[str], *, at: int = 0) -> None:
        """Record payloads that are still in the queue at the end."""
        self.rows.append(Mark("remaining", list(ids), at))

    def power_loss(self, *, at: int) -> None:
        """Record a power loss without ``leases_durable``: earlier leases and delivery counts may be lost.

        Acks that were not synced may be too: record those as ``unknown``.
        """
        self.rows.append(Mark("power_loss", [], at))

    def to_lines(self) -> bytes:
        """Return the rows as JSON lines."""
        return b"".join(_encode(row) + b"\n" for row in self.rows)

    @classmethod
    def from_lines(cls, *parts: bytes) -> History:
        """Return the history in these JSON lines; a last line cut by a kill is left out."""
        rows: list[Row] = []
        for part in parts:
            rows += [_decode(line) for line in part.split(b"\n")[:-1]]
        return cls(rows)
