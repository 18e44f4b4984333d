"""Requests share the loop's time: on sockets, over both protocols, by a clock that moves on whenever it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from h2.events import ResponseReceived

from tenure.http.server import Server, serve
from tenure.http.wire.http1.protocol import HttpProtocol
from tenure.http.wire.http2.protocol import Http2Protocol
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Admission, Request, Response
from tests.http.test_h2 import Peer2, _head
from tests.http.wire_support import Peer, Welcome, eventually, on_both_loops, post, serving

FLOOD = 200


@asynccontextmanager
async def slow(**limits: int) -> AsyncIterator[tuple[Server, list[bytes]]]:
    """Serve under a clock on which every step takes a millisecond; list the bodies of requests as they are started."""
    seen: list[bytes] = []

    def answer(request: Request) -> Response:
        seen.append(bytes(request.body))
        return Response(200, bytes(request.body))

    server = await serve(Welcome(answer), limits=WireLimits(share_ms=2, **limits))
    fair = server.connections.fair
    fair.clock = fair.cpu_clock = map((0.001).__mul__, count()).__next__
    try:
        yield server, seen
    finally:
        await server.drain(0.0)


class Turns:
    """How many requests were started in each turn of the loop."""

    def __init__(self, seen: list[bytes]) -> None:
        self.counts: list[int] = []
        self._seen = seen
        self._before = 0
        self._look()

    def _look(self) -> None:
        self.counts.append(len(self._seen) - self._before)
        self._before = len(self._seen)
        if self._before < FLOOD:
            asyncio.get_running_loop().call_soon(self._look)


@on_both_loops
async def test_what_arrives_at_once_is_started_over_many_turns_and_answered_in_order() -> None:
    async with slow() as (server, seen):
        peers = [await Peer.connect(server) for _ in range(10)]
        turns = Turns(seen)
        for peer in peers:
            await peer.send(b"".join(post(body=b"%d" % number) for number in range(FLOOD // 10)))
        for peer in peers:
            assert [(await peer.reply()).body for _ in range(FLOOD // 10)] == [b"%d" % n for n in range(FLOOD // 10)]
        assert len(seen) == FLOOD
        assert sum(map(bool, turns.counts)) >= FLOOD // 10
        assert max(turns.counts) <= FLOOD // 10  # what one connection had sent by the first look at the clock
        for peer in peers:
            peer.writer.close()


@on_both_loops
async def test_a_quiet_key_is_served_before_what_a_flooding_one_has_waiting() -> None:
    async with slow() as (server, seen):
        flood = [await Peer.connect(server) for _ in range(FLOOD)]
        for peer in flood:
            await peer.send(post(b"/echo", b"flood", b"x-account: flood"))
        await eventually(lambda: len(seen) > FLOOD // 20)
        async with await Peer.connect(server) as quiet:
            before = len(seen)
            await quiet.send(post(b"/echo", b"quiet", b"x-account: quiet"))
            assert (await quiet.reply()).body == b"quiet"
            assert seen.index(b"quiet") - before < FLOOD // 4
        for peer in flood:
            assert (await peer.reply()).body == b"flood"
            peer.writer.close()


@on_both_loops
async def test_a_key_that_opens_a_connection_for_each_request_waits_with_its_own() -> None:
    async with slow() as (server, seen):
        old = [await Peer.connect(server) for _ in range(FLOOD)]
        for peer in old:
            await peer.send(post(b"/echo", b"old", b"x-account: flood"))
        await eventually(lambda: len(seen) > FLOOD // 20)
        new = [await Peer.connect(server) for _ in range(10)]
        quiet = await Peer.connect(server)
        for peer in new:
            await peer.send(post(b"/echo", b"new", b"x-account: flood"))
        await quiet.send(post(b"/echo", b"quiet", b"x-account: quiet"))
        assert (await quiet.reply()).body == b"quiet"
        assert seen[: seen.index(b"quiet")].count(b"new") <= 2
        for peer in (*old, *new, quiet):
            peer.writer.close()


@on_both_loops
async def test_over_http_2_a_burst_is_started_over_many_turns_too() -> None:
    async with slow(turn_ms=60_000) as (server, seen), await Peer2.connect(server) as peer:
        turns = Turns(seen)
        for number in range(1, 100, 2):
            await peer.request("/echo", b"%d" % number, number=number)
        await peer.flush()
        await eventually(lambda: len(seen) == 50)
        assert seen == [b"%d" % number for number in range(1, 100, 2)]
        assert max(turns.counts) <= 4


@on_both_loops
async def test_a_request_that_waits_for_its_turn_is_answered_before_a_stop() -> None:
    async with slow() as (server, seen), await Peer.connect(server) as peer, await Peer.connect(server) as other:
        await other.send(post(body=b"first"))
        assert (await other.reply()).body == b"first"
        fair = server.connections.fair
        callers = [one._reader.caller for one in server.connections._open if isinstance(one, HttpProtocol)]
        callers.append(fair.newcomers)
        for caller in callers:
            caller.rests_until = 1 << 40
        fair.is_free = False  # somebody else has used up this turn
        await peer.send(post(body=b"waits"))
        await eventually(lambda: bool(fair._line))
        drained = asyncio.create_task(server.drain(30))
        await asyncio.sleep(0)
        assert seen == [b"first"]
        for caller in callers:
            caller.rests_until = 0
        assert (await peer.reply()).body == b"waits"
        assert await drained


@on_both_loops
async def test_a_quiet_peer_over_http_2_is_read_before_what_flooding_ones_have_sent() -> None:
    heads: list[bool] = []

    def admit(request: Request) -> Admission | Response:
        heads.append("x-quiet" in request.headers)
        return Welcome(lambda request: Response(200))(request)

    server = await serve(admit, limits=WireLimits(share_ms=2))
    floods = [await Peer2.connect(server) for _ in range(40)]
    quiet = await Peer2.connect(server)
    await quiet.request("/echo", b"{}", number=1)
    await quiet.until(ResponseReceived)
    fair = server.connections.fair
    fair.clock = fair.cpu_clock = map((0.001).__mul__, count()).__next__
    for peer in floods:
        for number in range(1, 101, 2):
            peer.h2.send_headers(number, _head(), end_stream=True)
    for peer in floods:
        peer.writer.write(peer.h2.data_to_send())
    await eventually(lambda: len(heads) > 200)
    before = len(heads)
    quiet.h2.send_headers(3, [*_head(), ("x-quiet", "1")], end_stream=True)
    await quiet.flush()
    await quiet.until(ResponseReceived)
    assert heads.index(True) - before < 200  # of 1,800: each of the others would have had its turn
    for peer in (*floods, quiet):
        peer.writer.close()
    await server.drain(0.0)


@on_both_loops
async def test_what_is_refused_at_its_head_over_http_2_is_charged_to_its_key() -> None:
    async with serving() as (server, _), await Peer2.connect(server) as peer:
        await peer.request("/known/404")
        await peer.until(ResponseReceived)
        assert server.connections.fair.named("key").used_s > 0
        assert server.connections.door.left_s == server.connections.door._left_s_max


@on_both_loops
async def test_what_is_read_over_http_2_is_charged_to_its_key_and_without_one_to_its_connection() -> None:
    async with slow() as (server, _), await Peer2.connect(server) as peer:
        for number, account in enumerate(("one", "", "two")):
            extra = {"x-account": account} if account else {}
            peer.h2.send_headers(1 + 2 * number, _head(**extra), end_stream=True)
            await peer.flush()
            await peer.until(ResponseReceived)
            (connection,) = server.connections._open
            assert isinstance(connection, Http2Protocol)
            caller = server.connections.fair.named(account) if account else connection._own
            assert connection._reader.caller is caller
            assert caller.used_s > 0
