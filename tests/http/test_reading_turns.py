"""What is large or costly is read in turns, so that everything else on the loop gets its own."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from itertools import count, pairwise

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from tenure.http.wire.reading_turns import ReadingTurns
from tests.http.test_h2 import Peer2
from tests.http.wire_support import eventually, on_both_loops, serving


async def test_all_readers_together_have_one_turn_and_the_others_wait_in_order() -> None:
    now_s = 0.0
    done: list[str] = []
    others: list[int] = []
    turns = ReadingTurns(5, loop=asyncio.get_running_loop(), clock=lambda: now_s)

    def read(name: str, slices: int) -> None:
        nonlocal now_s
        while slices:
            if turns.used_up():
                turns.wait(partial(read, name, slices))
                return
            slices -= 1
            now_s += 0.002
        done.append(name)

    for name, slices in (("first", 4), ("second", 2), ("third", 1)):
        read(name, slices)
    assert done == []  # the first used the turn up: three slices began within 5 ms
    while len(done) < 3:
        others.append(len(done))  # everything else on the loop, between two turns
        await asyncio.sleep(0)
    assert done == ["first", "second", "third"]
    assert len(others) >= 2
    await asyncio.sleep(0)
    assert not turns.used_up()


async def test_what_is_thrown_away_is_read_for_one_turn_and_then_not_for_a_rest(monkeypatch: pytest.MonkeyPatch):
    loop, later = asyncio.get_running_loop(), list[float]()
    monkeypatch.setattr(loop, "call_later", lambda delay_s, _: later.append(delay_s))
    times = count()
    turns = ReadingTurns(1, loop=loop, rest_ms=20, clock=lambda: next(times))
    assert not turns.used_up()
    assert turns.used_up()
    turns.wait(lambda: None)
    await asyncio.sleep(0)
    assert later == [0.02]
    assert turns.used_up()  # the next turn of the loop is none of its own


async def test_a_burst_of_requests_is_answered_over_many_turns_with_others_between() -> None:
    async with serving(turn_ms=1) as (server, bench), await Peer2.connect(server) as peer:
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        client.data_to_send()
        head = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "127.0.0.1")]
        for number in range(1, 200, 2):
            client.send_headers(number, head, end_stream=True)
        before = 0
        steps: list[int] = []
        peer.writer.write(client.data_to_send())

        def between() -> None:
            steps.append(len(bench.seen))
            if len(bench.seen) < 100:
                asyncio.get_running_loop().call_soon(between)

        between()
        await eventually(lambda: len(bench.seen) == 100)
        assert max(after - earlier for earlier, after in zip([before, *steps], [*steps, 100], strict=True)) < 100
        assert len(server.connections) == 1


@on_both_loops
async def test_a_large_body_that_has_come_is_read_a_piece_per_turn() -> None:
    async with serving() as (server, bench):
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.setblocking(False)
        head = b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 60000000\r\n\r\n"
        sent = sock.send(head + bytes(8 << 20))  # as much as the kernel takes: it is all there before anything is read
        held = [0]

        def between() -> None:
            held.append(server.connections.bodies.held_bytes)
            asyncio.get_running_loop().call_soon(between)

        between()
        await eventually(lambda: held[-1] == sent - len(head))
        assert sent > 1 << 20
        assert max(after - before for before, after in pairwise(held)) <= 256 << 10
        sock.close()
        assert bench.seen == []


@on_both_loops
async def test_large_bodies_come_whole_through_their_turns() -> None:
    async with serving(turn_ms=1) as (server, bench):
        body = bytes(range(256)) * 8_192

        async def post() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=8 << 20)
            writer.write(b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await reader.readuntil(b"\r\n\r\n")
            try:
                return await reader.readexactly(len(body))
            finally:
                writer.close()

        assert set(await asyncio.gather(*(post() for _ in range(12)))) == {body}
        assert len(bench.seen) == 12


@on_both_loops
async def test_a_large_body_is_answered_also_where_its_sender_says_at_once_that_it_sends_no_more() -> None:
    async with serving(turn_ms=1) as (server, _):
        body = bytes(1 << 20)

        async def post() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=8 << 20)
            writer.write(b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            writer.write_eof()
            try:
                return (await reader.read())[:15]
            finally:
                writer.close()

        assert set(await asyncio.gather(*(post() for _ in range(12)))) == {b"HTTP/1.1 200 OK"}
