"""The ingest runtime: fetch, decode and write overlap, and the frontier follows the sink's commits.

It fetches and decodes batches ahead, within a budget of bytes, and writes them in order, several at a time. The sink
reports how far its table is. The runtime passes over batches below that, and acknowledges only what is committed. A
batch that cannot be fetched, decoded or written stops the run at that batch: nothing is skipped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tenure.backoff import backoff_ms
from tenure.buffer.batch.format import Batch, Descriptor
from tenure.buffer.ingest.sink import Commit, Outcome, Sink
from tenure.errors import Closed, Conflict, Corrupt, Invalid, Overloaded, TenureError
from tenure.limits import MIB, check_limits

__all__ = ["Ingest", "IngestSettings", "Source"]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run: what it holds, and how long it waits."""

    read_ahead_max: int = 16
    """Batches that are fetched or decoded at once, or wait to be written."""
    bytes_max: int = 256 * MIB
    """Their bytes, once decoded; a batch that is larger than this goes alone."""
    write_batches_max: int = 64
    """Batches in one commit of the sink."""
    write_attempts_max: int = 10
    """How often a write that did not happen is repeated before the run gives up."""
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000
    """The first and the greatest bound of the wait before a repeat; it doubles in between, and the wait is drawn from 0
    to it."""
    poll_ms: int = 100
    """Wait between two looks for batches where there was none."""
    ack_ms: int = 1_000
    """Time between two acknowledgements, each of which costs requests; the table itself knows at once what it holds."""

    def __post_init__(self) -> None:
        check_limits(self, zero={"backoff_ms", "ack_ms"})


log = logging.getLogger("tenure.ingest")

Rows = TypeVar("Rows")
_GROWTH = 4
"""The assumed ratio of a batch's decoded size to its object's, until it has been decoded."""


class Source(Protocol):
    """The methods of a consumer that the runtime uses."""

    async def next_descriptors(self, count: int) -> Sequence[Descriptor]: ...

    async def ack_through(self, seq: int) -> None: ...

    async def end_seq(self) -> int: ...

    def fetch_handle(self) -> Any: ...


class _Taken(Generic[Rows]):
    """A batch on its way: its future rows, and the bytes of the budget that it holds."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.bytes = _GROWTH * descriptor.bytes
        self.rows: asyncio.Task[Rows] | None = None


class Ingest(Generic[Rows]):
    """One run from a consumer into a sink; ``decode`` turns a batch into the rows that the sink takes, in a thread.

    ``committed_seq`` is the last batch that the sink holds, ``acked_seq`` the last that was acknowledged.

    >>> import asyncio
    >>> from tenure.buffer import Consumer, Ingest, Producer, SqliteSink
    >>> from tenure.testing import SimStore
    >>> async def main():
    ...     store = SimStore()
    ...     async with Producer(store) as producer:
    ...         await (await producer.produce([b"a", b"b"])).durable()
    ...     sink = SqliteSink(":memory:", create="create table t (entry)", insert="insert into t values (?)")
    ...     async with Consumer(store, create=True) as consumer:
    ...         ingest = Ingest(consumer, lambda batch: [(entry,) for entry in batch.entries], sink)
    ...         await ingest.catch_up()
    ...     await sink.close()
    ...     return ingest.committed_seq
    >>> asyncio.run(main())
    0
    """

    def __init__(
        self,
        consumer: Source,
        decode: Callable[[Batch], Rows],
        sink: Sink[Rows],
        *,
        settings: IngestSettings | None = None,
    ) -> None:
        self._consumer = consumer
        self._handle = consumer.fetch_handle()
        self._decode = decode
        self._sink = sink
        self._settings = settings or IngestSettings()
        self._ahead: deque[_Taken[Rows]] = deque()
        self._held_bytes = 0
        self._starting = True
        self._has_failed = False
        self._handed_seq = -1
        self._ack_due_s = 0.0
        self.committed_seq = -1
        self.acked_seq = -1

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Ingest until ``stop`` is set; what was begun is written and acknowledged first.

        Raises LeaseLost where another consumer took over, Corrupt for a batch that is gone or damaged, Invalid
        (``decode_failed``, ``sink_refused``), Overloaded where the sink kept refusing, Conflict (``sink_behind``) where
        the table lacks batches that were acknowledged, or (``sink_ahead``) holds some that the buffer never had.
        """
        stop = stop or asyncio.Event()
        while not stop.is_set():
            count = await self._move(stop)
            await self._ack_if_due()
            if not count:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._settings.poll_ms / 1000)
        await self._ack()

    async def catch_up(self) -> int:
        """Ingest what there is now, acknowledge it, and return the number of batches.

        Raises as `run`, and Closed once it has raised: what was handed out then comes again only through a new
        consumer.
        """
        count = await self._move(asyncio.Event())
        await self._ack()
        return count

    async def _move(self, stop: asyncio.Event) -> int:
        """Write batches until none is left or ``stop`` is set, then those that were begun; return how many."""
        if self._has_failed:
            raise Closed("this run has failed: start another with a new consumer", code="ingest_failed")
        count = 0
        try:
            while True:
                if not stop.is_set():
                    await self._read_ahead()
                if not self._ahead:
                    return count
                count += await self._write_next()
                await self._ack_if_due()
        except BaseException as error:
            self._has_failed = True
            await self._drop_ahead()
            if isinstance(error, Exception):
                with suppress(TenureError):  # a fenced run must not; its successor passes over what the table holds
                    await self._ack()
            raise

    # Reading

    async def _read_ahead(self) -> None:
        """Begin to fetch as many further batches as fit."""
        settings = self._settings
        room = settings.read_ahead_max - len(self._ahead)
        if room <= 0 or (self._ahead and self._held_bytes >= settings.bytes_max):
            return
        for descriptor in await self._next(room):
            taken: _Taken[Rows] = _Taken(descriptor)
            self._ahead.append(taken)
            self._held_bytes += taken.bytes
        self._fetch_more()

    async def _next(self, count: int) -> list[Descriptor]:
        """Return the next batches that the table does not hold yet; pass over those that it holds."""
        while descriptors := list(await self._consumer.next_descriptors(count)):
            if self._starting:
                await self._start(descriptors[0])
            self._handed_seq = descriptors[-1].seq
            if fresh := [each for each in descriptors if each.seq > self.committed_seq]:
                return fresh
        if self._handed_seq >= 0 and self.committed_seq > self._handed_seq:
            raise Conflict(
                f"the table holds batches up to {self.committed_seq}, but the buffer ends with {self._handed_seq}: it "
                "was set back, and what comes next would be passed over. Start a new table",
                code="sink_ahead",
                last=self.committed_seq,
                end=self._handed_seq,
            )
        return []

    async def _start(self, first: Descriptor) -> None:
        """Ask the sink how far it is, and pass over what it holds already."""
        last = await self._sink.last_committed(first.buffer_id)
        if last is not None and last < first.seq - 1:
            raise Conflict(
                f"the table holds batches up to {last}, but those below {first.seq} are acknowledged: it was set back. "
                "Replay the missing ones through a group of their own, or start a new table",
                code="sink_behind",
                last=last,
                next=first.seq,
            )
        self.committed_seq = last if last is not None else first.seq - 1
        self.acked_seq = first.seq - 1
        self._starting = False

    def _fetch_more(self) -> None:
        """Start the fetches that the budget allows, in order; the oldest always starts."""
        begun = 0
        for number, taken in enumerate(self._ahead):
            begun += taken.bytes
            if number and begun > self._settings.bytes_max:
                break
            if taken.rows is None:
                taken.rows = asyncio.create_task(self._fetch(taken))

    async def _fetch(self, taken: _Taken[Rows]) -> Rows:
        descriptor = taken.descriptor
        try:
            batch: Batch = await self._handle.fetch(descriptor)
        except Corrupt:
            await self._consumer.end_seq()  # raises LeaseLost: a successor may have had the batch collected
            raise
        size = int(batch.table.nbytes)
        self._held_bytes += size - taken.bytes
        taken.bytes = size
        try:
            return await asyncio.to_thread(self._decode, batch)
        except Exception as error:
            raise Invalid(
                f"batch {descriptor.seq} cannot be decoded: {type(error).__name__}: {error}",
                code="decode_failed",
                seq=descriptor.seq,
            ) from error

    async def _drop_ahead(self) -> None:
        """Cancel what was read ahead and not written."""
        tasks = [taken.rows for taken in self._ahead if taken.rows is not None]
        self._ahead.clear()
        self._held_bytes = 0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Writing

    async def _write_next(self) -> int:
        """Write the oldest batches that are ready, together, while the next ones are fetched; return how many."""
        first = self._ahead[0]
        assert first.rows is not None
        await asyncio.wait([first.rows])
        ready: list[_Taken[Rows]] = []
        for taken in self._ahead:
            done = taken.rows is not None and taken.rows.done() and taken.rows.exception() is None
            if not done or len(ready) == self._settings.write_batches_max:
                break
            ready.append(taken)
        if not ready:
            first.rows.result()
        await self._write(ready)
        for taken in ready:
            self._ahead.popleft()
            self._held_bytes -= taken.bytes
        self._fetch_more()
        return len(ready)

    async def _write(self, ready: list[_Taken[Rows]]) -> None:
        low, high = ready[0].descriptor, ready[-1].descriptor
        sink = self._sink
        commit = Commit(low.buffer_id, sink.name, low.seq, high.seq, sink.schema_version)
        parts = [taken.rows.result() for taken in ready if taken.rows is not None]
        why = ""
        for attempt in range(self._settings.write_attempts_max):
            outcome, why = await sink.write(commit, parts)
            if outcome is Outcome.COMMITTED or (outcome is Outcome.MAYBE_COMMITTED and await self._is_there(commit)):
                self.committed_seq = high.seq
                return
            if outcome is Outcome.FATAL:
                raise Invalid(f"the sink refuses {commit} for good: {why}", code="sink_refused", low=low.seq)
            log.warning("the sink did not take %s: %s", commit, why)
            await self._pause(attempt)
        raise Overloaded(f"the sink did not take {commit}: {why}", code="sink_unavailable", low=low.seq)

    async def _is_there(self, commit: Commit) -> bool:
        """Return whether the sink holds a commit in doubt; False where it cannot answer: the repeat finds out."""
        try:
            return await self._sink.check_committed(commit)
        except (OSError, TenureError) as error:
            log.warning("the sink cannot tell whether it holds %s: %s", commit, error)
            return False

    async def _pause(self, attempt: int) -> None:
        settings = self._settings
        wait_ms = backoff_ms(attempt + 1, min_ms=settings.backoff_ms, max_ms=settings.backoff_ms_max)
        await asyncio.sleep(wait_ms / 1000)

    async def _ack_if_due(self) -> None:
        if time.monotonic() >= self._ack_due_s:
            await self._ack()

    async def _ack(self) -> None:
        """Acknowledge what the table holds, as far as it was handed out."""
        seq = min(self.committed_seq, self._handed_seq)
        self._ack_due_s = time.monotonic() + self._settings.ack_ms / 1000
        if seq > self.acked_seq:
            await self._consumer.ack_through(seq)
            self.acked_seq = seq
