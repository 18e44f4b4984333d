"""The producer: byte entries in, durable batches out."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from types import TracebackType

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import load_encoder
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import is_fresh_id
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import FOOTER_BYTES_MAX, BufferSettings
from tenure.buffer.writing.budget import Budget, Turns
from tenure.buffer.writing.pending import PendingBatch, WriteHandle, footer_bytes_of, weight_of
from tenure.buffer.writing.uploads import Uploader
from tenure.clock import Clock
from tenure.errors import Closed, Corrupt, Indeterminate, Invalid, TenureError
from tenure.objects.store import ObjectStore

__all__ = ["Producer"]

_NAME_MAX = 100


class Producer:
    """A writer that gathers entries in memory and flushes them as batches; any number share a buffer.

    ``async with Producer(store) as producer`` starts and closes it. The first one creates the buffer. With a ``name``
    it continues where one of that name ended. Of two that use a name at once, the one that finds the other's commit
    halts; with ``replays`` it takes that commit for its own, as its n-th batch always holds the same entries.

    >>> import asyncio
    >>> from tenure.buffer import Consumer, Producer
    >>> from tenure.testing import SimStore
    >>> async def main():
    ...     store = SimStore()
    ...     async with Producer(store) as producer:
    ...         await (await producer.produce([b"a", b"b"])).durable()
    ...     async with Consumer(store, create=True) as consumer:
    ...         batch = await consumer.next_batch()
    ...         return batch.seq, batch.entries
    >>> asyncio.run(main())
    (0, [b'a', b'b'])
    """

    def __init__(
        self,
        store: ObjectStore | str,
        *,
        settings: BufferSettings | None = None,
        clock: Clock | None = None,
        name: str | None = None,
        replays: bool = False,
    ) -> None:
        self._journal = Journal(store, settings=settings, clock=clock)
        if name is not None:
            if not 0 < len(name) <= _NAME_MAX:
                raise Invalid(f"a producer's name has 1 to {_NAME_MAX} characters")
            if is_fresh_id(name):
                raise Invalid(f"{name} looks like the id of a producer without a name, which is forgotten: use another")
            self._journal.id = name
        self._replays = replays
        self._settings = self._journal.settings
        self._budget = Budget(bytes_max=self._settings.inflight_bytes_max, calls_max=self._settings.inflight_calls_max)
        self._turns = Turns(self._journal.clock)
        self._gathering: PendingBatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._uploader: Uploader | None = None
        self._failure: Exception | None = None
        self._lost: PendingBatch | None = None
        self._closed = False
        self._pid = os.getpid()

    @classmethod
    async def open(
        cls, store: ObjectStore | str, *, settings: BufferSettings | None = None, clock: Clock | None = None
    ) -> Producer:
        """Return a producer that has started."""
        producer = cls(store, settings=settings, clock=clock)
        await producer.start()
        return producer

    @property
    def id(self) -> str:
        return self._journal.id

    @property
    def last_ordinal(self) -> int:
        """Return the ordinal of the last batch that the manifest shows of a producer of this name; -1 if none."""
        record = self._journal.state.producers.get(self.id)
        return -1 if record is None else record.ordinal

    async def last_metadata(self) -> bytes | None:
        """Return the metadata of the last call of a producer of this name; None where its batch is gone."""
        if (ordinal := self.last_ordinal) < 0:
            return None
        catalog = Catalog(self._journal)
        seq = (await catalog.find(self.id, {ordinal}))[ordinal]
        if seq < 0:
            return None
        [descriptor] = await catalog.descriptors(seq, 1)
        try:
            batch = await FetchHandle(self._journal.store.inner, settings=self._settings).fetch(descriptor)
        except Corrupt:
            return None
        return batch.ranges[-1].metadata

    @property
    def buffer_id(self) -> str:
        return self._journal.state.buffer

    @property
    def metrics(self) -> BufferMetrics:
        """Return the counters, with what is held now: an old entry that is not durable indicates a stuck store."""
        own = self._journal.metrics
        oldest = (self._uploader.oldest if self._uploader is not None else None) or self._gathering
        own.unflushed_since_ms = 0 if oldest is None else oldest.calls[0][1].ingested_ms
        own.inflight_bytes = self._budget.bytes
        return own

    async def start(self) -> None:
        """Open the buffer, or create it. Raises Corrupt, Conflict, StoreRefused, OutcomeUnknown."""
        if self._uploader is not None or self._closed:
            raise Invalid("a producer starts once")
        self._pid = os.getpid()
        await self._journal.open(create=True)
        await asyncio.to_thread(load_encoder)
        self._uploader = Uploader(
            self._journal, self._settle, self._halt, first_ordinal=self.last_ordinal + 1, replays=self._replays
        )

    async def produce(self, entries: Sequence[bytes], metadata: bytes = b"") -> WriteHandle:
        """Add the entries, waiting while the producer is full; ``durable()`` of the handle waits for the store.

        A caller that computes between its calls and awaits nothing else gives up a turn of the loop here, and a fifth
        of its time while batches are under way: ``flush_interval_ms`` holds for it, too. Raises Invalid for no entries,
        for entries that are not bytes and for too many of them; Closed once the producer halted.
        """
        size = self._check(entries, metadata)
        entries = tuple(entries)  # the caller may change the list at once
        weight = weight_of(size + len(metadata), len(entries))
        self._raise_if_over()
        await self._turns.take(self._under_way)
        if self._gathering is not None and self._budget.is_full(weight):
            self._seal_at_age(0)  # it may hold the room; those who are let in together still gather in it
        await self._budget.acquire(weight)
        try:
            self._raise_if_over()
        except Closed:
            self._budget.release(weight, 1)
            raise
        return self._gather(entries, size, metadata)

    async def flush(self) -> None:
        """Wait until everything produced before is durable; raises the first failure among it."""
        self._raise_if_over()
        self._seal()
        waiting = self._require_uploader().waiting
        if waiting:
            await asyncio.wait([batch.done for batch in waiting])
            for batch in waiting:
                batch.is_reported = True
            for batch in waiting:
                batch.done.result()

    async def close(self, deadline_ms: int | None = None) -> None:
        """Flush and stop, in at most ``deadline_ms``; handles that are not durable by then raise Indeterminate.

        Raises the first failure that was not raised to a caller before, so that nothing is lost in silence.
        """
        if self._closed:
            return
        self._seal()
        self._closed = True
        self._budget.fail(Closed("the producer was closed", code="closed"))
        if self._uploader is None:
            return
        loop, upkeep_ms = asyncio.get_running_loop(), 0.0
        until_s = math.inf if deadline_ms is None else loop.time() + deadline_ms / 1000
        try:
            waiting = [batch.done for batch in self._uploader.waiting]
            if waiting:
                await asyncio.wait(waiting, timeout=None if deadline_ms is None else deadline_ms / 1000)
            if self._failure is None:  # upkeep of a close that is cancelled, or of a manifest that failed, is abandoned
                upkeep_ms = max(0, until_s - loop.time()) * 1000
        finally:
            left = self._uploader.waiting
            await self._uploader.close()
            for batch in left:
                batch.fail(Indeterminate("the producer was closed before this was durable", code="closed"))
                self._remember(batch)
            await self._journal.close(within_ms=upkeep_ms)
        if self._lost is not None and not self._lost.is_reported:
            self._lost.done.result()

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except TenureError:
            if error is None:  # otherwise the first error is the one that matters
                raise

    def _check(self, entries: Sequence[bytes], metadata: bytes) -> int:
        """Return the bytes of a call; raise Invalid where it exceeds a limit."""
        limits = self._settings
        if not entries:
            raise Invalid("produce needs at least one entry; an empty byte string is one")
        if set(map(type, entries)) != {bytes}:
            raise Invalid("entries are a list of bytes")
        if type(metadata) is not bytes or len(metadata) > limits.metadata_bytes_max:
            raise Invalid(f"metadata is at most {limits.metadata_bytes_max:,} bytes")
        size = sum(map(len, entries))
        if size > limits.call_bytes_max or len(entries) > limits.call_entries_max:
            raise Invalid(
                f"one call takes at most {limits.call_entries_max:,} entries and {limits.call_bytes_max:,} bytes: "
                f"split these {len(entries):,} entries of {size:,} bytes",
                code="too_large",
            )
        return size

    def _raise_if_over(self) -> None:
        if self._failure is not None:
            self._lost = None  # reported now
            raise Closed(f"the producer has halted: {self._failure}", code="producer_halted") from self._failure
        if self._closed:
            raise Closed("the producer is closed", code="closed")
        if self._pid != os.getpid():
            raise Closed("the producer belongs to the process that opened it: open one after the fork", code="forked")
        self._require_uploader()

    def _require_uploader(self) -> Uploader:
        if self._uploader is None:
            raise Invalid("the producer has not started: use `async with`, or await start()")
        return self._uploader

    def _under_way(self) -> asyncio.Future[int] | None:
        """Return the outcome of the oldest batch that is being uploaded or committed."""
        oldest = self._require_uploader().oldest
        return None if oldest is None else oldest.done

    def _gather(self, entries: Sequence[bytes], size: int, metadata: bytes) -> WriteHandle:
        """Add the call to the batch being gathered, and seal a batch that has become large enough."""
        now_ms = self._journal.clock.wall_ms()
        if self._gathering is not None and (
            size >= self._settings.flush_bytes  # it is a batch by itself
            or self._gathering.footer_bytes + footer_bytes_of(metadata) > FOOTER_BYTES_MAX
        ):
            self._seal()
        batch = self._gathering if self._gathering is not None else self._begin()
        handle = batch.add(entries, size, metadata, now_ms)
        self._turns.note()
        self._journal.metrics.calls += 1
        self._journal.metrics.entries += len(entries)
        self._journal.metrics.entry_bytes += size
        if batch.bytes >= self._settings.flush_bytes or self._budget.is_half(batch.weight, len(batch.calls)):
            self._seal()
        return handle

    def _begin(self) -> PendingBatch:
        """Begin a batch. While callers wait for room it is sealed in the loop's next turn, as it may hold that room."""
        self._gathering = PendingBatch(self._seal_soon)
        self._seal_at_age(0 if self._budget.is_awaited else self._settings.flush_interval_ms)
        return self._gathering

    def _seal_soon(self, batch: PendingBatch) -> None:
        """Seal the batch ``flush_awaited_ms`` after it was begun, as a caller waits for it now."""
        if batch is self._gathering:
            self._seal_at_age(self._settings.flush_awaited_ms)

    def _seal_at_age(self, age_ms: int) -> None:
        """Have the gathered batch sealed at this age, or earlier if that is set already."""
        assert self._gathering is not None
        due_s = self._gathering.begun_s + age_ms / 1000
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._seal)

    def _seal(self) -> None:
        """Submit the gathered batch for upload."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._gathering = self._gathering, None
        if batch is not None:
            self._require_uploader().submit(batch)

    def _settle(self, batch: PendingBatch) -> None:
        """Release the room of a batch that is durable, or failed for good."""
        if batch.done.exception() is None:
            self._journal.metrics.batches += 1
            self._journal.metrics.batch_bytes += len(batch.data)
        else:
            self._remember(batch)
        self._budget.release(batch.weight, len(batch.calls))

    def _remember(self, batch: PendingBatch) -> None:
        """Keep the first failure that was not raised to a caller, for `close`."""
        if self._lost is None or self._lost.is_reported:
            self._lost = batch

    def _halt(self, error: Exception) -> None:
        """Stop after a failure to write the manifest: fail everything under way, and every later call."""
        self._failure = error
        self._seal()
        for batch in self._require_uploader().waiting:
            batch.fail(error)
            self._remember(batch)
        self._budget.fail(Closed(f"the producer has halted: {error}", code="producer_halted"))
