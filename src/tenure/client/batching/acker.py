"""`Acker`: gather the acks, nacks and extends of many tasks into few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Unpack

from tenure.client.batching.ack_batch import AckBatch, Kind, Settling, send_batch
from tenure.client.batching.settings import AckerOptions, AckerSettings
from tenure.client.closing import AsyncClosing
from tenure.contract.commands import Ack, Extend, Nack, Return
from tenure.contract.names import check_topic_name
from tenure.errors import Closed, Indeterminate, Invalid, Overloaded

__all__ = ["Acker", "Leased"]


class Leased(Protocol):
    """A job under a lease."""

    @property
    def seq(self) -> int: ...

    @property
    def lease_id(self) -> str | None: ...


class Acker(AsyncClosing):
    """A batcher of acks, nacks and extends of one topic, which answers each caller for its own job.

    Calls of one turn of the loop, or made while a request of the same kind is in flight, go out together. ``node`` is
    the one that claimed the jobs; the client's own unless given.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.client import Acker
    >>> from tenure.testing import AppWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
    ...         await client.produce("mail", ["a", "b"], config={"type": "queue"})
    ...         claimed = await client.claim("mail", max_count=2)
    ...         async with Acker(client, "mail") as acker:
    ...             return await asyncio.gather(*map(acker.ack, claimed.jobs))
    >>> asyncio.run(main())
    [True, True]
    """

    def __init__(
        self, client: Settling, topic: str, *, node: str | None = None, **options: Unpack[AckerOptions]
    ) -> None:
        self.topic = check_topic_name(topic)
        self.settings = AckerSettings(**options)
        self.sent_count = 0
        """Requests so far."""
        self._client = client
        self._node = node or ""
        self._ack = Ack(node=self._node)
        self._loop = asyncio.get_running_loop()
        # A kind is a key while it has something to send or in flight, and in the line unless it is in flight.
        self._batches: dict[Kind, deque[AckBatch]] = {}
        self._line: deque[Kind] = deque()
        self._flying: dict[asyncio.Task[None], AckBatch] = {}
        self._open: AckBatch | None = None  # where the next plain ack goes
        self._pending_count = 0
        self._woken = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    # One job

    async def ack(self, job: Leased) -> bool:
        """Complete a job; True once that is durable, by the topic's class.

        Raises LeaseLost where the caller no longer holds the job, and Indeterminate where an answer was lost and our
        own first copy may have acked it.
        """
        return await self.settle(job.seq, _lease_of(job))

    async def nack(
        self, job: Leased, *, delay_ms: int | None = None, reason: str | None = None, dead: bool = False
    ) -> bool:
        """Give a job back; True once it was. Raises as `ack` does."""
        return await self.release(job.seq, _lease_of(job), delay_ms=delay_ms, reason=reason, dead=dead)

    async def extend(self, job: Leased, *, lease_ms: int) -> int:
        """Set a job's deadline to now plus ``lease_ms``; return it in wall ms. Raises as `ack` does."""
        return int(await self._add(Extend(node=self._node, lease_ms=lease_ms), job.seq, _lease_of(job)))

    def settle(self, seq: int, lease_id: str) -> asyncio.Future[bool]:
        """Complete a job as `ack` does, and return a future instead of a coroutine."""
        batch = self._open
        if batch is None or seq in batch or len(batch) >= self.settings.batch_seqs_max:
            return self._add(self._ack, seq, lease_id)
        if self._pending_count >= self.settings.pending_max:
            raise _no_room()
        self._pending_count += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        batch[seq] = (lease_id, future)
        return future

    def release(
        self,
        seq: int,
        lease_id: str,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
        dead: bool = False,
        returned: bool = False,
    ) -> asyncio.Future[bool]:
        """Give a job back as `nack` does, and return a future; with ``returned`` the delivery was no try."""
        if returned:
            return self._add(Return(node=self._node, delay_ms=delay_ms or 0, reason=reason), seq, lease_id)
        return self._add(Nack(node=self._node, delay_ms=delay_ms, reason=reason, dead=dead), seq, lease_id)

    # All of them

    async def flush(self) -> None:
        """Return once everything that was settled before has its outcome."""
        batches = [*self._flying.values(), *(batch for batches in self._batches.values() for batch in batches)]
        futures = [future for batch in batches for _, future in batch.values()]
        if futures:
            await asyncio.wait(futures)

    async def close(self, *, deadline_ms: int | None = None) -> None:
        """Send what is pending and take nothing more; settling a job later raises Closed.

        After ``deadline_ms`` what was not sent fails with Closed, and what is in flight with Indeterminate.
        """
        self._closed, self._open = True, None
        with suppress(TimeoutError):
            async with asyncio.timeout(None if deadline_ms is None else deadline_ms / 1000):
                await self._idle.wait()
        self._abandon()
        for task in self._flying:
            task.cancel()
        if self._flying:
            await asyncio.wait(list(self._flying))

    def _abandon(self) -> None:
        """Fail what was not sent; a kind that is in flight is forgotten when its request ends."""
        for batches in self._batches.values():
            while batches:
                self._fail(batches.popleft(), _not_sent())
        for kind in self._line:
            self._forget(kind)
        self._line.clear()

    def _forget(self, kind: Kind) -> None:
        """Drop a kind of which nothing is left to send or in flight."""
        del self._batches[kind]
        if not self._batches:
            self._idle.set()

    # Gathering

    def _add(self, kind: Kind, seq: int, lease_id: str) -> asyncio.Future[Any]:
        if self._closed:
            raise Closed(f"the acker of {self.topic} is closed: make another one")
        if self._pending_count >= self.settings.pending_max:
            raise _no_room()
        batches = self._batches.get(kind)
        if batches is None:
            batches = self._batches[kind] = deque()
            self._line.append(kind)
            self._idle.clear()
        if not batches or seq in batches[-1] or len(batches[-1]) >= self.settings.batch_seqs_max:
            batches.append(AckBatch())
        if kind is self._ack:
            self._open = batches[-1]
        self._pending_count += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        batches[-1][seq] = (lease_id, future)
        self._wake()
        return future

    def _wake(self) -> None:
        if not self._woken and self._line and len(self._flying) < self.settings.requests_max:
            self._woken = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        """Send the oldest batch of each kind in the line, up to `requests_max` requests."""
        self._woken = False
        while self._line and len(self._flying) < self.settings.requests_max:
            kind = self._line.popleft()
            batch = self._batches[kind].popleft()
            if batch is self._open:
                self._open = None
            task = self._loop.create_task(self._send(kind, batch))
            self._flying[task] = batch
            task.add_done_callback(partial(self._land, kind))

    # Sending

    async def _send(self, kind: Kind, batch: AckBatch) -> None:
        self.sent_count += 1
        try:
            answer = await send_batch(self._client, self.topic, kind=kind, batch=batch)
        except Exception as error:
            self._fail(batch, error)
        except asyncio.CancelledError:
            self._fail(batch, Indeterminate("the acker was closed while this was on its way: it may have arrived"))
            raise
        else:
            self._pending_count -= len(batch)
            batch.resolve(answer)

    def _land(self, kind: Kind, task: asyncio.Task[None]) -> None:
        """End a request, also one whose task was cancelled before its first step, and let its kind send the next. The
        callers just answered ran before this, so what they settled goes along.
        """
        batch = self._flying.pop(task)
        if batch:
            self._fail(batch, _not_sent())
        if self._batches[kind]:
            self._line.append(kind)
        else:
            self._forget(kind)
        self._wake()

    def _fail(self, batch: AckBatch, error: Exception) -> None:
        self._pending_count -= len(batch)
        batch.fail(error)


def _lease_of(job: Leased) -> str:
    if job.lease_id is None:
        raise Invalid(f"job {job.seq} is not under a lease: its claim acked it")
    return job.lease_id


def _not_sent() -> Closed:
    return Closed("the acker was closed before this was sent: the lease ends by itself")


def _no_room() -> Overloaded:
    return Overloaded(
        "too many acks are pending (limit pending_max): claim fewer jobs at once", code="busy", limit="pending_max"
    )
