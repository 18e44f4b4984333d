"""What the wire refuses before reading on, and whom it cuts off when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import msgspec
import pytest
import uvloop

from tenure.http.server import Server, serve, tls_context
from tenure.http.wire.http1.protocol import HttpProtocol
from tenure.http.wire.http1.reader import Phase
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Request, Response
from tests.http.wire_support import Peer, Welcome, eventually, on_both_loops, pass_ms, post, serving, talk, ticking

HEAD = b"POST /echo HTTP/1.1\r\nhost: x\r\n"


@on_both_loops
async def test_34_headers_that_do_not_end_are_given_up_and_others_are_not_disturbed():
    async with (
        serving(header_ms=1_000) as (server, _),
        await Peer.connect(server) as slow,
        await Peer.connect(server) as other,
    ):
        await other.send(post())
        await other.reply()
        await slow.send(HEAD[:5])
        await eventually(lambda: Phase.HEAD in _phases(server))
        for at in range(5, 14):
            pass_ms(server, 100)
            await slow.send(HEAD[at : at + 1])
        assert server.connections.counts.timed_out == 0
        pass_ms(server, 102)
        reply = await slow.reply()
        assert (reply.status, reply.code) == (408, "invalid_request")
        assert await slow.closed()
        await other.send(post())
        assert (await other.reply()).status == 200
        assert server.connections.counts.timed_out == 1


def _phases(server: Server) -> set[int]:
    return {one._reader.phase for one in server.connections._open if isinstance(one, HttpProtocol)}


@on_both_loops
async def test_34_a_connection_that_never_speaks_is_closed_after_the_header_deadline():
    async with serving(header_ms=1_000) as (server, _), await Peer.connect(server) as peer:
        await eventually(lambda: len(server.connections) == 1)
        pass_ms(server, 900)
        assert len(server.connections) == 1
        pass_ms(server, 200)
        assert await peer.closed()


@on_both_loops
async def test_34_line_breaks_do_not_keep_an_idle_connection():
    async with serving(idle_ms=1_000, header_ms=1_000) as (server, _), await Peer.connect(server) as peer:
        await peer.send(post())
        await peer.reply()
        for _ in range(30):
            pass_ms(server, 100)
            with contextlib.suppress(RuntimeError):  # so says uvloop of a closed connection
                peer.writer.write(b"\r\n")
            await asyncio.sleep(0)
        await eventually(lambda: server.connections.counts.timed_out == 1)


@on_both_loops
async def test_34_an_idle_connection_is_closed_and_a_waiting_one_is_not():
    async with serving(idle_ms=1_000) as (server, bench), await Peer.connect(server) as idle:
        await idle.send(post())
        await idle.reply()
        async with await Peer.connect(server) as polling:
            await polling.send(post(b"/poll", b"answered"))
            await bench.started.wait()
            pass_ms(server, 1_002)
            assert await idle.closed()
            pass_ms(server, 60_000)
            bench.release.set()
            assert (await polling.reply()).body == b"answered"


@on_both_loops
async def test_34_what_a_body_sent_before_buys_it_no_time():
    async with serving(body_grace_ms=1_000, body_bytes_per_s_min=1_000) as (server, bench):
        async with await Peer.connect(server) as peer:
            await peer.send(HEAD + b"content-length: 100000\r\n\r\n" + b"x" * 90_000)
            await eventually(lambda: server.connections.bodies.held_bytes == 90_000)
            for _ in range(9):
                pass_ms(server, 100)
            assert server.connections.counts.timed_out == 0
            for _ in range(4):
                pass_ms(server, 100)
            assert (await peer.reply()).status == 408
            assert await peer.closed()
        assert bench.seen == []
        assert server.connections.bodies.held_bytes == 0


@on_both_loops
async def test_34_a_body_that_comes_at_the_least_rate_is_read_to_its_end():
    limits = {"body_grace_ms": 1_000, "body_bytes_per_s_min": 1_000}
    async with serving(**limits) as (server, _), await Peer.connect(server) as peer:
        bodies = server.connections.bodies
        await peer.send(HEAD + b"content-length: 30000\r\n\r\n")
        for _ in range(119):
            expected = bodies.held_bytes + 250
            await peer.send(b"x" * 250)
            while bodies.held_bytes < expected:
                await asyncio.sleep(0.001)
            pass_ms(server, 200)
        await peer.send(b"x" * 250)
        assert len((await peer.reply()).body) == 30_000


@on_both_loops
async def test_34_the_time_in_which_nothing_is_read_does_not_count_for_a_body():
    async with serving(body_grace_ms=1_000, pipeline_max=1) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/poll", b"first") + HEAD + b"content-length: 4\r\n\r\nab")
        await bench.started.wait()
        pass_ms(server, 60_000)
        pass_ms(server, 60_000)
        bench.release.set()
        assert (await peer.reply()).body == b"first"
        pass_ms(server, 900)
        await peer.send(b"cd")
        assert (await peer.reply()).body == b"abcd"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /%b HTTP/1.1\r\n" % (b"a" * 5_000), 414),
        (HEAD + b"x: %b\r\n\r\n" % (b"a" * 9_000), 431),
        (HEAD + b"".join(b"x%d: a\r\n" % n for n in range(200)), 431),
        (HEAD + b"content-length: 1000001\r\n\r\n", 413),
    ],
)
async def test_35_what_is_too_large_is_refused_before_the_rest_is_read(data: bytes, status: int):
    limits = {"target_bytes_max": 4_000, "header_bytes_max": 8_000, "headers_max": 100, "body_bytes_max": 1_000_000}
    async with serving(**limits) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(data)
        reply = await peer.reply()
        assert (reply.status, reply.code) == (status, "payload_too_large")
        assert await peer.closed()
        assert bench.seen == []


@on_both_loops
async def test_35_a_header_that_never_ends_is_refused_while_it_comes():
    async with serving(header_bytes_max=8_000) as (server, _), await Peer.connect(server) as peer:
        await peer.send(HEAD + b"x: ")
        with_reply = asyncio.create_task(peer.reply())
        sent = 0
        while not with_reply.done() and sent < 10_000_000:
            await peer.send(b"a" * 1_000)
            sent += 1_000
            await asyncio.sleep(0)
        assert (await with_reply).status == 431


@on_both_loops
async def test_35_endless_chunks_are_refused_at_the_limit():
    async with serving(body_bytes_max=100_000) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 30)
        assert (await peer.reply()).status == 413
        assert await peer.closed()
        assert bench.seen == []


@on_both_loops
async def test_35_chunks_that_are_hardly_content_are_refused():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n1")
        reading = asyncio.create_task(peer.reply())
        while not reading.done():
            await peer.send(b";" + b"e" * 4_000)
            await asyncio.sleep(0)
        assert (await reading).status == 400
        assert bench.seen == []


@on_both_loops
async def test_35_a_length_together_with_a_transfer_coding_is_refused():
    async with serving() as (server, bench):
        lines = (b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n")
        for order in (lines, lines[::-1]):
            reply = await talk(server, HEAD + b"".join(order) + b"\r\n0\r\n\r\n")
            assert (reply.status, reply.code) == (400, "invalid_request")
        assert bench.seen == []


@on_both_loops
async def test_35_a_refusal_reaches_a_peer_that_goes_on_sending():
    async with serving(body_bytes_max=1_000) as (server, _), await Peer.connect(server) as peer:
        await peer.send(HEAD + b"content-length: 4000000\r\n\r\n")
        for _ in range(40):
            await peer.send(b"x" * 100_000)
        assert (await peer.reply()).status == 413
        pass_ms(server, server.connections.limits.linger_ms + 1)
        assert await peer.closed()


@on_both_loops
async def test_35_a_peer_that_sends_without_end_after_its_refusal_is_cut():
    async with serving(body_bytes_max=1_000, linger_bytes_max=1_000_000) as (server, _):
        async with await Peer.connect(server) as peer:
            await peer.send(HEAD + b"content-length: 400000000\r\n\r\n")
            with pytest.raises(ConnectionError):
                await peer.send_forever(b"x" * 100_000)
        await eventually(lambda: len(server.connections) == 0)


@on_both_loops
async def test_34_a_pause_in_the_middle_of_a_body_does_not_count_for_it():
    limits = {"body_grace_ms": 1_000, "write_stall_ms": 600_000}
    async with serving(**limits) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/poll", b"x" * 3_000_000) * 3 + HEAD + b"content-length: 4\r\n\r\nab")
        await eventually(lambda: server.connections.bodies.held_bytes == 9_000_002)
        pass_ms(server, 800)
        bench.release.set()
        await _stalled(server)  # nothing is read while the peer takes nothing
        pass_ms(server, 60_000)
        assert [len((await peer.reply()).body) for _ in range(3)] == [3_000_000] * 3
        pass_ms(server, 100)
        await peer.send(b"cd")
        assert (await peer.reply()).body == b"abcd"


POOLS = {
    "small_body_bytes": 1_000,
    "small_bodies_bytes_max": 3_000,
    "small_bodies_bytes_per_caller_max": 2_000,
    "bodies_bytes_max": 100_000,
    "bodies_bytes_per_caller_max": 60_000,
}


def _announce(account: bytes, size: int, sent: int = 0) -> bytes:
    return HEAD + b"x-account: %b\r\ncontent-length: %d\r\n\r\n" % (account, size) + b"x" * sent


async def _limit(server: Server, data: bytes) -> str:
    """The setting that a request was refused by, with 429 and a closed connection."""
    async with await Peer.connect(server) as peer:
        await peer.send(data)
        reply = await peer.reply()
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (429, "throttled", "1")
        assert await peer.closed()
        return str(msgspec.json.decode(reply.body)["error"]["detail"]["limit"])


@on_both_loops
async def test_large_bodies_are_bounded_by_caller_and_together():
    async with (
        serving(**POOLS) as (server, bench),
        await Peer.connect(server) as one,
        await Peer.connect(server) as two,
    ):
        await one.send(_announce(b"one", 50_000, 49_000))
        await two.send(_announce(b"two", 40_000, 39_000))
        await eventually(lambda: server.connections.bodies.held_bytes == 88_000)
        assert await _limit(server, _announce(b"one", 11_500)) == "limits.bodies_bytes_per_caller_max"
        assert await _limit(server, _announce(b"three", 12_500)) == "limits.bodies_bytes_max"
        chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n30d4\r\n" + b"x" * 12_500 + b"\r\n0\r\n\r\n"
        assert await _limit(server, chunked) == "limits.bodies_bytes_max"
        await one.send(b"x" * 1_000)
        assert len((await one.reply()).body) == 50_000
        await two.send(b"x" * 1_000)
        assert len((await two.reply()).body) == 40_000
        assert server.connections.bodies.held_bytes == 0
        assert len(bench.seen) == 2


@on_both_loops
async def test_a_small_body_is_taken_while_large_ones_fill_their_pool():
    async with serving(**POOLS) as (server, _), await Peer.connect(server) as one, await Peer.connect(server) as two:
        await one.send(_announce(b"one", 60_000, 59_999))
        await two.send(_announce(b"two", 40_000, 39_999))
        await eventually(lambda: server.connections.bodies.held_bytes == 99_998)
        for account in (b"one", b"two", b"three"):
            assert (await talk(server, _announce(account, 1_000, 1_000))).status == 200
        assert await _limit(server, _announce(b"three", 1_001)) == "limits.bodies_bytes_max"


@on_both_loops
async def test_small_bodies_are_bounded_by_caller_and_together():
    async with serving(**POOLS) as (server, _):
        half = [await Peer.connect(server) for _ in range(3)]
        for account, peer in zip((b"one", b"one", b"two"), half, strict=True):
            await peer.send(_announce(account, 1_000, 900))
        await eventually(lambda: server.connections.bodies.held_bytes == 2_700)
        assert await _limit(server, _announce(b"one", 250, 250)) == "limits.small_bodies_bytes_per_caller_max"
        assert await _limit(server, _announce(b"two", 350, 350)) == "limits.small_bodies_bytes_max"
        for peer in half:
            peer.writer.close()
        await eventually(lambda: server.connections.bodies.held_bytes == 0)


@on_both_loops
async def test_a_body_without_a_length_moves_to_the_pool_of_large_ones_as_it_grows():
    async with serving(**POOLS) as (server, _), await Peer.connect(server) as peer:
        bodies = server.connections.bodies
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1_000 + b"\r\n")
        await eventually(lambda: (bodies.small.held_bytes, bodies.large.held_bytes) == (1_000, 0))
        await peer.send(b"1\r\nx\r\n")
        await eventually(lambda: (bodies.small.held_bytes, bodies.large.held_bytes) == (0, 1_001))
        await peer.send(b"0\r\n\r\n")
        assert len((await peer.reply()).body) == 1_001


@on_both_loops
async def test_a_connection_over_the_cap_hears_why_and_is_closed():
    async with serving(connections_max=2) as (server, _):
        peers = [await Peer.connect(server) for _ in range(2)]
        for peer in peers:
            await peer.send(post())
            await peer.reply()
        async with await Peer.connect(server) as one_more:
            await one_more.send(post())
            reply = await one_more.reply()
            assert (reply.status, reply.code) == (503, "not_ready")
            assert await one_more.closed()
        peers.pop().writer.close()
        await eventually(lambda: len(server.connections) == 1)
        assert (await talk(server, post())).status == 200
        peers.pop().writer.close()


@on_both_loops
async def test_33_a_slow_reader_is_bounded_and_then_cut():
    async with serving(write_stall_ms=1_000, body_bytes_per_s_min=1_000_000) as (server, bench):
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.sendall(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        connection = await _stalled(server)
        before = bench.sent_bytes
        assert connection.get_write_buffer_size() < 2 * server.connections.limits.write_buffer_bytes
        pass_ms(server, 900)
        assert bench.sent_bytes == before
        assert len(server.connections) == 1
        pass_ms(server, 400)
        await bench.cancelled.wait()
        await eventually(lambda: len(server.connections) == 0)
        assert server.connections.counts.slow_readers == 1
        peer.close()


async def _stalled(server: Server) -> asyncio.Transport:
    """Wait until the one connection there is cannot be written to."""
    while True:
        for connection in server.connections._open:
            if isinstance(connection, HttpProtocol) and connection._pipeline.writer.stalled:
                return connection._transport
        await asyncio.sleep(0.001)


@on_both_loops
async def test_33_a_large_answer_buys_its_slow_reader_no_time():
    async with serving(write_stall_ms=1_000, body_bytes_per_s_min=1_000) as (server, _):
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.sendall((b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n") * 5)
        await _stalled(server)
        for _ in range(9):
            pass_ms(server, 100)
        assert server.connections.counts.slow_readers == 0
        for _ in range(4):
            pass_ms(server, 100)
        assert server.connections.counts.slow_readers == 1
        await eventually(lambda: len(server.connections) == 0)
        peer.close()


@on_both_loops
async def test_33_a_peer_that_does_not_take_the_last_bytes_is_cut_as_well():
    async with serving(write_stall_ms=1_000, write_buffer_bytes=8_000_000) as (server, bench):
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.sendall((b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n") * 2 + post(b"/big", b"{}", b"connection: close"))
        await eventually(lambda: len(bench.seen) == 3)
        for _ in range(3):
            await asyncio.sleep(0)
            pass_ms(server, 600)
        await eventually(lambda: len(server.connections) == 0)
        peer.close()


@on_both_loops
async def test_33_a_reader_that_catches_up_gets_everything():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        await _stalled(server)
        await peer.head()
        stalled_at = bench.sent_bytes
        received = 0
        while received <= stalled_at + 1_000_000:
            received += len(await peer.chunk())


@on_both_loops
async def test_a_peer_that_reads_nothing_cannot_make_the_server_run_its_requests():
    async with serving(pipeline_max=4) as (server, bench), await Peer.connect(server) as peer:
        peer.writer.write(b"".join(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" for _ in range(500)))
        await _stalled(server)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(bench.seen) < 20


async def test_what_is_pipelined_behind_a_stream_is_bounded():
    async with serving(write_buffer_bytes=10_000) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await bench.started.wait()
        await peer.send(b"x" * 20_000)
        await bench.cancelled.wait()
        await eventually(lambda: len(server.connections) == 0)


async def test_the_timer_runs_by_itself():
    async with ticking(tick_ms=5, header_ms=1) as (server, _), await Peer.connect(server) as peer:
        assert await peer.closed()


def test_every_limit_has_a_unit_or_counts_things():
    units = ("_max", "_min", "_ms", "_s", "_bytes", "backlog")
    for name in WireLimits.__struct_fields__:
        assert name.endswith((*units, "_per_s")), name


@on_both_loops
async def test_where_there_is_no_room_the_connection_that_was_silent_for_longest_is_cut():
    async with serving(connections_max=3) as (server, _), await Peer.connect(server) as speaker:
        await speaker.send(post())
        await speaker.reply()
        first = await Peer.connect(server)
        await first.send(HEAD)  # a head that does not end is silence as well
        second = await Peer.connect(server)
        await eventually(lambda: len(server.connections) == 3)
        async with await Peer.connect(server) as honest:
            await honest.send(post())
            assert (await honest.reply()).status == 200
            assert await first.closed()
            async with await Peer.connect(server) as other:
                await other.send(post())
                assert (await other.reply()).status == 200
                assert await second.closed()
                assert server.connections.counts.silent_cut == 2
                late = await talk(server, post())
                assert (late.status, late.code) == (503, "not_ready"), "all of them have spoken"
        await speaker.send(post())
        assert (await speaker.reply()).status == 200
        first.writer.close()
        second.writer.close()


@on_both_loops
async def test_silent_connections_are_bounded_together_and_by_address():
    for limit in ("silent_connections_max", "silent_connections_per_peer_max"):
        async with serving(**{limit: 3}) as (server, _):
            peers = [await Peer.connect(server) for _ in range(10)]
            for peer in peers[:7]:
                assert await peer.closed()
            await eventually(lambda: len(server.connections) == 3)
            for peer in peers[7:]:
                await peer.send(post())
                assert (await peer.reply()).status == 200
            assert server.connections.counts.silent_cut == 7
            more = [await Peer.connect(server) for _ in range(3)]  # those that spoke do not count
            await eventually(lambda: len(server.connections) == 6)
            for peer in (*peers, *more):
                peer.writer.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = _certificate(tmp_path_factory.mktemp("tls"))
    if made is None:
        pytest.skip("needs openssl")
    return made


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_peers_that_never_say_hello_are_counted_and_lock_nobody_out(loop: str, certificates: tuple[Path, Path]):
    async def scene() -> None:
        limits = WireLimits(connections_max=20, tls_handshake_ms=60_000)
        async with await serve(Welcome(_echo), limits=limits, ssl_context=tls_context(*certificates)) as server:
            silent = [await Peer.connect(server) for _ in range(100)]
            await eventually(lambda: server.connections.counts.silent_cut >= 80)
            assert len(server.connections) <= 20 + 32, "from their acceptance on"
            await eventually(lambda: len(server.connections) <= 20)
            assert await _over_tls(server, b"hello") == b"hello"
            assert all([await peer.closed() for peer in silent[:80]])
            for peer in silent:
                peer.writer.close()
            await eventually(lambda: len(server.connections) == 0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_peer_that_does_not_end_its_handshake_in_time_is_cut(loop: str, certificates: tuple[Path, Path]):
    async def scene() -> None:
        limits = WireLimits(tls_handshake_ms=50)
        async with await serve(Welcome(_echo), limits=limits, ssl_context=tls_context(*certificates)) as server:
            async with await Peer.connect(server) as silent, await Peer.connect(server) as liar:
                await liar.send(b"GET / HTTP/1.1\r\n\r\n")
                await liar.reader.read()
                assert await silent.closed()
            await eventually(lambda: len(server.connections) == 0)
            assert (server.connections.counts.timed_out, server.connections.counts.refused) == (1, 1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_draining_does_not_wait_for_handshakes(loop: str, certificates: tuple[Path, Path]):
    async def scene() -> None:
        server = await serve(Welcome(_echo), ssl_context=tls_context(*certificates))
        async with await Peer.connect(server) as silent:
            await eventually(lambda: len(server.connections) == 1)
            assert await server.drain(50) is True
            assert await silent.closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(asyncio.wait_for(scene(), 60))


def _echo(request: Request) -> Response:
    return Response(200, bytes(request.body))


async def _over_tls(server: Server, body: bytes) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.write(post(body=body))
    reply = await Peer(reader, writer).reply()
    writer.close()
    return reply.body


async def test_tls_offers_both_protocols(certificates: tuple[Path, Path]):
    httpx = pytest.importorskip("httpx")

    def handle(request: Request) -> Response:
        return Response(200, bytes(request.body))

    server = await serve(Welcome(handle), ssl_context=tls_context(*certificates))
    async with server:
        for http2 in (False, True):
            async with httpx.AsyncClient(verify=False, http2=http2) as client:
                reply = await client.post(f"https://127.0.0.1:{server.port}/", content=b"x" * 300_000)
                assert (reply.status_code, len(reply.content)) == (200, 300_000)
                assert reply.http_version == ("HTTP/2" if http2 else "HTTP/1.1")


def _certificate(tmp_path: Path) -> tuple[Path, Path] | None:
    import shutil
    import subprocess

    if shutil.which("openssl") is None:
        return None
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=60)
    return cert, key
