"""Records: where they went, and what a reader finds."""

from __future__ import annotations

import msgspec

from tenure.client.replies.raw import SERVER, MaybeRaw

__all__ = ["DeletedRecords", "Diff", "Produced", "ReadRecord", "Tombstone"]


class Produced(msgspec.Struct, frozen=True):
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


class ReadRecord(msgspec.Struct, frozen=True, gc=False, rename=SERVER):
    """A record as a reader sees it; ``data`` is None only where a watch asked for none."""

    seq: int
    ts: int
    data: MaybeRaw = None
    node: str | None = None
    tag: str | None = None
    meta: MaybeRaw = None


class Tombstone(msgspec.Struct, frozen=True):
    """Records that this reader missed and nobody asked to remove. ``topic`` is given on a watch."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0
    topic: str = ""


class Diff(msgspec.Struct, frozen=True):
    """What a read found above its cursor; go on from ``next_from_seq``."""

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
