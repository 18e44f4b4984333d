"""Replies to appends, reads and deletes of records."""

from __future__ import annotations

import msgspec

from tenure.contract.records import Stored
from tenure.contract.replies.raw import SERVER, MaybeRaw

__all__ = ["DeletedRecords", "Diff", "Difference", "Produced", "ReadRecord", "Tombstone"]


class Produced(msgspec.Struct, frozen=True, gc=False):
    """Where records went. ``deduped`` means that they were there already and nothing was appended."""

    topic: str
    first_seq: int
    last_seq: int
    count: int
    created: bool = False
    deduped: bool = False
    head_seq: int = 0

    @property
    def seqs(self) -> range:
        """The seqs, in the order of the records."""
        return range(self.first_seq, self.last_seq + 1)


class Tombstone(msgspec.Struct, frozen=True):
    """Records that a reader missed although no caller removed them. ``topic`` is given on a watch."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0
    topic: str = ""


class Difference(msgspec.Struct, frozen=True):
    """Records that a read found above its cursor, as the broker returns them: each as it is stored.

    `Diff` is the same reply as a client decodes it. The server writes one from the other without parsing ``data``.
    """

    topic: str
    records: list[Stored]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class ReadRecord(msgspec.Struct, frozen=True, gc=False, rename=SERVER):
    """A record as a reader sees it; ``data`` is None only where a watch asked for none."""

    seq: int
    ts: int
    data: MaybeRaw = None
    node: str | None = None
    tag: str | None = None
    meta: MaybeRaw = None


class Diff(msgspec.Struct, frozen=True):
    """Records that a read found above its cursor, as a client decodes them; continue from ``next_from_seq``."""

    topic: str
    records: list[ReadRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None = None
    lag: int = 0


class DeletedRecords(msgspec.Struct, frozen=True):
    """How many records a delete removed, and what is left."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
