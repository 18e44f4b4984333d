"""Request, response and admission: what passes between a protocol and the app."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tenure.broker.answer import Answer, OpenAnswer
from tenure.core.level import Level
from tenure.http.wire.fair_turns import Caller

__all__ = [
    "Admission",
    "Admit",
    "Body",
    "Headers",
    "Later",
    "Render",
    "Request",
    "Response",
    "Result",
    "Send",
    "SharedBytes",
    "Stream",
]

T = TypeVar("T")
Body = bytes | bytearray
"""A request's body; a large one is a bytearray that is not changed any more."""
Headers = list[tuple[bytes, bytes]]


class SharedBytes:
    """Bytes that are sent to many peers, with their encoding as one chunk of HTTP/1.1: made once for all of them."""

    __slots__ = ("chunk", "data")

    def __init__(self, data: bytes) -> None:
        assert data, "an empty chunk would end the body"
        self.data = data
        self.chunk = b"%x\r\n%b\r\n" % (len(data), data)


class Send(Protocol):
    """The sending end of a stream."""

    async def __call__(self, data: bytes) -> None:
        """Send bytes to the peer; return when there is room for more, which is all that empty ones ask for. Raises
        ConnectionError where the peer is gone or too slow.
        """

    def offer(self, shared: SharedBytes) -> bool:
        """Send bytes without waiting. Return False, with nothing sent, where the peer is gone or has not taken what it
        was sent before.
        """


Stream = Callable[[Send], Coroutine[Any, Any, None]]
"""The body of a response that does not end by itself; it is cancelled when the peer is gone."""


class Request:
    """One request: its head, and its body once that is read; from then on its time counts.

    ``path`` is percent-decoded UTF-8 and split off its query; header names are lower case; a repeated header is
    joined by ", ". ``account`` is the key that it came with, on a server without keys the address, also where it was
    refused; "" while that is not known, and where it was refused at the door. ``caller`` is who the time of its answer
    is charged to; None where nobody shares the loop with it.
    """

    __slots__ = ("account", "body", "caller", "client", "headers", "method", "path", "query", "started")

    def __init__(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: Body = b"",
        client: str = "",
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers if headers is not None else {}
        self.body: Body = body
        self.client = client
        self.account = ""
        self.caller: Caller | None = None
        self.started = perf_counter()

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the request was read."""
        return (perf_counter() - self.started) * 1000


class Response(msgspec.Struct, gc=False):
    """The response to a request. A ``stream`` takes the place of the body; then no length is sent."""

    status: int
    body: bytes = b""
    headers: Headers = []
    content_type: bytes = b"application/json"
    stream: Stream | None = None


Render = Callable[[Any, T, float], Response]
"""Make the response of an admitted request from a reply, and from how long a sync kept the answer waiting, in ms."""


class Later(msgspec.Struct, Generic[T], gc=False, eq=False):
    """A response that waits for an answer and for nothing else. ``render`` makes it from the reply.

    With ``ends_with_peer`` the wait is the caller's: it ends with its connection, or with its key.
    """

    answer: Answer[T] | OpenAnswer[T]
    render: Render[T]
    ends_with_peer: bool = False

    def fsync_ms(self, waited_s: float) -> float:
        """Return how long a sync has kept an answer waiting that waited so long, in ms: 0.0 where it needs none."""
        return max(waited_s * 1000, 0.001) if self.answer.level == Level.SYNCED else 0.0


Result = Response | Later[Any] | Coroutine[Any, Any, "Response | Later[Any]"]
"""What a handler returns; a coroutine is run in a task of its own."""


class Admission(Protocol):
    """A request whose head was accepted: its body may be sent."""

    @property
    def request(self) -> Request:
        """The request, without its body until `answer`."""

    @property
    def account(self) -> str:
        """The account that its bytes are charged to."""

    @property
    def body_bytes_max(self) -> int:
        """The largest body that its route takes."""

    def lapsed(self) -> Response | None:
        """Return the refusal where the request would not be admitted any more, else None."""

    def answer(self, body: Body) -> Result:
        """Answer the whole request; called once."""

    def hold(self, later: Later[Any] | None) -> Callable[[], None] | None:
        """Count the request as open: it waits for ``later``, or runs in a task. Return what ends that, if anything."""

    def observed(self, response: Response) -> Response:
        """Count the response to a request that waited; return it."""


Admit = Callable[[Request], Admission | Response]
"""The interface between the wire and the application: called with the head of a request, before its body is read. It
raises nothing.
"""
