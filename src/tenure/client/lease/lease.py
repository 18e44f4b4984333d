"""The jobs of one claim in the hand of whoever works on them."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from tenure.client.lease.held_job import HeldJob
from tenure.client.lease.plans import Leased, ack, extend, leave, nack
from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.handle import Call, Handle
from tenure.client.transport.wire import AsyncWire, Wire

__all__ = ["AsyncLease", "Lease"]

T = TypeVar("T")
W = TypeVar("W", bound=Wire | AsyncWire)


class _Lease(Handle[W, Leased[T]], Generic[W, T]):
    """What both kinds of lease are."""

    ack = Call(ack)
    nack = Call(nack)
    extend = Call(extend)

    @property
    def lease_id(self) -> str | None:
        """Its id; None where nothing was there, or where the claim acked by itself."""
        return self._context.lease_id

    @property
    def jobs(self) -> list[HeldJob[T]]:
        """Its jobs, settled or not."""
        return self._context.jobs

    @property
    def held(self) -> list[HeldJob[T]]:
        """Those neither settled nor found lost."""
        return list(self._context.held.values())

    @property
    def deadline(self) -> int:
        """When it ends, in wall ms of the server; 0 where nothing is held."""
        return self._context.deadline

    def __iter__(self) -> Iterator[HeldJob[T]]:
        return iter(self._context.jobs)

    def __len__(self) -> int:
        return len(self._context.jobs)

    def __repr__(self) -> str:
        session = self._context
        held = f"{len(session.held)} of {len(session.jobs)} jobs held"
        return f"<{type(self).__name__} {session.lease_id} of {session.topic!r}: {held}, deadline={session.deadline}>"


class Lease(_Lease[Wire, T], awaits=False):
    """Jobs that are ours until the deadline. As ``with``: acked at its end, or given back where it raises;
    by one short attempt (`leave_ms`) where that is an interrupt.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._wire, leave(self._context, error))


class AsyncLease(_Lease[AsyncWire, T], awaits=True):
    """Jobs that are ours until the deadline. As ``async with``: acked at its end, or given back where it raises;
    by one short attempt (`leave_ms`) where that is a cancellation.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await drive_async(self._wire, leave(self._context, error))
