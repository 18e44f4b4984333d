"""`Lease` and `AsyncLease`: the jobs of one claim, to ack, nack or extend."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from tenure.client.lease.held_job import HeldJob
from tenure.client.lease.plans import Leased, ack, extend, nack, settle_on_exit
from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.handle import Call, Handle
from tenure.client.transport.wire import AsyncWire, Wire

__all__ = ["AsyncLease", "Lease"]

T = TypeVar("T")
W = TypeVar("W", bound=Wire | AsyncWire)


class _Lease(Handle[W, Leased[T]], Generic[W, T]):
    """The methods of both kinds of lease."""

    ack = Call(ack)
    nack = Call(nack)
    extend = Call(extend)

    @property
    def lease_id(self) -> str | None:
        """The lease id; None where no job was ready, or where the claim acked by itself."""
        return self._context.lease_id

    @property
    def jobs(self) -> list[HeldJob[T]]:
        """All jobs of the claim, settled or not."""
        return self._context.jobs

    @property
    def held(self) -> list[HeldJob[T]]:
        """The jobs neither settled nor found lost."""
        return list(self._context.held.values())

    @property
    def deadline(self) -> int:
        """When the lease ends, in wall ms of the server; 0 where nothing is held."""
        return self._context.deadline

    def __iter__(self) -> Iterator[HeldJob[T]]:
        return iter(self._context.jobs)

    def __len__(self) -> int:
        return len(self._context.jobs)

    def __repr__(self) -> str:
        lease = self._context
        held = f"{len(lease.held)} of {len(lease.jobs)} jobs held"
        return f"<{type(self).__name__} {lease.lease_id} of {lease.topic!r}: {held}, deadline={lease.deadline}>"


class Lease(_Lease[Wire, T], awaits=False):
    """Jobs leased to this node until the deadline. Use it as ``with``: its end acks the jobs, or gives them back where
    the block raises; by one short attempt (`leave_ms`) where that is an interrupt.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._wire, settle_on_exit(self._context, error))


class AsyncLease(_Lease[AsyncWire, T], awaits=True):
    """Jobs leased to this node until the deadline. Use it as ``async with``: its end acks the jobs, or gives them back
    where the block raises; by one short attempt (`leave_ms`) where that is a cancellation.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await drive_async(self._wire, settle_on_exit(self._context, error))
