"""Wires for tests: `AppWire` into the HTTP app of a broker without a socket, and `LossyWire`, which loses messages.

>>> import asyncio
>>> from tenure.client import AsyncClient
>>> from tenure.testing import memory_broker
>>> from tenure.testing.wire import AppWire
>>> async def put_and_claim() -> bytes:
...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
...         await client.put_topic("mail", type="queue")
...         await client.produce("mail", [{"to": "you"}])
...         claimed = await client.claim("mail")
...         return bytes(claimed.jobs[0].data)
>>> asyncio.run(put_and_claim())
b'{"to":"you"}'
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from urllib.parse import unquote

from tenure.broker.broker import Broker
from tenure.client.transport.wire import AsyncStream, AsyncWire, Request, Response, Stream, WireError
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.api.prometheus import Exposition, Traffic
from tenure.http.routes import ROUTES
from tenure.http.settings import ServerSettings
from tenure.http.wire import message
from tenure.http.wire.respond import carry_out, run_stream

__all__ = ["AppWire", "LossyWire", "ThreadWire"]

_CHUNKS_MAX = 64


class AppWire:
    """An AsyncWire to a broker in this process: the same routes and bodies as over the network, no keys.

    `down` makes it refuse to connect, like a server that does not run; open streams break then.
    """

    def __init__(self, broker: Broker, *, settings: ServerSettings | None = None) -> None:
        context = Context(broker, settings=settings)
        traffic = Traffic()
        context.exposition = Exposition(traffic, wire=dict, topics_max=context.settings.metrics_topics_max)
        self._app = App(context, ROUTES, limits=context.settings.limits, observe=traffic.observe)
        self._streams: set[_AppStream] = set()
        self._down = False

    @property
    def down(self) -> bool:
        """Whether the wire refuses to connect."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        self._down = down
        if down:
            for stream in list(self._streams):
                stream.break_off()

    async def send(self, request: Request) -> Response:
        answer = await self._answer(request)
        headers = {name.decode(): value.decode() for name, value in answer.headers}
        return Response(answer.status, answer.body, headers)

    async def open(self, request: Request) -> AsyncStream:
        headers = {"accept": "text/event-stream", **request.headers}
        answer = await self._answer(Request(request.method, request.path, request.body, headers))
        head = Response(answer.status, answer.body, {name.decode(): value.decode() for name, value in answer.headers})
        stream = _AppStream(head, answer.stream, self._streams)
        return stream

    async def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        await asyncio.sleep(0)

    async def _answer(self, request: Request) -> message.Response:
        if self._down:
            raise WireError("connection refused", sent=False)
        path, _, query = request.path.partition("?")
        headers = dict(request.headers)
        if request.body is not None:
            headers["content-type"] = "application/json"
        asked = message.Request(
            request.method, unquote(path), query=query, headers=headers, body=request.body or b"", client="app-wire"
        )
        coming: asyncio.Future[message.Response] = asyncio.get_running_loop().create_future()

        def done(response: message.Response) -> None:
            if not coming.done():
                coming.set_result(response)

        admitted = self._app.admit_whole(asked)
        outcome = admitted if isinstance(admitted, message.Response) else carry_out(admitted, asked.body, done)
        if isinstance(outcome, message.Response):
            await asyncio.sleep(0)
            return outcome
        try:
            return await coming
        except asyncio.CancelledError:
            outcome.lose()
            raise


class _AppStream:
    """A stream of the app, run in a task; its messages wait in a short queue, as in a socket's buffer."""

    def __init__(self, response: Response, stream: message.Stream | None, among: set[_AppStream]) -> None:
        self.response = response
        self._chunks: asyncio.Queue[bytes | WireError] = asyncio.Queue(_CHUNKS_MAX)
        self._among = among
        self._task = asyncio.ensure_future(self._run(stream)) if stream is not None else None
        self._gone = False
        among.add(self)

    async def _run(self, stream: message.Stream) -> None:
        ended = await run_stream(stream, self)
        self._among.discard(self)
        if not self._gone:
            await self._chunks.put(b"" if ended else WireError("the stream was cut", sent=True))

    async def __call__(self, data: bytes) -> None:
        if self._gone:
            raise ConnectionError("the peer is gone")
        if data:
            await self._chunks.put(data)

    def offer(self, shared: message.SharedBytes) -> bool:
        if self._gone or self._chunks.full():
            return False
        self._chunks.put_nowait(shared.data)
        return True

    async def read(self) -> bytes:
        chunk = await self._chunks.get()
        if isinstance(chunk, WireError):
            raise chunk
        return chunk

    def break_off(self) -> None:
        """Break the connection, for both sides."""
        self.close()
        while not self._chunks.empty():
            self._chunks.get_nowait()
        self._chunks.put_nowait(WireError("the connection was reset", sent=True))

    def close(self) -> None:
        self._gone = True
        self._among.discard(self)
        if self._task is not None:
            self._task.cancel()


class LossyWire:
    """A wire that loses messages, by the number of the call (from 1) among those for which ``only`` is True.

    ``refuse``: the connection is not made. ``lose_request``: the request is sent and never arrives. ``lose_answer``: it
    is carried out and the answer is lost. ``count`` is the number of calls so far.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.testing import AppWire, LossyWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker:
    ...         wire = LossyWire(AppWire(broker), lose_answer=[1])
    ...         async with AsyncClient(wire=wire) as client:
    ...             produced = await client.produce("mail", ["hello"])
    ...         return produced.last_seq, wire.count
    >>> asyncio.run(main())
    (1, 2)
    """

    def __init__(
        self,
        wire: AsyncWire,
        *,
        refuse: Collection[int] = (),
        lose_request: Collection[int] = (),
        lose_answer: Collection[int] = (),
        only: Callable[[Request], bool] = lambda request: True,
    ) -> None:
        self._wire = wire
        self._refuse = refuse
        self._lose_request = lose_request
        self._lose_answer = lose_answer
        self._only = only
        self.count = 0
        self.sent: list[Request] = []

    def lose_nothing(self) -> None:
        """Lose nothing from now on."""
        self._refuse = self._lose_request = self._lose_answer = ()

    async def send(self, request: Request) -> Response:
        if not self._only(request):
            return await self._wire.send(request)
        self.count += 1
        number = self.count
        self.sent.append(request)
        if number in self._refuse:
            raise WireError("connection refused", sent=False)
        if number in self._lose_request:
            raise WireError("the connection was reset", sent=True)
        response = await self._wire.send(request)
        if number in self._lose_answer:
            raise WireError("the connection was reset", sent=True)
        return response

    async def open(self, request: Request) -> AsyncStream:
        return await self._wire.open(request)

    async def close(self) -> None:
        await self._wire.close()


class ThreadWire:
    """A blocking Wire from another thread into an AsyncWire on a running loop: a `Client` for a broker in memory."""

    def __init__(self, wire: AsyncWire, loop: asyncio.AbstractEventLoop) -> None:
        self._wire = wire
        self._loop = loop

    def send(self, request: Request) -> Response:
        return asyncio.run_coroutine_threadsafe(self._wire.send(request), self._loop).result()

    def open(self, request: Request) -> Stream:
        opened = asyncio.run_coroutine_threadsafe(self._wire.open(request), self._loop).result()
        return _ThreadStream(opened, self._loop)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._wire.close(), self._loop).result()


class _ThreadStream:
    def __init__(self, stream: AsyncStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self.response = stream.response

    def read(self) -> bytes:
        return asyncio.run_coroutine_threadsafe(self._stream.read(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stream.close)
