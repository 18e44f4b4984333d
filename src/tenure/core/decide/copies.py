"""Copies: the event that appends records which the broker passes on by itself."""

from __future__ import annotations

from tenure.contract.records import Record
from tenure.core.events import Appended, AppendExtra
from tenure.core.records import pack
from tenure.core.state import State

__all__ = ["append_copies"]


def append_copies(
    state: State, topic_id: int, first_seq: int, records: list[Record], *, now_ms: int, moved_from: int = 0
) -> Appended:
    """Return the event that appends copies of records; ``moved_from`` is the topic that they leave."""
    packed = pack(records)
    tagged = any(record.tag is not None for record in records)
    extra = AppendExtra(tagged=tagged, moved_from=moved_from) if tagged or moved_from else None
    ts = now_ms + state.wall_offset_ms
    return Appended(now_ms, topic_id, ts, first_seq, packed.count, packed.ends, packed.blobs, packed.plain, extra)
