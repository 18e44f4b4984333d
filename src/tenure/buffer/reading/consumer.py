"""The consumer of a group: one at a time, fenced by its epoch."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TypeVar

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor
from tenure.buffer.collecting.collector import BackgroundCollector
from tenure.buffer.collecting.quarantine import record_quarantine
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import State
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.reading.lag import Lag, lag_of
from tenure.buffer.reading.window import WINDOW_BATCHES, Window
from tenure.buffer.settings import BufferSettings
from tenure.clock import Clock
from tenure.errors import Closed, Corrupt, Invalid, LeaseLost
from tenure.objects.store import ObjectStore

__all__ = ["Consumer"]

T = TypeVar("T")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Consumer:
    """A reader of a buffer's batches in order, which acknowledges them; starting one fences the one before it.

    ``last_acked`` is the sequence that the sink holds: the durable frontier moves there with the start. None continues
    at the durable frontier. Below it, or beyond the end, is refused.

    >>> import asyncio
    >>> from tenure.buffer import Consumer, Producer
    >>> from tenure.testing import SimStore
    >>> async def main():
    ...     store = SimStore()
    ...     async with Producer(store) as producer:
    ...         await (await producer.produce([b"a"])).durable()
    ...     async with Consumer(store, group="tables", create=True) as consumer:
    ...         batch = await consumer.next_batch()
    ...         await consumer.ack_through(batch.seq)
    ...         return consumer.last_acked
    >>> asyncio.run(main())
    0
    """

    def __init__(
        self,
        store: ObjectStore | str,
        last_acked: int | None = None,
        *,
        group: str = "default",
        settings: BufferSettings | None = None,
        clock: Clock | None = None,
        create: bool = False,
        collect: bool = True,
    ) -> None:
        if not _GROUP.fullmatch(group):
            raise Invalid(f"a group's name is 1 to 100 letters, digits, '.', '_' or '-', not {group!r}")
        if last_acked is not None and last_acked < -1:
            raise Invalid("last_acked is a sequence, -1 or None")
        self.group = group
        self.epoch = -1
        self._journal = Journal(store, settings=settings, clock=clock)
        self._settings = self._journal.settings
        self._catalog = Catalog(self._journal)
        self._fetcher = self.fetch_handle()
        self._window = Window(self._journal.clock)
        self._collector = BackgroundCollector(self._journal, self._fence, wanted=collect)
        self._resume, self._create = last_acked, create
        self._acked = 0  # the first sequence that was not acknowledged, as this consumer sees it
        self._durable = 0  # the same, as the manifest sees it
        self._handed = 0  # the first sequence that was not handed out
        self._reading = asyncio.Lock()
        self._acking = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(
        cls,
        store: ObjectStore | str,
        last_acked: int | None = None,
        *,
        group: str = "default",
        settings: BufferSettings | None = None,
        clock: Clock | None = None,
        create: bool = False,
        collect: bool = True,
    ) -> Consumer:
        """Return a consumer that has started."""
        consumer = cls(store, last_acked, group=group, settings=settings, clock=clock, create=create, collect=collect)
        await consumer.start()
        return consumer

    @property
    def id(self) -> str:
        return self._journal.id

    @property
    def buffer_id(self) -> str:
        return self._journal.state.buffer

    @property
    def last_acked(self) -> int | None:
        """Return the last sequence this consumer acknowledged, durably or not yet; None before the buffer's first."""
        return self._acked - 1 if self._acked else None

    @property
    def metrics(self) -> BufferMetrics:
        """Return the counters, including those of its fetch handles in this process."""
        own, lag = self._journal.metrics, self.lag
        own.frontier, own.lag_batches, own.lag_ms = self._durable - 1, lag.batches, lag.ms
        return own

    @property
    def lag(self) -> Lag:
        """Return how far behind this consumer is, by the last manifest read."""
        if self.epoch < 0:
            return Lag(0, 0)
        return lag_of(self._journal.state, self._acked, self._journal.clock.wall_ms())

    async def start(self) -> None:
        """Open the buffer and take the group over. Raises NotFound, Corrupt, Invalid for a bad ``last_acked``."""
        if self.epoch >= 0:
            raise Invalid("a consumer starts once")
        await self._journal.open(create=self._create)
        await self._journal.commit(
            lambda state, _: decide.start(
                state, self.group, self.id, self._resume, groups_max=self._settings.groups_max
            )
        )
        mine = self._journal.state.groups[self.group]
        self.epoch = mine.epoch
        self._acked = self._durable = self._handed = mine.next_seq
        self._collector.start(self._durable)

    async def next_batch(self, *, wait_ms: int = 0) -> Batch | None:
        """Return the next batch, or None if there is none within ``wait_ms``; the cursor moves once it was fetched.

        On a backlog the manifest is read once per 100 batches or 10 s. Raises LeaseLost when a read shows that this
        consumer is fenced, Corrupt when the batch is gone or damaged: restore it, or ``quarantine`` it.
        """

        async def look() -> Batch | None:
            found = await self._next_descriptor()
            if found is None:
                return None
            try:
                batch = await self._fetcher.fetch(found)
            except Corrupt:
                self._window.clear()
                self._fence(await self._journal.sync())  # a successor may have acknowledged it, and had it collected
                raise
            self._handed = batch.seq + 1
            return batch

        return await self._wait_for(look, wait_ms)

    async def next_descriptors(self, count: int, *, wait_ms: int = 0) -> list[Descriptor]:
        """Return up to ``count`` descriptors, each handed out once, for one manifest read; empty after ``wait_ms``.

        It moves no frontier: acknowledge with ``ack_through`` what was processed without a gap. Raises LeaseLost if
        fenced.
        """
        if not 0 < count <= self._settings.descriptors_max:
            raise Invalid(f"count is between 1 and descriptors_max ({self._settings.descriptors_max:,})")

        async def look() -> list[Descriptor] | None:
            found = await self._descriptors(count)
            if found:
                self._handed = found[-1].seq + 1
            return found or None

        return await self._wait_for(look, wait_ms) or []

    async def descriptors(self, low: int, high: int) -> list[Descriptor]:
        """Return the descriptors from ``low`` up to, not including, ``high``, as far as the queue goes.

        They count as handed out, also where they were before: for a caller that cuts the queue into ranges, and may
        have to read one again. Raises Invalid for more than ``descriptors_max`` and (``range_gone``) where ``low`` is
        not kept any more, LeaseLost if fenced.
        """
        if not 0 <= low < high <= low + self._settings.descriptors_max:
            raise Invalid(
                f"[{low}, {high}) is not a range of 1 to descriptors_max ({self._settings.descriptors_max:,})"
            )
        async with self._reading:
            self._check_open()
            self._fence(await self._journal.sync())
            found = await self._catalog.descriptors(low, high - low)
            self._fence(self._journal.state)
            if low < (first := self._journal.state.first_seq):
                raise Invalid(
                    f"batch {low} is not kept any more: the oldest is {first}", code="range_gone", low=low, first=first
                )
            if found:
                self._handed = max(self._handed, found[-1].seq + 1)
            return found

    async def end_seq(self) -> int:
        """Return the newest batch's sequence, -1 before the first one. Raises LeaseLost if fenced."""
        self._check_open()
        self._fence(await self._journal.sync())
        return self._journal.state.next_seq - 1

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batch after batch until the consumer is closed."""
        while not self._closed:
            batch = await self.next_batch(wait_ms=1_000)
            if batch is not None:
                yield batch

    def fetch_handle(self) -> FetchHandle:
        """Return a handle that fetches what ``next_descriptors`` handed out, from any process."""
        return FetchHandle(self._journal.store.inner, settings=self._settings, metrics=self._journal.metrics)

    async def ack(self, seq: int) -> None:
        """Acknowledge exactly the next batch; durable with every ``ack_every``-th and with ``flush``.

        Raises Invalid out of order. If the durable write fails, nothing has moved and the same call may be repeated.
        """
        async with self._acking:
            self._check_open()
            if seq != self._acked or seq >= self._handed:
                raise Invalid(
                    f"ack({seq}) is not in order: the next one is {self._acked}, handed out below {self._handed}",
                    code="out_of_order",
                    expected=self._acked,
                )
            if seq + 1 - self._durable >= self._settings.ack_every:
                await self._move(seq + 1)
            self._acked = seq + 1
            self._journal.metrics.acks += 1

    async def ack_through(self, seq: int) -> None:
        """Acknowledge everything up to ``seq`` durably, in one write; the caller knows what was processed.

        Raises Invalid at or below what was acknowledged and beyond what was handed out; LeaseLost when fenced.
        """
        async with self._acking:
            self._check_open()
            if not self._acked <= seq < self._handed:
                raise Invalid(
                    f"ack_through({seq}) is outside [{self._acked}, {self._handed})",
                    code="out_of_order",
                    expected=self._acked,
                )
            await self._move(seq + 1)
            self._journal.metrics.acks += seq + 1 - self._acked
            self._acked = seq + 1

    async def quarantine(self, seq: int, reason: str) -> None:
        """Give up the next batch for good; the batch and the reason are recorded beside the manifest first."""
        async with self._acking:
            self._check_open()
            if seq != self._acked:
                raise Invalid(f"only the next batch, {self._acked}, can be quarantined, not {seq}", code="out_of_order")
            if self._acked > self._durable:
                await self._move(self._acked)
            self._fence(await self._journal.sync())
            await record_quarantine(self._journal, self._catalog, seq, group=self.group, reason=reason)
            await self._journal.commit(lambda state, _: decide.skip(state, self.group, self.epoch, seq))
            self._acked = self._durable = seq + 1
            self._handed = max(self._handed, seq + 1)
            self._journal.metrics.quarantined += 1

    async def flush(self) -> None:
        """Make every acknowledgement durable."""
        async with self._acking:
            if self._acked > self._durable:
                await self._move(self._acked)

    async def close(self) -> None:
        """Flush, and stop collecting. A fenced consumer has nothing left to flush."""
        if self._closed:
            return
        try:
            if self.epoch >= 0:
                await self.flush()
        except LeaseLost:
            return
        finally:
            self._closed = True
            await self._collector.close()
            await self._journal.close()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _wait_for(self, look: Callable[[], Awaitable[T | None]], wait_ms: int) -> T | None:
        """Return what ``look`` finds within the time; the manifest is read again every ``poll_ms``."""
        until = self._journal.clock.boot_ms() + wait_ms
        while True:
            async with self._reading:
                self._check_open()
                found = await look()
            left_ms = until - self._journal.clock.boot_ms()
            if found is not None or left_ms <= 0:
                return found
            await asyncio.sleep(min(left_ms, self._settings.poll_ms) / 1000)

    async def _descriptors(self, count: int) -> list[Descriptor]:
        """Read the manifest once and return the descriptors after the cursor. Raises LeaseLost when fenced."""
        self._fence(await self._journal.sync())
        found = await self._catalog.descriptors(self._handed, count)
        self._fence(self._journal.state)  # a missing run made the catalog read the manifest again
        return found

    async def _next_descriptor(self) -> Descriptor | None:
        """Return the descriptor at the cursor, from the window or for one read of the manifest."""
        found = self._window.at(self._handed)
        if found is None:
            read_ms = self._journal.clock.boot_ms()
            self._window.fill(await self._descriptors(WINDOW_BATCHES), read_ms=read_ms)
            found = self._window.at(self._handed)
        return found

    async def _move(self, next_seq: int) -> None:
        """Move the durable frontier; memory follows only if that succeeded."""
        await self._journal.commit(lambda state, _: decide.frontier(state, self.group, self.epoch, next_seq))
        self._durable = next_seq
        self._collector.advance(next_seq)

    def _fence(self, state: State) -> None:
        decide.fence(state, self.group, self.epoch)

    def _check_open(self) -> None:
        if self._closed or self.epoch < 0:
            raise Closed("the consumer is closed, or has not started", code="closed")
