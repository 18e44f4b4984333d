"""Reading a part of a topic's log, page by page, with what is missing in it; one page is held at once.

Losses that the server reports are passed on in terms of the part that is read. Records that were deleted on purpose, or
acknowledged by a worker, are left out without a report, as in the contract of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from tenure.contract.replies import Diff, ReadRecord, Tombstone
from tenure.errors import Corrupt

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "Found", "Missed", "data_loss", "missed_in", "read_part", "split", "to_arrow"]

COLUMNS = (
    "seq BIGINT, ts TIMESTAMP, node STRING, tag STRING, meta STRING, payload BINARY, "
    "tombstone STRUCT<gap_from: BIGINT, gap_to: BIGINT, reason: STRING, missed: BIGINT>"
)
"""The columns of a reader, in Spark's form."""
_PAGE_RECORDS = 1_000
_ROWS_MAX = 10_000
_BYTES_MAX = 8 << 20
_RECORDS_PER_TASK = 10_000


class Missed(msgspec.Struct, frozen=True):
    """Records of a part that were lost, not deleted on purpose."""

    gap_from: int
    gap_to: int
    reason: str
    missed: int


Found = list[ReadRecord] | Missed


def missed_in(tombstone: Tombstone, first_seq: int, last_seq: int) -> Missed | None:
    """Return the loss by a tombstone among the seqs from ``first_seq`` to ``last_seq``; None if it is about others."""
    if tombstone.reason == "recreated":
        if tombstone.gap_to >= first_seq:
            return None  # seqs that a restore of a backup left out: no record of this log ever had one
        return Missed(first_seq, last_seq, tombstone.reason, last_seq - first_seq + 1)
    gap_from, gap_to = max(tombstone.gap_from, first_seq), min(tombstone.gap_to, last_seq)
    if gap_from > gap_to:
        return None
    whole = tombstone.reason == "source_trim"  # one place, where a router's source had lost records
    missed = tombstone.missed_estimate if whole else gap_to - gap_from + 1
    return Missed(gap_from, gap_to, tombstone.reason, missed)


def data_loss(topic: str, missed: Missed) -> Corrupt:
    """Make the error of a reader that must not miss anything."""
    return Corrupt(
        f"records {missed.gap_from} to {missed.gap_to} of {topic} are gone ({missed.reason}): read from a later seq, "
        "or set failOnDataLoss to false and find them as tombstones",
        code="data_lost",
        gap_from=missed.gap_from,
        gap_to=missed.gap_to,
        reason=missed.reason,
    )


def read_part(read: Callable[[int, int], Diff], first_seq: int, last_seq: int) -> Iterator[Found]:
    """Yield the records from ``first_seq`` to ``last_seq``, in order, and what is missing among them.

    ``read(from_seq, limit)`` returns a page above a seq.
    """
    at, trim_told = first_seq - 1, False
    while at < last_seq:
        page = read(at, _PAGE_RECORDS)
        if page.tombstone is not None:
            missed = missed_in(page.tombstone, at + 1, last_seq)
            trimmed = page.tombstone.reason == "source_trim"  # reported with every page below it
            if missed is not None and not (trimmed and trim_told):
                yield missed
            trim_told = trim_told or (trimmed and missed is not None)
            if missed is not None and page.tombstone.reason == "recreated":
                return
        if records := [record for record in page.records if record.seq <= last_seq]:
            yield records
        if page.next_from_seq <= at:  # the log ends before the part does: it was longer when the part was planned
            yield Missed(at + 1, last_seq, "recreated", last_seq - at)
            return
        at = page.next_from_seq


def split(first_seq: int, last_seq: int, *, parts_max: int) -> list[tuple[int, int]]:
    """Return contiguous parts of about the same length, and not more of them than are worth a task."""
    count = last_seq - first_seq + 1
    parts = max(1, min(parts_max, -(-count // _RECORDS_PER_TASK)))
    ends = [first_seq + count * part // parts for part in range(parts + 1)]
    return [(low, high - 1) for low, high in pairwise(ends) if low < high]


def to_arrow(found: Iterable[Found]) -> Iterator[pa.RecordBatch]:
    """Yield rows of `COLUMNS`, some thousands at a time. A loss is a row with a tombstone and without a payload."""
    rows: list[tuple[ReadRecord | None, Missed | None]] = []
    size_bytes = 0
    for item in found:
        if isinstance(item, Missed):
            rows.append((None, item))
        else:
            rows.extend((record, None) for record in item)
            size_bytes += sum(memoryview(record.data).nbytes for record in item if record.data is not None)
        if len(rows) >= _ROWS_MAX or size_bytes >= _BYTES_MAX:
            yield _batch(rows)
            rows, size_bytes = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[ReadRecord | None, Missed | None]]) -> pa.RecordBatch:
    import pyarrow as pa

    gap = pa.struct([("gap_from", pa.int64()), ("gap_to", pa.int64()), ("reason", pa.string()), ("missed", pa.int64())])
    records = [record for record, _ in rows]
    seqs = [record.seq if record is not None else lost.gap_to if lost is not None else None for record, lost in rows]
    columns = {
        "seq": pa.array(seqs, pa.int64()),
        "ts": pa.array([r and r.ts * 1_000 for r in records], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "node": pa.array([r and r.node for r in records], pa.string()),
        "tag": pa.array([r and r.tag for r in records], pa.string()),
        "meta": pa.array([r and r.meta and bytes(r.meta).decode() for r in records], pa.string()),
        "payload": pa.array([r and r.data and bytes(r.data) for r in records], pa.binary()),
        "tombstone": pa.array([lost and msgspec.structs.asdict(lost) for _, lost in rows], gap),
    }
    return pa.RecordBatch.from_pydict(columns)
