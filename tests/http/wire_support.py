"""Raw peers for the wire, and a way to run a test on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
import uvloop

from tenure.http.api.app import App
from tenure.http.server import Server, serve
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Admission, Body, Request, Response, Result, Send

__all__ = [
    "Peer",
    "Reply",
    "Welcome",
    "eventually",
    "handle",
    "on_both_loops",
    "pass_ms",
    "post",
    "serving",
    "talk",
    "ticking",
]

Test = Callable[[], Coroutine[Any, Any, None]]


def on_both_loops(test: Test) -> Any:
    """Run a test on asyncio's own loop and on uvloop, and fail it where anything was left to the loop's handler."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def run(loop: str) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            await asyncio.wait_for(test(), 60)
            await asyncio.sleep(0)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
            runner.run(watched())
        assert complaints == []

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


class Reply(msgspec.Struct):
    """A response as a peer read it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error's word."""
        return str(msgspec.json.decode(self.body)["error"]["code"])


class Peer:
    """A client that sends exactly the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: Server) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_forever(self, data: bytes) -> None:
        """Send the same again and again, until the connection breaks."""
        while True:
            await self.send(data)

    async def head(self) -> Reply:
        """The next response's head."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return Reply(int(lines[0].split()[1]), headers, b"")

    async def reply(self) -> Reply:
        """The next response with its body, which has a length."""
        reply = await self.head()
        reply.body = await self.reader.readexactly(int(reply.headers.get("content-length", 0)))
        return reply

    async def chunk(self) -> bytes:
        """The next chunk of a stream."""
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def closed(self) -> bool:
        """Wait for the end of the connection; True where nothing else came before it."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


def post(path: bytes = b"/echo", body: bytes = b"{}", *headers: bytes) -> bytes:
    """A plain request."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST %b HTTP/1.1\r\nhost: test\r\n%bcontent-length: %d\r\n\r\n%b" % (path, lines, len(body), body)


def handle(app: App, request: Request) -> Result:
    """Admit and answer a request that is there whole."""
    admitted = app.admit_whole(request)
    return admitted if isinstance(admitted, Response) else admitted.answer(request.body)


class Welcome:
    """Admits every request, and answers it by a function; ``bodies`` of up to ``body_bytes_max`` are charged to the
    header ``x-account``, else to the address.
    """

    def __init__(self, answer: Callable[[Request], Any], *, body_bytes_max: int = 64 << 20) -> None:
        self._answer = answer
        self._body_bytes_max = body_bytes_max

    def __call__(self, request: Request) -> Admission | Response:
        return _Welcomed(self._answer, request, self._body_bytes_max)


class _Welcomed:
    def __init__(self, answer: Callable[[Request], Any], request: Request, body_bytes_max: int) -> None:
        self._answer = answer
        self.request = request
        self.account = request.headers.get("x-account", request.client)
        self.body_bytes_max = body_bytes_max

    def lapsed(self) -> Response | None:
        return None

    def hold(self, later: object) -> None:
        """Count nothing."""

    def observed(self, response: Response) -> Response:
        return response

    def answer(self, body: Body) -> Any:
        self.request.body = body
        return self._answer(self.request)


SHARED = b"s" * 3_000_000


class AnsweringHandler:
    """A handler with one path for each way to answer; requests to ``refused`` are refused at the door, those to
    ``known/<status>`` have a key and are refused at their head where that is 4xx, and those under way are refused once
    ``lapse`` is set.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self.seen: list[Request] = []
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.sent_bytes = 0
        self.lapse = False

    def admit(self, request: Request) -> Admission | Response:
        """Look at the head."""
        if request.path == "/refused":
            return Response(401, b'{"error":{"code":"unauthorized"}}')
        if request.path.startswith("/known/4"):
            request.account = "key"
            return Response(int(request.path[7:]), b"{}")
        return _Answering(self, request)

    def handle(self, request: Request) -> Any:
        self.seen.append(request)
        match request.path:
            case "/poll":
                return self._poll(request)
            case "/stream":
                return Response(200, stream=self._stream, content_type=b"text/event-stream")
            case "/flood":
                return Response(200, stream=self._flood, content_type=b"text/event-stream")
            case "/big":
                return Response(200, b"x" * 3_000_000)
            case "/shared":
                return Response(200, SHARED)
            case "/broken":
                raise RuntimeError("a bug")
            case "/split":
                return Response(200, b"{}", headers=[(b"x", b"a\r\nset-cookie: b")])
        if request.path.startswith(("/status/", "/known/")):
            return Response(int(request.path.rpartition("/")[2]), b"{}")
        return Response(200, bytes(request.body))

    async def _poll(self, request: Request) -> Response:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(200, bytes(request.body))

    async def _stream(self, send: Send) -> None:
        try:
            await send(b"one")
            await send(b"")
            self.started.set()
            await self.release.wait()
            await send(b"two")
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _flood(self, send: Send) -> None:
        try:
            while True:
                await send(b"x" * 10_000)
                self.sent_bytes += 10_000
        finally:
            self.cancelled.set()


class _Answering(_Welcomed):
    def __init__(self, bench: AnsweringHandler, request: Request) -> None:
        super().__init__(bench.handle, request, bench.body_bytes_max)
        if request.path.startswith("/known/"):
            self.account = "key"
        self._bench = bench

    def lapsed(self) -> Response | None:
        return Response(401, b'{"error":{"code":"unauthorized"}}') if self._bench.lapse else None


class Serving:
    """A server with a bench behind it, for the length of a block; nothing may be left in its registry afterwards."""

    def __init__(self, limits: WireLimits, *, timer: bool) -> None:
        self.limits = limits
        self.timer = timer

    async def __aenter__(self) -> tuple[Server, AnsweringHandler]:
        bench = AnsweringHandler(self.limits.body_bytes_max)
        self.server = await serve(bench.admit, limits=self.limits)
        if not self.timer:
            self.server.connections.stop()
        return self.server, bench

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.server.drain(0.0)
        if kind is None:
            assert len(self.server.connections) == 0
            assert self.server.connections.bodies.held_bytes == 0


def serving(**limits: int) -> Serving:
    """Serve a bench under these limits. The timer is stopped: the server has the time that the test tells it."""
    return Serving(WireLimits(**{"tick_ms": 1, **limits}), timer=False)


def ticking(**limits: int) -> Serving:
    """The same with its timer running."""
    return Serving(WireLimits(**limits), timer=True)


def pass_ms(server: Server, elapsed_ms: int) -> None:
    """Let the server's deadlines see that so much time has passed."""
    registry = server.connections
    registry.tick(registry.now_s + elapsed_ms / 1000)


async def talk(server: Server, data: bytes) -> Reply:
    """One request on a connection of its own."""
    async with await Peer.connect(server) as peer:
        await peer.send(data)
        return await peer.reply()


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds; the test's own timeout ends it where it never does."""
    while not condition():
        await asyncio.sleep(0.001)
