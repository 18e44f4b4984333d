"""`Acker`: the jobs of many tasks are settled by few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Unpack, assert_never

import msgspec

from tenure.client.gather import own
from tenure.client.gather_settings import AckerOptions, AckerSettings
from tenure.client.replies import Extended, Settled
from tenure.core.names import check_topic_name
from tenure.errors import Closed, Indeterminate, Invalid, LeaseLost, Overloaded

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["Acker", "Leased", "Settling"]


class Leased(Protocol):
    """A job under a lease."""

    @property
    def seq(self) -> int: ...

    @property
    def lease_id(self) -> str | None: ...


class Settling(Protocol):
    """Whoever keeps jobs on leases, besides a broker: what the requests go through."""

    @property
    def ack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def nack(self) -> Callable[..., Coroutine[Any, Any, Settled]]: ...

    @property
    def extend(self) -> Callable[..., Coroutine[Any, Any, Extended]]: ...


class _Ack(msgspec.Struct, frozen=True):
    """Complete."""


class _Nack(msgspec.Struct, frozen=True):
    """Give back."""

    delay_ms: int | None
    reason: str | None
    dead: bool


class _Extend(msgspec.Struct, frozen=True):
    """Keep."""

    lease_ms: int


_Kind = _Ack | _Nack | _Extend
"""A call and its parameters: what is equal in this goes out together."""
_Lot = dict[int, tuple[str, "asyncio.Future[Any]"]]
"""The jobs of one request, by seq; no seq is in it twice."""
_ACK: Final = _Ack()


class Acker:
    """Gathers the acks, nacks and extends of one topic into few requests, and answers each caller for its own job.

    What is settled in one turn of the loop, or while a request of the same kind is in flight, goes out together.
    ``node`` is the one that claimed the jobs; the client's own unless given.
    """

    def __init__(
        self, client: AsyncClient | Settling, topic: str, *, node: str | None = None, **options: Unpack[AckerOptions]
    ) -> None:
        self.topic = check_topic_name(topic)
        self.settings = AckerSettings(**options)
        self.sent_count = 0
        """Requests so far."""
        self._client = client
        self._node = node
        self._loop = asyncio.get_running_loop()
        # A kind stands here while it has something to send or in flight, and in the line unless it is in flight.
        self._lots: dict[_Kind, deque[_Lot]] = {}
        self._line: deque[_Kind] = deque()
        self._flying: dict[asyncio.Task[None], _Lot] = {}
        self._open: _Lot | None = None  # where the next plain ack goes
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
        return int(await self._add(_Extend(lease_ms), job.seq, _lease_of(job)))

    def settle(self, seq: int, lease_id: str) -> asyncio.Future[bool]:
        """As `ack`, for who gathers futures: neither a task nor a coroutine is made for it."""
        lot = self._open
        if lot is None or seq in lot or len(lot) >= self.settings.batch_seqs_max:
            return self._add(_ACK, seq, lease_id)
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
        return self._add(_Nack(delay_ms, reason, dead), seq, lease_id)

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _abandon(self) -> None:
        """Fail what was not sent; a kind that is in flight forgets itself when that ends."""
        error = Closed("the acker was closed before this was sent: the lease ends by itself")
        for lots in self._lots.values():
            while lots:
                self._fail(lots.popleft(), error)
        for kind in self._line:
            del self._lots[kind]
        self._line.clear()

    # Gathering

    def _add(self, kind: _Kind, seq: int, lease_id: str) -> asyncio.Future[Any]:
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
            lots.append({})
        if kind is _ACK:
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
            self._flying[self._loop.create_task(self._send(kind, lot))] = lot

    # Sending

    async def _send(self, kind: _Kind, lot: _Lot) -> None:
        try:
            answer = await self._call(kind, lot)
        except Exception as error:
            self._fail(lot, error)
        except asyncio.CancelledError:
            self._fail(lot, Indeterminate("the acker was closed while this was on its way: it may have arrived"))
            raise
        else:
            self._tell(lot, answer)
        finally:
            task = asyncio.current_task()
            assert task is not None
            del self._flying[task]
            if self._lots[kind]:
                self._line.append(kind)
            else:
                del self._lots[kind]
            if not self._lots:
                self._idle.set()
            # The callers just answered run before the next start does, and what they settle goes along.
            self._wake()

    async def _call(self, kind: _Kind, lot: _Lot) -> Settled | Extended:
        self.sent_count += 1
        client, topic, node, seqs = self._client, self.topic, self._node, list(lot)
        fences = [lease_id for lease_id, _ in lot.values()]
        # One lease fences all of its jobs: less to write and to read.
        ids, one = (None, fences[0]) if fences.count(fences[0]) == len(fences) else (fences, None)
        match kind:
            case _Ack():
                return await client.ack(topic, seqs, node=node, lease_ids=ids, lease_id=one)
            case _Nack(delay_ms, reason, dead):
                return await client.nack(
                    topic, seqs, node=node, lease_ids=ids, lease_id=one, delay_ms=delay_ms, reason=reason, dead=dead
                )
            case _Extend(lease_ms):
                return await client.extend(topic, seqs, node=node, lease_ids=ids, lease_id=one, lease_ms=lease_ms)
            case _:
                assert_never(kind)

    def _tell(self, lot: _Lot, answer: Settled | Extended) -> None:
        self._pending_count -= len(lot)
        skipped = set(answer.skipped)
        deadlines = answer.deadlines if isinstance(answer, Extended) else {}
        for seq, (_, future) in lot.items():
            if future.done():  # its caller was cancelled
                continue
            if seq in skipped:
                future.set_exception(_lost(seq, repeated=answer.repeated))
            else:
                future.set_result(deadlines.get(seq, True))

    def _fail(self, lot: _Lot, error: Exception) -> None:
        self._pending_count -= len(lot)
        for _, future in lot.values():
            if not future.done():
                future.set_exception(own(error))


def _lease_of(job: Leased) -> str:
    if job.lease_id is None:
        raise Invalid(f"job {job.seq} is not under a lease: its claim acked it")
    return job.lease_id


def _lost(seq: int, *, repeated: bool) -> LeaseLost | Indeterminate:
    if repeated:
        return Indeterminate(
            f"job {seq}: an answer was lost, and the repeat found the lease ended, maybe by us", seq=seq
        )
    return LeaseLost(f"job {seq} is not ours any more: stop working on it", seq=seq)


def _no_room() -> Overloaded:
    return Overloaded("too many jobs wait for being settled: take fewer at once", code="busy", limit="pending_max")
