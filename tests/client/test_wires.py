"""The two real wires: keys, TLS, limits, timeouts, and whether anything was sent."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import AsyncClient, Client, Closed, Denied, Indeterminate, Invalid, Overloaded, TenureError
from tenure.client import ClientSettings, Request, WireError
from tenure.client.transport.aio import LoopWire
from tenure.client.transport.blocking import SocketWire
from tests.client.both_clients import Both, make_client
from tests.kit.server import Running, serving

ONCE = ClientSettings(attempts_max=1)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = "all,reader:read:public"
    with serving(tmp_path_factory.mktemp("guarded") / "data", TENURE_API_KEYS=keys) as server:
        yield server


async def test_a_key_is_sent_as_a_bearer_and_its_limits_are_told(kind: str, guarded: Running, name: str) -> None:
    async with make_client(kind, guarded.url, key="all") as client:
        await client.produce(name, [1])
    async with make_client(kind, guarded.url, key="reader") as client:
        with pytest.raises(Denied) as caught:
            await client.topic(name)
        assert caught.value.code == "forbidden"
    for key in (None, "wrong"):
        async with make_client(kind, guarded.url, key=key) as client:
            with pytest.raises(Denied) as caught:
                await client.topic(name)
            assert caught.value.code == "unauthorized"
            with pytest.raises(Denied):
                await Both(client.inner.work(name)).next()


async def test_a_key_that_cannot_stand_in_a_header_is_refused(kind: str) -> None:
    for key in ("", "a\r\nx: y", "schlüssel"):
        with pytest.raises(Invalid):
            make_client(kind, "http://127.0.0.1:4000", key=key)


async def test_tls_with_a_certificate_of_ones_own(
    kind: str, tmp_path: Path, certificate: tuple[Path, Path], name: str
) -> None:
    cert, key = certificate
    with serving(tmp_path / "data", "--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://")
        async with make_client(kind, server.url, tls=ssl.create_default_context(cafile=cert)) as client:
            assert (await client.produce(name, [1], config={"type": "queue"})).count == 1
            async with Both(client.inner.work(name)) as work:
                while not await work.next():
                    pass
        async with make_client(kind, server.url, settings=ONCE) as stranger:
            with pytest.raises(Overloaded) as caught:
                await stranger.produce(name, [1])
            assert caught.value.code == "unreachable", "an unknown certificate: not one byte of the request was sent"
        async with make_client(kind, server.url.replace("https", "http"), settings=ONCE) as plain:
            with pytest.raises(Indeterminate):
                await plain.produce(name, [1])


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def odd_server() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Starts servers that answer as the test says."""
    servers: list[asyncio.Server] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(answer: Answer) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for writer in writers:
        writer.transport.abort()
    for server in servers:
        server.close()
        await server.wait_closed()


def saying(text: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return answer


LONG = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5_000
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + (b"3e8\r\n" + b"x" * 1000 + b"\r\n") * 6 + b"0\r\n\r\n"
)
SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{"


@pytest.mark.parametrize("text", [LONG, CHUNKED])
async def test_an_answer_beyond_the_limit_is_not_read(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]], text: bytes
) -> None:
    url = await odd_server(saying(text))
    async with make_client(kind, url, settings=ClientSettings(attempts_max=1, response_bytes_max=1_000)) as client:
        with pytest.raises(Overloaded) as caught:
            await client.health()
        assert "1000 bytes" in caught.value.message


async def test_an_answer_cut_short_was_sent_for(kind: str, odd_server: Callable[[Answer], Awaitable[str]]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SHORT)
        await writer.drain()
        writer.close()

    async with make_client(kind, await odd_server(answer), settings=ONCE) as client:
        with pytest.raises(Indeterminate):
            await client.produce("t", [1])


async def test_silence_has_an_end(kind: str, odd_server: Callable[[Answer], Awaitable[str]]) -> None:
    url = await odd_server(saying(b""))
    async with make_client(kind, url, settings=ClientSettings(attempts_max=1, answer_ms=50)) as client:
        with pytest.raises(Indeterminate):
            await client.produce("t", [1])
        with pytest.raises(Overloaded):
            await client.health()


async def test_silence_has_an_end_with_tls_too(kind: str, certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    heard = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        heard.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "localhost", 0, ssl=context)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    tls = ssl.create_default_context(cafile=certificate[0])
    async with make_client(kind, url, tls=tls, settings=ClientSettings(attempts_max=1, answer_ms=50)) as client:
        with pytest.raises(Indeterminate):
            await client.produce("t", [1])
    assert heard.is_set()
    server.close()
    await server.wait_closed()


async def test_a_request_that_the_server_does_not_take_has_an_end(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # a server that reads no more

    url = await odd_server(answer)
    async with make_client(kind, url, settings=ClientSettings(attempts_max=1, answer_ms=200)) as client:
        with pytest.raises(Indeterminate):
            await client.produce("t", [b'"' + b"x" * 60_000_000 + b'"'])


async def test_a_stream_that_falls_silent_counts_as_broken(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n6\r\n: hb\n\n\r\n"
    url = await odd_server(saying(head))
    client = make_client(kind, url, settings=ClientSettings(stream_idle_ms=50))
    async with client, Both(client.inner.work("q")) as work:
        assert await work.next() == []
        with pytest.raises(Overloaded) as caught:
            await work.next()
        assert caught.value.code == "disconnected"


async def test_a_redirect_is_not_followed(kind: str, odd_server: Callable[[Answer], Awaitable[str]]) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with make_client(kind, await odd_server(saying(moved)), key="secret", settings=ONCE) as client:
        for call in (client.health, lambda: client.produce("t", [1]), Both(client.inner.work("q")).next):
            with pytest.raises(TenureError) as caught:
                await call()
            assert caught.value.code == "redirected"
            assert caught.value.detail == {"status": 302, "location": "http://127.0.0.1:1/"}


async def test_a_connection_that_was_not_made_sent_nothing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        asynchronous, blocking = LoopWire(url, settings=ONCE), SocketWire(url, settings=ONCE)
        with pytest.raises(WireError) as caught:
            await asynchronous.send(Request("DELETE", "/v0/topics/t"))
        assert caught.value.sent is False
        with pytest.raises(WireError) as caught:
            blocking.send(Request("DELETE", "/v0/topics/t"))
        assert caught.value.sent is False
        await asynchronous.close()
        blocking.close()


async def test_waiting_for_a_connection_has_an_end_and_sent_nothing(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    url = await odd_server(saying(b""))
    settings = ClientSettings(connections_max=1, streams_max=1, acquire_ms=50, attempts_max=1, answer_ms=5_000)
    wire: LoopWire | SocketWire
    wire = LoopWire(url, settings=settings) if kind == "async" else SocketWire(url, settings=settings)

    async def sending() -> object:
        request = Request("GET", "/v0/health")
        return await (wire.send(request) if isinstance(wire, LoopWire) else asyncio.to_thread(wire.send, request))

    held = [asyncio.ensure_future(sending()) for _ in range(3)]
    done, _ = await asyncio.wait(held, return_when=asyncio.FIRST_EXCEPTION)
    error = next(iter(done)).exception()
    assert isinstance(error, WireError)
    assert (error.sent, error.busy) == (False, True)
    closing = wire.close()
    if closing is not None:
        await closing
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_closed_client_says_so_at_once(kind: str, real: Running) -> None:
    client = make_client(kind, real.url, settings=ClientSettings(backoff_min_ms=60_000, backoff_max_ms=60_000))
    await client.health()
    feeds = [client.inner.watch("t"), client.inner.events("t"), client.inner.work("t")]
    await client.close()
    for call in (client.produce("t", [1]), client.topic("t"), *(Both(feed).next() for feed in feeds)):
        with pytest.raises(Closed) as caught:
            await asyncio.wait_for(call, 5)
        assert caught.value.code == "client_closed"
    await client.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPPING = {
    "status": b"HTTP/1.1 2",
    "headers": HEAD + b"x-long: ",
    "body": HEAD + b"content-length: 100000\r\n\r\n",
}


def dripping(part: str) -> Answer:
    """An answer of which one byte comes after the other, without end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(DRIPPING[part])
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.01)

    return answer


@pytest.mark.parametrize("part", DRIPPING)
async def test_an_answer_that_drips_has_an_end(
    kind: str, part: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    url = await odd_server(dripping(part))
    settings = ClientSettings(attempts_max=1, acquire_ms=100, answer_ms=200)
    async with make_client(kind, url, settings=settings) as client:
        with pytest.raises(Indeterminate):
            await asyncio.wait_for(client.produce("t", [1]), 10)


@pytest.mark.parametrize("part", ["status", "headers"])
async def test_a_stream_whose_head_drips_has_an_end(
    kind: str, part: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    url = await odd_server(dripping(part))
    settings = ClientSettings(acquire_ms=100, stream_idle_ms=200)
    async with make_client(kind, url, settings=settings) as client, Both(client.inner.work("q")) as work:
        with pytest.raises(Overloaded):
            await asyncio.wait_for(work.next(), 10)


OK = b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"status":"ok"}'


class Counting:
    """Answers requests of several connections, and counts both."""

    def __init__(self, *, after: bytes = b"", ends: bool = False) -> None:
        self.connections = self.requests = 0
        self.ended = asyncio.Event()
        self._after, self._ends = after, ends

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            self.requests += 1
            writer.write(OK + self._after)
            await writer.drain()
            if self._ends:
                break
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
        writer.close()
        await writer.wait_closed()
        self.ended.set()


async def test_one_call_after_the_other_goes_over_one_connection(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    server = Counting()
    async with make_client(kind, await odd_server(server), settings=ONCE) as client:
        for _ in range(5):
            await client.health()
    assert (server.connections, server.requests) == (1, 5)


@pytest.mark.parametrize("after", [b"", OK], ids=["closed", "more-than-was-asked-for"])
async def test_a_connection_that_the_server_ended_or_spoiled_is_not_used_again(
    kind: str, after: bytes, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    server = Counting(after=after, ends=not after)
    async with make_client(kind, await odd_server(server), settings=ONCE) as client:
        for count in range(1, 4):
            await client.health()
            if not after:
                await asyncio.wait_for(server.ended.wait(), 30)
                server.ended.clear()
            while kind == "async" and any(
                idle.is_open for idle in client.inner._wire._endpoints.first.wire._pool._idle
            ):
                await asyncio.sleep(0)  # until its end has come
            assert server.connections == count


async def test_a_connection_that_was_idle_for_too_long_is_replaced(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    server = Counting()
    settings = ClientSettings(attempts_max=1, idle_ms=1)
    async with make_client(kind, await odd_server(server), settings=settings) as client:
        for _ in range(3):
            await client.health()
            await asyncio.sleep(0.01)
    assert server.connections == 3


async def test_a_refusal_that_comes_before_the_body_was_sent_is_the_answer(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    refusal = b'{"error":{"code":"body_too_large","message":"too large"}}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(refusal)
        writer.write(head + refusal)
        await writer.drain()
        while await reader.read(1 << 20):  # as a server lingers, so that no reset overtakes its answer
            pass
        writer.close()

    async with make_client(kind, await odd_server(answer), settings=ONCE) as client:
        with pytest.raises(TenureError, match="too large"):
            await client.produce("t", [b'"%b"' % (b"x" * 1_000_000)] * 8)


async def test_a_stream_that_is_not_read_is_not_received(real: Running, name: str) -> None:
    """What waits in an AsyncClient is bounded, however much the server has to say."""
    wire = LoopWire(real.url, settings=ClientSettings())
    async with AsyncClient(wire=wire) as client:
        for _ in range(16):
            await client.produce(name, [b'"%b"' % (b"x" * 500_000)])
        asked = Request("POST", "/v0/watch", b'{"topics":{"%b":{"from_seq":0}}}' % name.encode())
        session = msgspec.json.decode((await wire.send(asked)).body)
        stream: Any = await wire.open(Request("GET", session["stream_url"]))
        assert stream.response.status == 200, stream.response
        connection = stream._connection
        while not connection._paused:
            await asyncio.sleep(0.01)
        unread = connection.reader.unread_bytes
        assert 256 * 1024 < unread < 1 << 20
        await asyncio.sleep(0.05)
        assert connection.reader.unread_bytes == unread
        got = 0
        while got < 8_000_000:
            got += len(await stream.read())
        stream.close()


async def test_a_gateway_whose_server_is_away_is_waited_out(
    kind: str, odd_server: Callable[[Answer], Awaitable[str]]
) -> None:
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        event = b'event: gap\nid: 1\ndata: {"topic":"t","reason":"r"}\n\n'
        head = b"200 OK\r\ncontent-type: text/event-stream" if asked > 2 else b"502 Bad Gateway"
        body = event if asked > 2 else b"<html>"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (head, len(body), body))
        await writer.drain()
        writer.close()

    client = make_client(kind, await odd_server(answer), settings=ClientSettings(attempts_max=1, reconnect_max_ms=1))
    async with client:
        with pytest.raises(Overloaded) as caught:
            await client.health()
        assert (caught.value.code, caught.value.detail) == ("unreachable", {"status": 502})
        async with Both(client.inner.events("t")) as events:
            assert (await events.next()).reason == "r"


async def test_a_page_in_place_of_a_stream_is_told(kind: str, odd_server: Callable[[Answer], Awaitable[str]]) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
    client = make_client(kind, await odd_server(saying(page)), settings=ONCE)
    async with client, Both(client.inner.work("q")) as work:
        with pytest.raises(TenureError) as caught:
            await work.next()
        assert caught.value.code == "bad_answer"


async def test_a_body_of_several_mebibytes_is_sent_without_a_warning(kind: str, real: Running, name: str) -> None:
    async with make_client(kind, real.url) as client:
        produced = await client.produce(name, [b'"%b"' % (b"x" * 1_000)] * 3_000)
        assert produced.count == 3_000


async def test_json_that_is_nested_too_deeply_is_refused_before_it_is_sent(kind: str, real: Running, name: str) -> None:
    async with make_client(kind, real.url) as client:
        with pytest.raises(Invalid, match="too deeply"):
            await client.produce(name, [b"[" * 5_000 + b"]" * 5_000])


def test_an_async_client_says_that_it_stays_on_one_loop(real: Running) -> None:
    client = AsyncClient(real.url)

    async def on_another_loop() -> None:
        with pytest.raises(Invalid, match="one per loop"):
            await client.health()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(client.health())
        second.run(on_another_loop())
        first.run(client.close())


@pytest.mark.parametrize("path", ["/v0", "/v0/", "/queues/v0", ":0"])
def test_a_url_that_cannot_be_meant_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        Client(f"http://127.0.0.1{path}")


def test_a_refused_connection_is_told_by_its_address() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}", settings=ONCE) as client, pytest.raises(Overloaded) as caught:
            client.health()
    assert f": 127.0.0.1:{port}: " in caught.value.message


async def test_a_prefix_in_the_url_is_kept(kind: str, odd_server: Callable[[Answer], Awaitable[str]]) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readline())
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"status":"ok"}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with make_client(kind, f"http://127.0.0.1:{port}/queues/") as client:
        await client.health()
    server.close()
    assert seen == [b"GET /queues/v0/health HTTP/1.1\r\n"]


def test_settings_that_cannot_be_meant_are_refused() -> None:
    for bad in ({"attempts_max": 0}, {"connections_max": -1}, {"answer_ms": 1.5}, {"retry_for_ms": True}):
        with pytest.raises(Invalid):
            ClientSettings(**bad)
