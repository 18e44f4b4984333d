"""`Acker`: the jobs of many tasks are settled by few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Unpack

from tenure.client.batching.ack_batch import ACK, AckBatch, Extend, Kind, Nack, Settling, send_lot
from tenure.client.batching.settings import AckerOptions, AckerSettings
from tenure.client.closing import AsyncClosing
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
    """Gathers the acks, nacks and extends of one topic into few requests, and answers each caller for its own job.

    What is settled in one turn of the loop, or while a request of the same kind is in flight, goes out together.
    ``node`` is the one that claimed the jobs; the client's own unless given.

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
        self._node = node
        self._loop = asyncio.get_running_loop()
        # A kind stands here while it has something to send or in flight, and in the line unless it is in flight.
        self._lots: dict[Kind, deque[AckBatch]] = {}
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

        Raises LeaseLost where the job is not the caller's any more, and Indeterminate where an answer was lost and
        nobody can tell whether our own first copy did it.
        """
        return await self.settle(job.seq, _lease_of(job))

    async def nack(
        self, job: Leased, *, delay_ms: int | None = None, reason: str | None = None, dead: bool = False
    ) -> bool:
        """Give a job back; True once it was. Raises as `ack` does."""
        return await self.release(job.seq, _lease_of(job), delay_ms=delay_ms, reason=reason, dead=dead)

    async def extend(self, job: Leased, *, lease_ms: int) -> int:
        """Set a job's deadline to now plus ``lease_ms``; returns it in wall ms. Raises as `ack` does."""
        return int(await self._add(Extend(lease_ms), job.seq, _lease_of(job)))

    def settle(self, seq: int, lease_id: str) -> asyncio.Future[bool]:
        """As `ack`, for who gathers futures: neither a task nor a coroutine is made for it."""
        lot = self._open
        if lot is None or seq in lot or len(lot) >= self.settings.batch_seqs_max:
            return self._add(ACK, seq, lease_id)
        if self._pending_count >= self.settings.pending_max:
            raise _no_room()
        self._pending_count += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        lot[seq] = (lease_id, future)
        return future

    def release(
        self, seq: int, lease_id: str, *, delay_ms: int | None = None, reason: str | None = None, dead: bool = False
    ) -> asyncio.Future[bool]:
        """As `nack`, for who gathers futures."""
        return self._add(Nack(delay_ms, reason, dead), seq, lease_id)

    # All of them

    async def flush(self) -> None:
        """Return once everything that was settled before has its outcome."""
        lots = [*self._flying.values(), *(lot for lots in self._lots.values() for lot in lots)]
        futures = [future for lot in lots for _, future in lot.values()]
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
        """Fail what was not sent; a kind that is in flight forgets itself when that ends."""
        for lots in self._lots.values():
            while lots:
                self._fail(lots.popleft(), _not_sent())
        for kind in self._line:
            self._forget(kind)
        self._line.clear()

    def _forget(self, kind: Kind) -> None:
        """Nothing of a kind is left to send or in flight."""
        del self._lots[kind]
        if not self._lots:
            self._idle.set()

    # Gathering

    def _add(self, kind: Kind, seq: int, lease_id: str) -> asyncio.Future[Any]:
        if self._closed:
            raise Closed(f"the acker of {self.topic} is closed: make another one")
        if self._pending_count >= self.settings.pending_max:
            raise _no_room()
        lots = self._lots.get(kind)
        if lots is None:
            lots = self._lots[kind] = deque()
            self._line.append(kind)
            self._idle.clear()
        if not lots or seq in lots[-1] or len(lots[-1]) >= self.settings.batch_seqs_max:
            lots.append(AckBatch())
        if kind is ACK:
            self._open = lots[-1]
        self._pending_count += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        lots[-1][seq] = (lease_id, future)
        self._wake()
        return future

    def _wake(self) -> None:
        if not self._woken and self._line and len(self._flying) < self.settings.requests_max:
            self._woken = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        """Put the oldest lot of each kind in the line in flight, as far as there may be requests."""
        self._woken = False
        while self._line and len(self._flying) < self.settings.requests_max:
            kind = self._line.popleft()
            lot = self._lots[kind].popleft()
            if lot is self._open:
                self._open = None
            task = self._loop.create_task(self._send(kind, lot))
            self._flying[task] = lot
            task.add_done_callback(partial(self._land, kind))

    # Sending

    async def _send(self, kind: Kind, lot: AckBatch) -> None:
        self.sent_count += 1
        try:
            answer = await send_lot(self._client, self.topic, node=self._node, kind=kind, lot=lot)
        except Exception as error:
            self._fail(lot, error)
        except asyncio.CancelledError:
            self._fail(lot, Indeterminate("the acker was closed while this was on its way: it may have arrived"))
            raise
        else:
            self._pending_count -= len(lot)
            lot.tell(answer)

    def _land(self, kind: Kind, task: asyncio.Task[None]) -> None:
        """End a request, also one whose task was cancelled before its first step and never ran: its kind may send the
        next. The callers just answered ran before this, and what they settled goes along.
        """
        lot = self._flying.pop(task)
        if lot:
            self._fail(lot, _not_sent())
        if self._lots[kind]:
            self._line.append(kind)
        else:
            self._forget(kind)
        self._wake()

    def _fail(self, lot: AckBatch, error: Exception) -> None:
        self._pending_count -= len(lot)
        lot.fail(error)


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
