"""Backfill: replay a range that the buffer still keeps, without a group. It acknowledges and fences nothing.

The commits carry the sink's name, as those of the regular job do. So a table that holds a batch already is not given it
again, and a new table gets all of it, except what the group of the regular job has given up.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.collecting.quarantine import find_quarantined
from tenure.buffer.inspect import entries
from tenure.buffer.reading.lag import Lag
from tenure.buffer.settings import BufferSettings
from tenure.errors import Conflict, Invalid
from tenure.objects.background import background
from tenure.objects.store import ObjectStore, open_store
from tenure.spark.jobs.plan import Limits, Planned, take_fitting
from tenure.spark.jobs.range_writer import OnRange, RangeWriter, Summary, Transform, write_range
from tenure.spark.jobs.retrying import RETRY_MS, OnWait, Retrying, Stopped
from tenure.spark.reader.reader import RangeReader, ReaderName
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["Replay", "Retained", "backfill", "find_retained"]


def backfill(
    spark: SparkSession,
    buffer_url: str,
    sink: SparkSink,
    first: int | str,
    last: int | str,
    *,
    group: str = "default",
    transform: Transform | None = None,
    reader: ReaderName = "auto",
    limits: Limits | None = None,
    settings: ReaderSettings | None = None,
    on_range: OnRange | None = None,
    stop: threading.Event | None = None,
    retry_ms: int = RETRY_MS,
    on_wait: OnWait | None = None,
) -> Summary:
    """Bring the batches ``first`` to ``last``, both included, into the sink, except those that its table holds.

    Each end is a sequence, or a time in ISO 8601 (UTC where it names no zone): from the first batch that has an entry
    at or after it, to the last that has one at or before. Batches that ``group`` has given up are left out. Give a
    table to one backfill at a time, and not to a job of a group meanwhile. ``stop``, ``retry_ms`` and ``on_wait`` are
    those of ``ingest``. Raises Invalid (``range_gone``) where the buffer does not keep some of them, Conflict
    (``sink_moved``) where a gap would be left after what the table holds, and what ``ingest`` raises for batches and
    sink.
    """
    given = settings or ReaderSettings()
    source = RangeReader(spark, buffer_url, reader=reader, settings=given)
    writer = RangeWriter(spark, sink, source, transform=transform, on_range=on_range)
    retrying = Retrying(within_ms=retry_ms, stop=stop or threading.Event(), on_wait=on_wait)
    with suppress(Stopped):
        found = retrying(partial(find_retained, buffer_url, first, last, settings=given.buffer))
        if found is None:
            return writer.summary
        replay = Replay(buffer_url, found, group=group, limits=limits or Limits(), settings=given.buffer)
        held = retrying(partial(sink.last_committed, spark, found.buffer))
        begin = retrying(partial(replay.begin, held))
        passed_over = max(0, min(begin, found.high + 1) - found.low)
        writer.summary = msgspec.structs.replace(writer.summary, passed_over=passed_over)
        while begin <= found.high and not retrying.stop.is_set():
            began_s = time.monotonic()
            whole = retrying(partial(replay.planned, begin))
            planned = write_range(writer, retrying, whole, halve=replay.halve)
            begin = planned.high + 1
            writer.count(planned, began_s, Lag(found.high - planned.high, 0))
    return writer.summary


class Retained(NamedTuple):
    """The batches ``low`` to ``high`` of a buffer, both included, all of them kept."""

    buffer: str
    low: int
    high: int


def find_retained(
    url: str | ObjectStore, first: int | str, last: int | str, *, settings: BufferSettings | None = None
) -> Retained | None:
    """Return the batches from ``first`` to ``last`` as in ``backfill``; None where no batch is between two times.

    Raises Invalid for ends that are malformed, and (``range_gone``) for a sequence that is not kept.
    """
    low, high = _end(first), _end(last)
    match low, high:
        case (int(), int()) | (datetime(), datetime()) if low > high:  # type: ignore[operator]
            raise Invalid(f"{first} to {last} is not a range: it ends before it begins")
    found = background().run(_resolve(url, low, high, settings))
    for wanted in (low, high):
        if isinstance(wanted, int) and (found is None or not found.low <= wanted <= found.high):
            raise _gone(wanted)
    return found


async def _resolve(
    url: str | ObjectStore, low: int | datetime, high: int | datetime, settings: BufferSettings | None
) -> Retained | None:
    """Return what is kept between the two; times are compared with those of each batch's first and last entry."""
    buffer, lowest, highest = "", None, -1
    first = low if isinstance(low, int) else None
    async for each in entries(url, first, high + 1 if isinstance(high, int) else None, settings=settings):
        buffer = each.buffer_id
        if lowest is None and (isinstance(low, int) or each.last_ms >= _ms(low)):
            lowest = each.seq
        if isinstance(high, int) or each.first_ms <= _ms(high):
            highest = each.seq
    return None if lowest is None or highest < lowest else Retained(buffer, lowest, highest)


class Replay:
    """The ranges of a replay: consecutive, and without the batches that the group has given up."""

    def __init__(
        self, url: str | ObjectStore, kept: Retained, *, group: str, limits: Limits, settings: BufferSettings
    ) -> None:
        self._store = open_store(url) if isinstance(url, str) else url
        self._kept, self._limits, self._settings = kept, limits, settings
        self._group = group

    def begin(self, last: int | None) -> int:
        """Return the first batch that a table which ends with ``last`` lacks: the first range begins there.

        That is below the replay's own first batch where only batches that were given up lie between: a commit must
        follow the one before it. Raises Conflict (``sink_moved``) where any other batch does.
        """
        low = self._kept.low
        if last is None:
            return low
        if last < low - 1 and len(self._given_up(last + 1, low - 1)) < low - 1 - last:
            raise Conflict(
                f"the table holds batches up to {last}, and a replay from {low} on would leave a gap: begin at "
                f"{last + 1}, quarantine what lies between if it is lost, or write into a new table",
                code="sink_moved",
                last=last,
            )
        return last + 1

    def planned(self, begin: int) -> Planned:
        """Return the range that begins at ``begin``. Raises Invalid (``range_gone``) where it is not kept any more."""
        first = max(begin, self._kept.low)
        end = min(self._kept.high + 1, first + self._limits.batches_max)
        page = background().run(_list_descriptors(self._store, first, end, self._settings))
        if not page or page[0].seq != first:
            raise _gone(first)
        found = take_fitting(page, self._limits)
        high = found[-1].seq
        given_up = self._given_up(first, high)
        return Planned(self._kept.buffer, begin, high, tuple(each for each in found if each.seq not in given_up))

    def halve(self, planned: Planned) -> Planned:
        """Return the first half of a range that is too large for its table; later ranges are no larger."""
        half = planned.first_half()
        self._limits = self._limits.no_more_than(half)
        return half

    def _given_up(self, low: int, high: int) -> set[int]:
        return background().run(find_quarantined(self._store, low, high, group=self._group, settings=self._settings))


async def _list_descriptors(store: ObjectStore, low: int, end: int, settings: BufferSettings) -> list[Descriptor]:
    return [descriptor async for descriptor in entries(store, low, end, settings=settings)]


def _end(given: int | str) -> int | datetime:
    """Parse one end: a sequence or an instant."""
    if isinstance(given, int) or given.isdecimal():
        if (seq := int(given)) < 0:
            raise Invalid(f"{seq} is no sequence")
        return seq
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise Invalid(f"{given!r} is neither a sequence nor a time like 2026-01-31T08:00:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _gone(seq: int) -> Invalid:
    return Invalid(
        f"the buffer does not keep batch {seq}: it was acknowledged and deleted, or it is yet to come. Replay later "
        "ones; to have batches kept for replays, raise the buffer's retention (tenure buffer set --retain-for)",
        code="range_gone",
        seq=seq,
    )
