"""`Wire` and `AsyncWire`: the seam between plans and the network, small enough for a fake in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

__all__ = [
    "AsyncStream",
    "AsyncWire",
    "Request",
    "Response",
    "Stream",
    "Wire",
    "WireError",
    "all_in_use",
    "client_closed",
]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request. ``path`` starts with a slash and holds its query; a body is JSON. ``wait_ms`` is how long the
    server may keep it on purpose, which is added to the timeout. ``step_ms_max``, unless 0, bounds every single wait of
    it: for a connection, for making one, for the answer.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    wait_ms: int = 0
    step_ms_max: int = 0

    def for_stream(self) -> Request:
        """Return the same request for an event stream, whose waits are the stream's own."""
        return Request(self.method, self.path, self.body, {"accept": "text/event-stream", **self.headers})

    def seconds(self, ms: int) -> float:
        """Return a time limit of the settings in seconds, cut to ``step_ms_max``."""
        return (min(ms, self.step_ms_max) if self.step_ms_max else ms) / 1000


class Response(msgspec.Struct, frozen=True, gc=False):
    """One whole answer. Of its headers those are there that a client looks at; their names are lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class WireError(Exception):
    """The network failed. ``sent`` is False only where not one byte of the request can have reached the server.
    ``closed`` says that the client itself was closed, so that no repeat can help, and ``busy`` that no connection of it
    became free in time.
    """

    def __init__(self, message: str, *, sent: bool, closed: bool = False, busy: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent
        self.closed = closed
        self.busy = busy

    @property
    def is_own(self) -> bool:
        """Whether the client itself was in the way, and no server and no network."""
        return self.closed or self.busy


def client_closed() -> WireError:
    """Return the error of a request of a client that is closed: nothing was sent."""
    return WireError("this client is closed: make another one", sent=False, closed=True)


def all_in_use(setting: str) -> WireError:
    """Return the error of a request that waited for a connection in vain: nothing was sent."""
    message = f"every connection of this client is in use: send less at once, or raise {setting}"
    return WireError(message, sent=False, busy=True)


class Stream(Protocol):
    """An open stream. ``response`` has the status, and the body where that is not 200."""

    response: Response

    def read(self) -> bytes: ...

    def close(self) -> None: ...


class Wire(Protocol):
    """Requests over blocking sockets. Raises WireError; an HTTP status is never an exception here."""

    def send(self, request: Request) -> Response: ...

    def open(self, request: Request) -> Stream: ...

    def close(self) -> None: ...


class AsyncStream(Protocol):
    """As Stream, on an event loop."""

    response: Response

    async def read(self) -> bytes: ...

    def close(self) -> None: ...


class AsyncWire(Protocol):
    """As Wire, on an event loop."""

    async def send(self, request: Request) -> Response: ...

    async def open(self, request: Request) -> AsyncStream: ...

    async def close(self) -> None: ...
