"""A peer that is refused over and over waits for its answers; nobody else does."""

from __future__ import annotations

import asyncio
import gc
from itertools import count

import pytest

from tenure.http.server import Server
from tenure.http.wire.encode import Refused
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.reading_turns import ReadingTurns
from tenure.http.wire.refusals import Refusals, is_paced
from tests.http.test_h2 import Peer2
from tests.http.wire_support import Peer, eventually, on_both_loops, post, serving

LONG_MS = 3_600_000
HELD = {"refused_burst_ms": 0, "refused_ms_per_s": 1, "refused_delay_ms_max": LONG_MS}
"""Limits under which a refusal is held back for longer than a test takes, once its address is in `debt`."""
HUGE = b"x" * (1 << 20)


def debt(server: Server) -> None:
    server.connections.refusals.delay_s("127.0.0.1", 1 << 50)


class Clock:
    now_s = 0.0


def refusals(**limits: int) -> tuple[Refusals, Clock]:
    clock = Clock()
    return Refusals(WireLimits(**limits), now_s=lambda: clock.now_s), clock


def test_refusals_within_the_allowance_are_answered_at_once_and_those_beyond_it_wait_for_their_debt():
    paced, clock = refusals(refused_ms_per_s=50, refused_burst_ms=100)
    delays = [paced.delay_s("key") for _ in range(600)]
    assert delays[:499] == [0.0] * 499
    assert delays[-1] == pytest.approx((600 * 0.2 - 100) / 50)
    clock.now_s += delays[-1]
    assert paced.delay_s("key") == pytest.approx(0.2 / 50)  # it has paid, and is at its limit again
    clock.now_s += 10
    assert paced.delay_s("key") == 0.0


def test_callers_do_not_pay_for_each_other_and_a_large_body_costs_more():
    paced, _ = refusals(refused_burst_ms=0, refused_delay_ms_max=LONG_MS)
    small, large = paced.delay_s("one"), paced.delay_s("two", 60 << 20)
    assert large > 1_000 * small
    assert paced.delay_s("three") == small


def test_no_answer_waits_longer_than_the_limit_and_a_debt_does_not_outlast_it():
    paced, clock = refusals(refused_burst_ms=0, refused_ms_per_s=1, refused_delay_ms_max=2_000)
    for _ in range(100):
        paced.delay_s("key", 60 << 20)
    assert paced.delay_s("key") == 2.0
    clock.now_s += 2.001
    assert paced.delay_s("key") == pytest.approx(0.2, abs=0.01)


def test_only_so_many_callers_are_remembered():
    paced, _ = refusals(refused_accounts_max=10)
    for number in range(1_000):
        paced.delay_s(f"peer {number}")
    assert len(paced) == 10


@pytest.mark.parametrize(
    ("status", "paced"),
    [(200, False), (400, True), (401, True), (404, True), (429, True), (409, False), (412, False), (503, False)],
)
def test_a_lost_race_and_a_fault_of_the_server_are_no_refusals(status: int, paced: bool):
    assert is_paced(status) is paced


@on_both_loops
async def test_one_who_is_refused_too_often_waits_and_others_at_the_same_address_do_not():
    async with (
        serving(**HELD) as (server, bench),
        await Peer.connect(server) as bad,
        await Peer.connect(server) as good,
    ):
        debt(server)
        await bad.send(post(b"/refused") + post(body=b"behind it"))
        await eventually(lambda: server.connections.counts.requests >= 1)
        answer = asyncio.create_task(bad.reply())
        for number in range(20):
            await good.send(post(body=b"%d" % number))
            assert (await good.reply()).body == b"%d" % number
        assert not answer.done()
        assert [request.body for request in bench.seen if request.body == b"behind it"] == []
        drained = asyncio.create_task(server.drain(30))  # a server that stops holds nothing back
        assert (await answer).status == 401
        assert await drained


@on_both_loops
async def test_a_refusal_that_had_to_wait_for_its_turn_on_the_connection_is_held_back_too():
    async with serving(pipeline_max=1, **HELD) as (server, bench), await Peer.connect(server) as bad:
        await bad.send(post(b"/poll", b"first") + post(b"/refused"))
        await bench.started.wait()
        debt(server)
        bench.release.set()
        assert (await bad.reply()).body == b"first"
        answer = asyncio.create_task(bad.reply())
        async with await Peer.connect(server) as good:
            for number in range(20):
                await good.send(post(body=b"%d" % number))
                assert (await good.reply()).body == b"%d" % number
        assert not answer.done()
        drained = asyncio.create_task(server.drain(30))
        assert (await answer).status == 401
        assert await drained


@on_both_loops
async def test_over_http_2_nothing_more_is_started_for_one_who_is_refused_too_often():
    async with (
        serving(**HELD) as (server, bench),
        await Peer2.connect(server) as bad,
        await Peer.connect(server) as good,
    ):
        debt(server)
        await bad.request("/refused", number=1)
        await bad.flush()
        await eventually(lambda: server.connections.counts.requests >= 1)
        await bad.request("/echo", b"behind it", number=3)
        await bad.flush()
        for number in range(20):
            await good.send(post(body=b"%d" % number))
            assert (await good.reply()).body == b"%d" % number
        assert b"behind it" not in [bytes(request.body) for request in bench.seen]


@on_both_loops
async def test_what_was_read_before_a_refusal_is_let_go_of_at_once():
    async with serving() as (server, _):
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                async with await Peer.connect(server) as peer:
                    await peer.send(b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n" + HUGE)
                    assert (await peer.reply()).status == 401
            assert sum(isinstance(one, Refused) for one in gc.get_objects()) == 0
        finally:
            gc.enable()


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
