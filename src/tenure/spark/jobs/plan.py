"""Planning: cut a group's batches into ranges, in the same way by every driver.

A range is one commit of the sink. Its end is decided once, durably, before anything is read: a driver that was given up
and its successor then carry the same identity, and a table recognises a repeat (docs/design/spark.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import msgspec

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.blocking import Consumer
from tenure.buffer.collecting.quarantine import find_quarantined
from tenure.buffer.ingest.sink import Commit
from tenure.buffer.manifest.range_plans import RangePlans
from tenure.buffer.reading.lag import Lag
from tenure.buffer.settings import BufferSettings
from tenure.errors import Conflict, Invalid
from tenure.limits import check_limits
from tenure.objects.background import background
from tenure.objects.store import ObjectStore, open_store

__all__ = ["Limits", "Plan", "Planned", "balance", "take_fitting"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one range; a range has at least one batch, of any size."""

    entries_max: int = 1_000_000
    """Entries of one range."""
    bytes_max: int = 1 << 30
    """Bytes of one range, as stored."""
    batches_max: int = 4_096
    """Batches of one range: the driver holds their descriptors."""

    def __post_init__(self) -> None:
        check_limits(self)

    def no_more_than(self, planned: Planned) -> Limits:
        """Return the limits lowered to the entries and bytes of a range, if it has any."""
        if not planned.descriptors:
            return self
        entries_max = min(self.entries_max, max(1, planned.entries))
        return Limits(
            entries_max=entries_max,
            bytes_max=min(self.bytes_max, max(1, planned.bytes)),
            batches_max=self.batches_max,
        )


class Named(Protocol):
    """A sink's part in a commit's identity."""

    name: str
    schema_version: int


class Planned(msgspec.Struct, frozen=True):
    """The batches ``low`` to ``high``, both included, of a buffer, except those that were given up."""

    buffer: str
    low: int
    high: int
    descriptors: tuple[Descriptor, ...]

    @classmethod
    def of(cls, descriptors: Sequence[Descriptor]) -> Planned:
        """Return the range of these consecutive batches, of which there is at least one."""
        return cls(descriptors[0].buffer_id, descriptors[0].seq, descriptors[-1].seq, tuple(descriptors))

    @property
    def entries(self) -> int:
        return sum(descriptor.entries for descriptor in self.descriptors)

    @property
    def bytes(self) -> int:
        return sum(descriptor.bytes for descriptor in self.descriptors)

    def first_half(self) -> Planned:
        """Return the batches up to the middle of the range, which has at least two: every driver gets the same half."""
        middle = (self.low + self.high) // 2
        kept = tuple(each for each in self.descriptors if each.seq <= middle)
        return Planned(self.buffer, self.low, middle, kept)

    def commit(self, sink: Named) -> Commit:
        """Return the identity under which the sink stores this range."""
        return Commit(self.buffer, sink.name, self.low, self.high, sink.schema_version)


class Plan:
    """A group's ranges, one after the other; opening a plan fences the group's consumer before it.

    ``last_committed`` is what the sink's table holds: the group continues right after it. None continues at its
    frontier. Raises NotFound, Corrupt, Conflict (``sink_behind``, ``sink_ahead``) where the table and the group
    contradict.
    """

    def __init__(
        self,
        url: str | ObjectStore,
        *,
        group: str = "default",
        last_committed: int | None = None,
        limits: Limits | None = None,
        settings: BufferSettings | None = None,
    ) -> None:
        self.group = group
        self.limits = limits or Limits()
        self._settings = settings or BufferSettings()
        self._store = store = open_store(url) if isinstance(url, str) else url
        self._consumer = _open_consumer(store, last_committed, group=group, settings=self._settings)
        self._cuts = RangePlans(store, self.buffer_id, group=group, settings=self._settings)
        self._cut_at: int | None = None
        # Right after the table's last one, also where batches that were given up lie between: a commit must follow it.
        self._begin = self.next_seq if last_committed is None else last_committed + 1
        background().run(self._cuts.forget_below(self._begin))

    @property
    def buffer_id(self) -> str:
        return self._consumer.buffer_id

    @property
    def next_seq(self) -> int:
        """Return the first batch that is not acknowledged: where the next range begins."""
        last = self._consumer.last_acked
        return 0 if last is None else last + 1

    @property
    def lag(self) -> Lag:
        """Return how far the group is behind, by the last read of the manifest."""
        return self._consumer.lag

    def next(self) -> Planned | None:
        """Return the range that begins right after what is acknowledged, or None where there is no batch yet.

        It is the same range again until it is acknowledged. Batches that the group has given up are left out of it, and
        where that is all of them the range is empty: the table passes it under the identity that was agreed on. Raises
        LeaseLost when fenced, Corrupt for a plan that is damaged.
        """
        low, first = self._begin, self.next_seq
        found = take_fitting(self._read(first, first + self.limits.batches_max), self.limits)
        if not found:
            return None
        high = background().run(self._cuts.agree(low, found[-1].seq))
        self._cut_at = low
        if high < first:  # every batch of the range was given up after its end was agreed on
            return Planned(self.buffer_id, low, high, ())
        if high != found[-1].seq:
            found = list(self.between(first, high).descriptors)
        bad = self.given_up(low, high)
        return Planned(self.buffer_id, low, high, tuple(each for each in found if each.seq not in bad))

    def halve(self, planned: Planned) -> Planned:
        """Return the first half of the range under way, once the end of the second half is decided.

        A driver that takes over between the two halves then plans the same second half. Ranges that are cut later are
        no larger than the half. Raises Corrupt for a plan that is damaged.
        """
        half = planned.first_half()
        background().run(self._cuts.agree(half.high + 1, planned.high))
        self.limits = self.limits.no_more_than(half)
        return half

    def between(self, low: int, high: int) -> Planned:
        """Return the batches ``low`` to ``high``, both included; they count as handed out, so they can be acknowledged.

        Raises Invalid (``range_gone``) where some are not kept any more or are not there yet, LeaseLost when fenced.
        """
        if not 0 <= low <= high:
            raise Invalid(f"{low} to {high} is not a range of batches")
        found = self._read(low, high + 1)
        if len(found) != high + 1 - low:
            raise Invalid(
                f"batch {high} is not there: the buffer ends with {low + len(found) - 1}",
                code="range_gone",
                low=low,
                high=high,
            )
        return Planned.of(found)

    def given_up(self, low: int, high: int) -> set[int]:
        """Return the batches from ``low`` to ``high``, both included, that the group has given up: one listing."""
        return _given_up(self._store, low, high, group=self.group, settings=self._settings)

    def end_seq(self) -> int:
        """Return the newest batch of the buffer, -1 where there is none. Raises LeaseLost when fenced."""
        return self._consumer.end_seq()

    def ack_through(self, seq: int) -> None:
        """Move the frontier past ``seq``, durably, unless it is there already; the next range begins after ``seq``.

        Raises Invalid beyond what was planned, LeaseLost when fenced.
        """
        if seq >= self.next_seq:
            self._consumer.ack_through(seq)
        self._begin = max(self._begin, seq + 1)
        if self._cut_at is not None and self._cut_at <= seq:
            background().run(self._cuts.forget(self._cut_at))
            self._cut_at = None

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, low: int, end: int) -> list[Descriptor]:
        """Return the descriptors from ``low`` up to, not including, ``end``, page by page."""
        found: list[Descriptor] = []
        while (first := low + len(found)) < end:
            page = self._consumer.descriptors(first, min(end, first + self._settings.descriptors_max))
            if not page:
                break
            found += page
        return found


def take_fitting(descriptors: Sequence[Descriptor], limits: Limits) -> list[Descriptor]:
    """Return as many of the first descriptors as the limits allow, and at least one if there is one."""
    entries = size = 0
    for count, descriptor in enumerate(descriptors):
        entries += descriptor.entries
        size += descriptor.bytes
        over = entries > limits.entries_max or size > limits.bytes_max or count >= limits.batches_max
        if over and count:
            return list(descriptors[:count])
    return list(descriptors)


def balance(descriptors: Sequence[Descriptor], parts: int) -> list[list[Descriptor]]:
    """Split the descriptors into at most ``parts`` consecutive, non-empty shares of about the same bytes.

    Each share ends at the batch that brings the sum closest to its part of the whole.
    """
    if parts < 1:
        raise Invalid(f"parts must be at least 1, not {parts}")
    left = sum(descriptor.bytes for descriptor in descriptors)
    shares: list[list[Descriptor]] = []
    taken: list[Descriptor] = []
    size = 0
    for number, descriptor in enumerate(descriptors):
        behind = len(descriptors) - number
        open_parts = parts - len(shares)
        target = left / open_parts
        must_close = behind <= open_parts - 1  # otherwise a part would stay empty that could have had a batch
        if taken and open_parts > 1 and (must_close or size + descriptor.bytes / 2 > target):
            shares.append(taken)
            left -= size
            taken, size = [], 0
        taken.append(descriptor)
        size += descriptor.bytes
    if taken:
        shares.append(taken)
    return shares


def _open_consumer(store: ObjectStore, last_committed: int | None, *, group: str, settings: BufferSettings) -> Consumer:
    """Return a consumer that continues after what the table holds, or raise why it cannot, in terms of the table."""
    try:
        return Consumer(store, last_committed, group=group, settings=settings)
    except Invalid as error:
        if error.code != "bad_frontier" or last_committed is None:
            raise
        frontier, end = int(error.detail["frontier"]), int(error.detail["last"])
    if last_committed < frontier:
        given_up = _given_up(store, last_committed + 1, frontier, group=group, settings=settings)
        if len(given_up) == frontier - last_committed:
            return Consumer(store, None, group=group, settings=settings)
        raise Conflict(
            f"the table holds batches up to {last_committed}, but those below {frontier + 1} are acknowledged: it was "
            "set back, or the group has a second job. Replay the missing ones with a backfill, or start a new table",
            code="sink_behind",
            last=last_committed,
            next=frontier + 1,
        )
    raise Conflict(
        f"the table holds batches up to {last_committed}, but the buffer ends with {end}: it was set back, and what "
        "comes next would be passed over. Start a new table",
        code="sink_ahead",
        last=last_committed,
        end=end,
    )


def _given_up(store: ObjectStore, low: int, high: int, *, group: str, settings: BufferSettings) -> set[int]:
    return background().run(find_quarantined(store, low, high, group=group, settings=settings))
