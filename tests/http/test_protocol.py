"""HTTP/1.1: what a request may look like, in which order answers come, and what becomes of streams and polls."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from typing import Any

import httpx
import msgspec
import pytest

from tenure.broker.answer import Answer, Done
from tenure.core.level import Level
from tenure.errors import Indeterminate
from tenure.http.server import serve
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Later, Request, Response
from tests.http.wire_support import Peer, Welcome, eventually, on_both_loops, pass_ms, post, serving, talk


@on_both_loops
async def test_a_connection_is_kept_for_the_next_request():
    async with serving() as (server, _), await Peer.connect(server) as peer:
        for body in (b"{}", b"[1]", b""):
            await peer.send(post(body=body))
            reply = await peer.reply()
            assert (reply.status, reply.body) == (200, body)
            assert "connection" not in reply.headers
            assert reply.headers["date"].endswith("GMT")


@on_both_loops
async def test_pipelined_requests_are_answered_in_their_order():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/poll", b"first") + post(body=b"second") + post(body=b"third"))
        await bench.started.wait()
        bench.release.set()
        assert [(await peer.reply()).body for _ in range(3)] == [b"first", b"second", b"third"]


@on_both_loops
async def test_more_pipelined_requests_than_allowed_wait_and_all_are_answered():
    async with serving(pipeline_max=4) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"".join(post(b"/poll", b"%d" % number) for number in range(1_000)))
        await bench.started.wait()
        await eventually(lambda: len(bench.seen) == 4)
        bench.release.set()
        assert [(await peer.reply()).body for _ in range(1_000)] == [b"%d" % number for number in range(1_000)]


@on_both_loops
async def test_thousands_of_pipelined_requests_in_one_write_are_answered():
    async with serving() as (server, _), await Peer.connect(server) as peer:
        sending = asyncio.create_task(peer.send(b"".join(post(body=b"%d" % number) for number in range(20_000))))
        for number in range(20_000):
            assert (await peer.reply()).body == b"%d" % number
        await sending


@on_both_loops
async def test_a_request_may_come_byte_by_byte():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        request = b"POST /echo?a=b HTTP/1.1\r\nHost: x\r\nX-Y: 1\r\nx-y: 2\r\ncontent-length: 3\r\n\r\nabc"
        for at in range(len(request)):
            peer.writer.write(request[at : at + 1])
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.reply()).body == b"abc"
        assert (bench.seen[0].path, bench.seen[0].query, bench.seen[0].headers["x-y"]) == ("/echo", "a=b", "1, 2")
        assert bench.seen[0].client == "127.0.0.1"


@on_both_loops
async def test_a_chunked_body_is_put_together_and_its_trailers_are_dropped():
    async with serving() as (server, bench):
        head = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        reply = await talk(server, head + b"3;e=1\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: 1\r\n\r\n")
        assert reply.body == b"abcde"
        assert "trailer" not in bench.seen[0].headers


@on_both_loops
async def test_a_peer_that_waits_for_leave_to_send_gets_it():
    async with serving() as (server, _), await Peer.connect(server) as peer:
        await peer.send(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await peer.head()).status == 100
        await peer.send(b"{}")
        assert (await peer.reply()).body == b"{}"


@on_both_loops
async def test_leave_to_send_comes_after_the_answers_before_it():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        waits = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        await peer.send(post(b"/poll", b"first") + waits)
        await bench.started.wait()
        bench.release.set()
        assert (await peer.reply()).body == b"first"
        assert (await peer.head()).status == 100
        await peer.send(b"{}")
        assert (await peer.reply()).body == b"{}"


@on_both_loops
async def test_a_refusal_takes_the_place_of_leave_to_send():
    async with serving(body_bytes_max=10) as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n")
        reply = await peer.reply()
        assert (reply.status, reply.code) == (413, "payload_too_large")
        assert await peer.closed()
        assert bench.seen == []


@on_both_loops
async def test_leave_to_send_comes_only_to_who_is_admitted():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"POST /refused HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        reply = await peer.reply()
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        assert await peer.closed()
        assert bench.seen == []


@on_both_loops
async def test_a_small_body_that_was_refused_at_its_head_is_passed_over_and_the_connection_lives_on():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/poll", b"first") + post(b"/refused", b"x" * 65_536)[:-1])
        await bench.started.wait()
        await eventually(lambda: server.connections.bodies.held_bytes == 5)
        await peer.send(b"x" + post(b"/refused", b"") + post(body=b"last"))
        bench.release.set()
        replies = [await peer.reply() for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 401, 401, 200]
        assert [replies[0].body, replies[3].body] == [b"first", b"last"]
        assert len(bench.seen) == 2


@on_both_loops
async def test_a_large_body_that_was_refused_at_its_head_is_answered_before_it_comes():
    for announced in (b"content-length: 65537", b"transfer-encoding: chunked"):
        async with serving() as (server, bench), await Peer.connect(server) as peer:
            await peer.send(b"POST /refused HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % announced)
            reply = await peer.reply()
            assert (reply.status, reply.headers["connection"]) == (401, "close")
            assert await peer.closed()
            assert bench.seen == []


@on_both_loops
async def test_a_body_whose_key_is_taken_away_while_it_comes_is_refused_at_the_next_tick():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(body=b"x" * 100_000)[:-1])
        await eventually(lambda: server.connections.bodies.held_bytes == 99_999)
        pass_ms(server, 1)
        assert server.connections.bodies.held_bytes == 99_999
        bench.lapse = True
        pass_ms(server, 1)
        assert server.connections.bodies.held_bytes == 0
        assert (await peer.reply()).status == 401
        assert await peer.closed()
        assert bench.seen == []


@on_both_loops
async def test_head_gets_the_length_and_no_body():
    async with serving() as (server, _), await Peer.connect(server) as peer:
        await peer.send(b"HEAD /big HTTP/1.1\r\nhost: x\r\n\r\nHEAD /stream HTTP/1.1\r\nhost: x\r\n\r\n" + post())
        assert (await peer.head()).headers["content-length"] == "3000000"
        assert (await peer.head()).status == 200
        assert (await peer.reply()).body == b"{}"


@on_both_loops
async def test_http_1_0_closes_unless_asked_to_stay():
    async with serving() as (server, _):
        async with await Peer.connect(server) as peer:
            await peer.send(b"POST /echo HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
            assert (await peer.reply()).headers["connection"] == "close"
            assert await peer.closed()
        async with await Peer.connect(server) as peer:
            for _ in range(2):
                await peer.send(b"GET /echo HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
                assert (await peer.reply()).headers["connection"] == "keep-alive"


@on_both_loops
async def test_connection_close_is_honoured_and_what_follows_is_ignored():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/echo", b"{}", b"connection: close") + post())
        assert (await peer.reply()).headers["connection"] == "close"
        assert await peer.closed()
        assert len(bench.seen) == 1


@on_both_loops
async def test_a_peer_that_stops_sending_still_gets_its_answer():
    async with serving() as (server, _), await Peer.connect(server) as peer:
        await peer.send(post(body=b"last"))
        peer.writer.write_eof()
        assert (await peer.reply()).body == b"last"
        assert await peer.closed()


@on_both_loops
async def test_an_upgrade_is_passed_over_also_with_a_body():
    upgrade = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQ")
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(post(b"/echo", b"GET / HTTP/1.1\r\n\r\n", *upgrade) + post(body=b"next"))
        assert (await peer.reply()).body == b"GET / HTTP/1.1\r\n\r\n"
        assert (await peer.reply()).body == b"next"
        assert len(bench.seen) == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nhost: a\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505),
        (b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET echo HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET /a%zz HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET /a%ff HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nhost: a\n\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 1\r\n\r\na", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na", 400),
        (b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
async def test_what_is_no_request_is_refused_in_the_contracts_shape(data: bytes, status: int):
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(data)
        reply = await peer.reply()
        assert (reply.status, reply.code, reply.headers["connection"]) == (status, "invalid_request", "close")
        assert msgspec.json.decode(reply.body)["error"]["message"]
        assert await peer.closed()
        assert bench.seen == []


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/v0/topics/a%2Fdiff", "/v0/topics/a%2Fdiff", ""),
        (b"/v0/topics/a%252fdiff", "/v0/topics/a%2fdiff", ""),
        (b"/v0/topics/%2e%2E", "/v0/topics/..", ""),
        (b"/v0/topics/a%00b", "/v0/topics/a\0b", ""),
        (b"/%C3%A9?x=%2F%ff", "/é", "x=%2F%ff"),
        (b"//v0//topics/", "//v0//topics/", ""),
        (b"http://other/v0?x", "/v0", "x"),
        (b"*", "*", ""),
    ],
)
async def test_45_an_escaped_slash_never_separates_segments(target: bytes, path: str, query: str):
    async with serving() as (server, bench):
        reply = await talk(server, b"OPTIONS %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
        assert reply.status == 200
        assert (bench.seen[0].path, bench.seen[0].query) == (path, query)
        assert bench.seen[0].headers["host"] == ("other" if target.startswith(b"http") else "x")


@on_both_loops
async def test_29_a_body_cut_half_way_reaches_nobody():
    async with serving() as (server, bench):
        for request in (
            post(body=b"x" * 100)[:-1],
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        ):
            async with await Peer.connect(server) as peer:
                await peer.send(request)
                peer.writer.write_eof()
                assert await peer.closed()
        await eventually(lambda: len(server.connections) == 0)
        assert bench.seen == []
        assert server.connections.bodies.held_bytes == 0


@on_both_loops
async def test_a_stream_comes_in_chunks_and_the_connection_stays():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n" + post(body=b"behind"))
        head = await peer.head()
        assert head.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in head.headers
        assert await peer.chunk() == b"one"
        bench.release.set()
        assert [await peer.chunk(), await peer.chunk()] == [b"two", b""]
        assert (await peer.reply()).body == b"behind"


@on_both_loops
async def test_a_stream_on_http_1_0_ends_with_the_connection():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        bench.release.set()
        await peer.send(b"GET /stream HTTP/1.0\r\n\r\n")
        assert (await peer.head()).headers["connection"] == "close"
        assert await peer.reader.read() == b"onetwo"


@on_both_loops
async def test_a_stream_and_a_poll_are_cancelled_when_their_peer_goes():
    for path in (b"/stream", b"/poll"):
        async with serving() as (server, bench):
            async with await Peer.connect(server) as peer:
                await peer.send(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path)
                await bench.started.wait()
            await bench.cancelled.wait()
            await eventually(lambda: len(server.connections) == 0)


async def test_31_a_silent_peer_is_given_up_after_a_stated_time():
    limits = WireLimits()
    accepted: list[tuple[int, int, int]] = []

    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await bench.started.wait()
        for connection in server.connections._open:
            sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            accepted.append(
                (
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                    sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                )
            )
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert accepted == [(1, limits.keepalive_idle_s, limits.user_timeout_ms)]


@on_both_loops
async def test_a_fault_of_ours_is_an_answer_and_says_nothing_of_the_inside():
    async with serving() as (server, _):
        for path in (b"/broken", b"/split"):
            reply = await talk(server, post(path))
            assert (reply.status, reply.code) == (500, "internal")
            assert b"bug" not in reply.body
            assert "set-cookie" not in reply.headers


class SlowGate:
    """A gate whose batches arrive when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Done] = []
        self.there = False

    def reached(self, batch: int, level: int) -> bool:
        if batch == 13:
            raise Indeterminate("the log has failed")
        return self.there

    def abandon(self, reply: object) -> None:
        """Nothing is held for a caller here."""

    def plan(self) -> None:
        """Nothing is appended here."""

    def when_reached(self, batch: int, level: int, call: Done) -> None:
        self.waiting.append(call)


@on_both_loops
async def test_a_write_is_answered_once_it_is_durable_and_costs_no_task():
    gate = SlowGate()

    def handle(request: Request) -> Any:
        answer = Answer(request.body, int(request.body), Level.SYNCED, gate)
        return Later(answer, lambda _, reply, __: Response(200, b"done " + reply))

    server = await serve(Welcome(handle), limits=WireLimits())
    async with server, await Peer.connect(server) as peer:
        tasks = len(asyncio.all_tasks())
        await peer.send(post(body=b"1") + post(body=b"2") + post(body=b"13") + post(body=b"4"))
        await eventually(lambda: len(gate.waiting) == 3)
        assert len(asyncio.all_tasks()) <= tasks
        gate.waiting[1](None)
        gate.waiting[0](None)
        assert [(await peer.reply()).body for _ in range(2)] == [b"done 1", b"done 2"]
        reply = await peer.reply()
        assert (reply.status, reply.code) == (503, "indeterminate")
        gate.waiting[2](Indeterminate("the sync has failed"))
        assert (await peer.reply()).code == "indeterminate"
        gate.there = True
        await peer.send(post(body=b"5"))
        assert (await peer.reply()).body == b"done 5"


@on_both_loops
async def test_37_draining_finishes_requests_ends_streams_and_closes_what_is_idle():
    async with serving() as (server, bench):
        idle, polling, streaming = [await Peer.connect(server) for _ in range(3)]
        await idle.send(post())
        await idle.reply()
        await streaming.send(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await streaming.head()
        await bench.started.wait()
        bench.started.clear()
        await polling.send(post(b"/poll", b"finished"))
        await bench.started.wait()
        draining = asyncio.create_task(server.drain(30))
        assert await idle.closed()
        assert [await streaming.chunk(), await streaming.chunk()] == [b"one", b""]
        assert await streaming.closed()
        with pytest.raises(OSError):
            await Peer.connect(server)
        bench.release.set()
        reply = await polling.reply()
        assert (reply.body, reply.headers["connection"]) == (b"finished", "close")
        assert await draining is True
        for peer in (idle, polling, streaming):
            peer.writer.close()


@on_both_loops
async def test_37_what_does_not_end_by_itself_is_told_and_cut_when_draining_ends_twice():
    async with serving() as (server, bench), await Peer.connect(server) as peer, await Peer.connect(server) as half:
        await peer.send(post(b"/poll"))
        await bench.started.wait()
        await half.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-le")
        await eventually(lambda: len(server.connections) == 2)
        assert not all(await asyncio.gather(server.drain(0.05), server.drain(0.05)))
        reply = await peer.reply()
        assert (reply.status, reply.code) == (503, "shutting_down")
        assert await peer.closed()
        assert await half.closed()


async def test_httpx_posts_streams_and_keeps_its_connection():
    async with serving() as (server, bench), httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        for size in (0, 1, 100_000, 3_000_000):
            assert (await client.post("/echo", content=b"x" * size)).content == b"x" * size
        bench.release.set()
        assert (await client.get("/stream")).content == b"onetwo"
        assert server.connections.counts.accepted == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("how", ["--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge"])
async def test_curl_posts_a_large_body_and_gets_it_back(how: str, tmp_path: Any):
    (tmp_path / "body").write_bytes(bytes(range(256)) * 10_000)
    async with serving() as (server, _):
        for extra in ([], ["-H", "expect: 100-continue"], ["-H", "transfer-encoding: chunked"]):
            if extra[1:] == ["transfer-encoding: chunked"] and how != "--http1.1":
                continue  # not in HTTP/1.0, not in HTTP/2, not with an upgrade
            command = ["curl", "-sS", how, *extra, "--data-binary", f"@{tmp_path}/body"]
            url = f"http://127.0.0.1:{server.port}/echo"
            done = await asyncio.to_thread(subprocess.run, [*command, url], capture_output=True, timeout=30)
            assert done.stdout == (tmp_path / "body").read_bytes(), done.stderr
