"""`Feed` and `AsyncFeed`: streams as iterators, blocking or on an event loop, over one plan for the next item."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from tenure.client.closing import Closing
from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.handle import Handle, Method
from tenure.client.plan.steps import Plan
from tenure.client.transport.stream_connection import Line
from tenure.client.transport.wire import AsyncWire, Wire
from tenure.errors import TenureError

__all__ = ["AsyncFeed", "Feed", "Feeding", "Source"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C = TypeVar("C")
W = TypeVar("W", bound=Wire | AsyncWire)
P = ParamSpec("P")


class Source(Protocol[T_co]):
    """The plans of a stream. ``next`` returns None at the end; ``line`` is the connection to close."""

    line: Line

    def next(self) -> Plan[T_co | None]: ...


class _Flow(Generic[W, T]):
    """The rules of both kinds of feed."""

    def __init__(self, wire: W, source: Source[T]) -> None:
        self._wire = wire
        self.source = source

    def _next(self) -> Plan[T | None]:
        """Return the next item; None at the end, also where another thread or task closed the feed."""
        item = None
        try:
            if not self.source.line.closed:
                item = yield from self.source.next()
        except TenureError:
            if not self.source.line.closed:  # else another thread or task closed it, and so the read failed
                raise
        if item is None:
            self.close()
        return item

    def close(self) -> None:
        """End the stream, also while another thread or task reads it. A work stream gives back its unsettled jobs."""
        self.source.line.close()


class Feed(_Flow[Wire, T], Closing):
    """A stream to iterate over, in one thread; it opens with the first item. Close it, or use ``with``."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = drive(self._wire, self._next())
        if item is None:
            raise StopIteration
        return item


class AsyncFeed(_Flow[AsyncWire, T]):
    """A stream to iterate over with ``async for``; it opens with the first item. Close it, or use ``async with``.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.testing import AppWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
    ...         await client.produce("mail", ["a"], config={"type": "queue"})
    ...         async with client.work("mail") as feed:
    ...             async for jobs in feed:
    ...                 if jobs:  # an empty list is a heartbeat
    ...                     return [job.seq for job in jobs]
    >>> asyncio.run(main())
    [1]
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await drive_async(self._wire, self._next())
        if item is None:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Feeding(Method, Generic[C, P, T]):
    """A method that returns a feed over a source."""

    if TYPE_CHECKING:

        def __init__(self, plan_function: Callable[Concatenate[C, P], Source[T]]) -> None: ...

        @overload
        def __get__(
            self, instance: None, owner: type[Handle[Wire, C]]
        ) -> Callable[Concatenate[Handle[Wire, C], P], Feed[T]]: ...
        @overload
        def __get__(
            self, instance: None, owner: type[Handle[AsyncWire, C]]
        ) -> Callable[Concatenate[Handle[AsyncWire, C], P], AsyncFeed[T]]: ...
        @overload
        def __get__(self, instance: Handle[Wire, C], owner: type) -> Callable[P, Feed[T]]: ...
        @overload
        def __get__(self, instance: Handle[AsyncWire, C], owner: type) -> Callable[P, AsyncFeed[T]]: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...

    def return_type(self, plan_type: str, *, awaits: bool) -> str:
        return plan_type.replace("Source[", "AsyncFeed[" if awaits else "Feed[", 1)

    def blocking_method(self) -> Callable[..., Any]:
        return self._make_method(Feed)

    def async_method(self) -> Callable[..., Any]:
        return self._make_method(AsyncFeed)

    def _make_method(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        source = self.plan_function

        def method(self: Handle[Any, Any], *args: Any, **options: Any) -> Any:
            return kind(self._wire, source(self._context, *args, **options))

        return method
