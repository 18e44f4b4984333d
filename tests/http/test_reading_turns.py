"""What comes over HTTP/2 is read in turns, so that everything else on the loop gets its own."""

from __future__ import annotations

import asyncio
from functools import partial

from h2.config import H2Configuration
from h2.connection import H2Connection

from tenure.http.reading_turns import ReadingTurns
from tests.http.test_h2 import Peer2
from tests.http.wire_support import eventually, serving


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
