"""The uploader: encode and upload sealed batches concurrently, and commit them in order.

While one commit is in flight, all batches that become ready wait for the next, which takes them in one delta.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile

from tenure.buffer.batch.format import encode_batch
from tenure.buffer.manifest.format import Entry, checksum_of
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import RisingNames, batch_key
from tenure.buffer.writing.commits import Committer
from tenure.buffer.writing.outage import DeliveryTime, Outage, not_written
from tenure.buffer.writing.pending import PendingBatch
from tenure.objects.store import OutcomeUnknown

__all__ = ["Uploader"]


class Uploader:
    """A queue of sealed batches that settles each: it calls ``done`` once per batch, in order."""

    def __init__(
        self,
        journal: Journal,
        done: Callable[[PendingBatch], None],
        halted: Callable[[Exception], None],
        *,
        first_ordinal: int = 0,
        replays: bool = False,
    ) -> None:
        self._journal = journal
        self._done = done
        self._halted = halted
        self._names = RisingNames()
        self._queue: deque[PendingBatch] = deque()
        self._uploads = asyncio.Semaphore(journal.settings.uploads_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._ordinal = first_ordinal
        self._replays = replays
        self._outage = Outage(journal.metrics, journal.clock)
        self._committer = Committer(journal, self._upload, replays=replays)
        self._committing = asyncio.create_task(self._commit_forever())

    @property
    def waiting(self) -> list[PendingBatch]:
        """Return the batches that are not settled yet, in order."""
        return list(self._queue)

    @property
    def oldest(self) -> PendingBatch | None:
        """Return the first batch that is not settled yet."""
        return self._queue[0] if self._queue else None

    def submit(self, batch: PendingBatch) -> None:
        """Queue a sealed batch; its place in the order is fixed now."""
        batch.ordinal = self._ordinal
        self._ordinal += 1
        batch.time = DeliveryTime(self._outage, self._journal.settings)
        self._queue.append(batch)
        task = asyncio.create_task(self._prepare(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop, and abandon what is under way."""
        tasks = [self._committing, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, batch: PendingBatch) -> None:
        """Encode and upload; a failure concerns this batch alone."""
        started = time.monotonic()
        async with self._uploads:
            try:
                if batch.time.is_over:
                    raise not_written()
                batch.data = await asyncio.to_thread(
                    encode_batch,
                    batch.calls,
                    buffer_id=self._journal.state.buffer,
                    producer=self._journal.id,
                    ordinal=batch.ordinal,
                    level=self._journal.settings.compression_level,
                )
                await self._upload(batch)
            except Exception as error:
                self._journal.metrics.batches_failed += 1
                batch.fail(error)
        self._journal.metrics.flush_ms_total += (time.monotonic() - started) * 1000
        batch.is_prepared = True
        self._ready.set()

    async def _upload(self, batch: PendingBatch) -> None:
        """Store the bytes under a new name. Whatever became of a failed upload: no commit will ever refer to it.

        The name is above every one in the manifest, of any producer. So names rise as batches are committed, whichever
        clock is wrong, and the collector, which deletes in the order of names, is held up by none.
        """
        state = self._journal.state
        name = self._names.next(self._journal.clock.wall_ms(), above=max(state.void, state.newest_name))
        try:
            await self._journal.retrying.within(batch.time).create_own(batch_key(name), batch.data)
        except OutcomeUnknown as error:
            raise not_written(error.message) from error
        batch.entry = Entry(
            name=name,
            bytes=len(batch.data),
            entries=batch.count,
            checksum=checksum_of(batch.data),
            producer=self._journal.id,
            ordinal=batch.ordinal,
            first_ms=batch.calls[0][1].ingested_ms,
            last_ms=batch.calls[-1][1].ingested_ms,
        )

    async def _commit_forever(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._queue and self._queue[0].is_prepared:
                batches = self._next()
                try:
                    if batches:
                        await self._committer.commit(batches)
                    self._settle()
                except Exception as error:  # the manifest cannot be written: promise nothing after this
                    self._halted(error)
                    return

    def _next(self) -> list[PendingBatch]:
        """Return the batches at the head of the queue that can be committed now; none where the head has failed."""
        ready = takewhile(lambda batch: batch.is_prepared and not batch.done.done(), self._queue)
        return list(islice(ready, self._journal.settings.commit_batches_max))

    def _settle(self) -> None:
        """Let go of the batches at the head of the queue whose outcome is known.

        Raises the failure of one where each has to be committed, as the n-th batch is always the same: no later one may
        take its place.
        """
        while self._queue and self._queue[0].done.done():
            batch = self._queue.popleft()
            self._done(batch)
            if self._replays and (error := batch.done.exception()) is not None:
                raise error
