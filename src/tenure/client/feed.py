"""Streams as iterators: one plan gives the next item, and two thin classes wait for it, blocking or on a loop."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from tenure.client.answers import by_code, error_of
from tenure.client.drive import drive, drive_async
from tenure.client.plan import Open, Plan
from tenure.client.sse import Frame
from tenure.client.wire import AsyncWire, Request, Wire
from tenure.errors import TenureError

__all__ = ["AsyncFeed", "Feed", "Source", "error_in", "opened"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What a stream is made of. ``next`` returns None at the end; ``stream`` is what has to be closed."""

    stream: Any

    def next(self) -> Plan[T_co | None]: ...


class _Error(msgspec.Struct):
    code: int = 0
    error: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


_decode_error = msgspec.json.Decoder(_Error).decode


def error_in(frame: Frame) -> TenureError:
    """The error that an ``error`` frame tells of: the stream's last word."""
    try:
        said = _decode_error(frame.data)
    except msgspec.DecodeError:
        said = _Error()
    return by_code(said.code, said.error, said.message or "the stream ended with an error", said.detail)


def opened(request: Request) -> Plan[Any]:
    """Open a stream. Raises the error that the server answers with instead, and where something else answers."""
    stream = yield Open(request)
    if stream.response.status != 200:
        stream.close()
        raise error_of(stream.response)
    kind = stream.response.headers.get("content-type", "text/event-stream")
    if not kind.startswith("text/event-stream"):
        stream.close()
        raise TenureError(f"this is no stream but {kind}: is the URL that of a Tenure server?", code="bad_answer")
    return stream


class Feed(Generic[T]):
    """A stream to iterate over, in one thread; it opens with the first item. Close it, or use ``with``."""

    def __init__(self, wire: Wire, source: Source[T]) -> None:
        self._wire = wire
        self._closed = False
        self.source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            item = None if self._closed else drive(self._wire, self.source.next())
        except TenureError:
            if not self._closed:  # by another thread, which is why the read failed
                raise
            item = None
        if item is None:
            self.close()
            raise StopIteration
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, also one that somebody waits on. On a work stream this gives back what was not settled."""
        self._closed = True
        stream, self.source.stream = self.source.stream, None
        if stream is not None:
            stream.close()


class AsyncFeed(Generic[T]):
    """A stream to iterate over with ``async for``; it opens with the first item. Close it, or use ``async with``."""

    def __init__(self, wire: AsyncWire, source: Source[T]) -> None:
        self._wire = wire
        self._closed = False
        self.source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            item = None if self._closed else await drive_async(self._wire, self.source.next())
        except TenureError:
            if not self._closed:  # by another task, which is why the read failed
                raise
            item = None
        if item is None:
            self.close()
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, also one that somebody waits on. On a work stream this gives back what was not settled."""
        self._closed = True
        stream, self.source.stream = self.source.stream, None
        if stream is not None:
            stream.close()
