"""Records as a reader finds them."""

from __future__ import annotations

import msgspec

from tenure.client.replies.raw import SERVER, MaybeRaw

__all__ = ["Diff", "ReadRecord", "Tombstone"]


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
