"""The uploader: encode and upload sealed batches concurrently, and commit them in order.

While one commit is in flight, all batches that become ready wait for the next, which takes them in one delta.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice, takewhile

from tenure.buffer.batch.format import encode_batch
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import Entry, Op, State, checksum_of
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import RisingNames, batch_key
from tenure.buffer.writing.pending import PendingBatch
from tenure.errors import Indeterminate

__all__ = ["Uploader"]


class _MustUploadAgain(Exception):
    """Names that the collector voided before they were committed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names


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
        self._seen = self._recorded()
        self._committer = asyncio.create_task(self._commit_forever())

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
        self._queue.append(batch)
        task = asyncio.create_task(self._prepare(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop, and abandon what is under way."""
        tasks = [self._committer, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, batch: PendingBatch) -> None:
        """Encode and upload; a failure concerns this batch alone."""
        started = time.monotonic()
        async with self._uploads:
            try:
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
                batch.error = error
        self._journal.metrics.flush_ms_total += (time.monotonic() - started) * 1000
        batch.is_prepared = True
        self._ready.set()

    async def _upload(self, batch: PendingBatch) -> None:
        """Store the bytes under a new name."""
        name = self._names.next(self._journal.clock.wall_ms(), above=self._journal.state.void)
        await self._journal.retrying.create_own(batch_key(name), batch.data)
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
                    await self._commit(batches)
                except Exception as error:  # the manifest cannot be written: promise nothing after this
                    self._halted(error)
                    return
                for _ in batches:
                    self._done(self._queue.popleft())

    def _next(self) -> list[PendingBatch]:
        """Return the ready batches at the head of the queue; settle at once a head that failed to upload."""
        ready = takewhile(lambda batch: batch.is_prepared and batch.error is None, self._queue)
        batches = list(islice(ready, self._journal.settings.commit_batches_max))
        if not batches:
            failed = self._queue.popleft()
            failed.fail(failed.error or Indeterminate("the upload failed"))
            self._journal.metrics.batches_failed += 1
            self._done(failed)
        return batches

    async def _commit(self, batches: list[PendingBatch]) -> None:
        """Commit them in one delta; batches whose names were voided meanwhile are uploaded again first."""
        while batches:
            entries = [batch.entry for batch in batches if batch.entry is not None]
            try:
                state = await self._journal.commit(
                    partial(
                        _decide,
                        entries=entries,
                        seen=None if self._replays else self._seen,
                        producers_max=self._journal.settings.producers_max,
                    )
                )
            except _MustUploadAgain as again:
                for batch in batches:
                    if batch.entry is not None and batch.entry.name in again.names:
                        self._journal.metrics.reuploads += 1
                        await self._upload(batch)
                continue
            self._seen = self._recorded()
            seqs = await self._seqs(state, entries)
            for batch in batches:
                batch.succeed(seqs[batch.ordinal])
            return

    def _recorded(self) -> int:
        """Return the last ordinal that the manifest shows of this producer; -1 if none."""
        record = self._journal.state.producers.get(self._journal.id)
        return -1 if record is None else record.ordinal

    async def _seqs(self, state: State | None, entries: list[Entry]) -> dict[int, int]:
        """Return the sequence of each ordinal: from our own delta, or after a lost reply from the manifest."""
        if state is not None and state.tail and state.tail[-len(entries) :] == entries:
            first = state.next_seq - len(entries)
            return {entry.ordinal: first + index for index, entry in enumerate(entries)}
        catalog = Catalog(self._journal)
        return await catalog.find(self._journal.id, {entry.ordinal for entry in entries})


def _decide(
    state: State, in_doubt: bool, *, entries: list[Entry], seen: int | None, producers_max: int
) -> list[Op] | None:
    doubtful = [entry.name for entry in entries] if in_doubt else []
    known = None if seen is None else decide.Known(seen, doubtful)
    ops = decide.append(state, entries, known=known, in_doubt=in_doubt, producers_max=producers_max)
    if names := decide.void_names(state, entries):
        raise _MustUploadAgain(names)
    return ops
