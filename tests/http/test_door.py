"""What is refused at the door waits for its allowance there, and nobody else does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial

import pytest
from h2.events import ResponseReceived, StreamReset

from tenure.http.server import Server
from tenure.http.wire.door import Door
from tenure.http.wire.encode import Refused
from tenure.http.wire.http1.protocol import HttpProtocol
from tenure.http.wire.http1.reader import Phase
from tenure.http.wire.limits import WireLimits
from tests.http.test_h2 import Peer2
from tests.http.wire_support import Peer, eventually, on_both_loops, pass_ms, post, serving, talk

HUGE = b"x" * (1 << 20)
NORMAL = (400, 401, 403, 404, 405, 409, 412, 413, 422, 429, 500, 503)
"""What a client whose key is good may be answered."""


def overdraw(server: Server) -> None:
    """Have nothing more leave the door for as long as a test takes."""
    server.connections.door.left_s = -1e6


class Scene:
    """A door on a clock that the test moves, whose timer it calls; ``left`` and ``cut`` are its answers."""

    def __init__(self, **limits: int) -> None:
        self.now_s = 100.0
        self.delays_s: list[float] = []
        self._calls: list[Callable[[], None]] = []
        self.door = Door(WireLimits(**limits), loop=self, clock=lambda: self.now_s)  # type: ignore[arg-type]
        self.left: list[str] = []
        self.cut: list[str] = []
        self.answers: dict[str, Callable[[], None]] = {}

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        self.delays_s.append(delay_s)
        self._calls.append(call)
        return call

    def refuse(self, name: str, *, took_s: float = 0.0, address: str = "") -> None:
        """Refuse what took so long to read; its answer leaves now or later."""
        began_s, self.now_s = self.now_s, self.now_s + took_s
        answer = self.answers[name] = partial(self._leave, name, took_s)
        if self.door.lets_through(address, answer, cut=partial(self.cut.append, name)):
            self.left.append(name)
        self.door.spend(began_s)

    def _leave(self, name: str, took_s: float) -> None:
        self.left.append(name)
        self.now_s += took_s

    def look(self) -> None:
        """Let the time pass that the door waits for, and have it look."""
        self.now_s += self.delays_s[-1]
        (call,) = self._calls
        self._calls.clear()
        call()

    def look_until_empty(self) -> None:
        while len(self.door):
            self.look()


def test_what_is_within_the_allowance_leaves_at_once_and_the_rest_after_the_debt_is_paid() -> None:
    scene = Scene(refused_ms_per_s=50, refused_burst_ms=100)
    for number in range(30):
        scene.refuse(str(number), took_s=0.01)
    assert len(scene.left) == 11  # the time of the eleventh is charged after it has left
    scene.look_until_empty()
    took_s = 30 * 0.01 + 19 * 0.01  # to read them, and to have them leave later
    assert scene.now_s - 100 >= (took_s - 0.1 - 0.01) / 0.05  # a twentieth of the time but for the burst and the last
    assert scene.left == [str(number) for number in range(30)]
    assert len(scene.door) == 0


def test_the_allowance_grows_back_and_no_further_than_the_burst() -> None:
    scene = Scene(refused_ms_per_s=50, refused_burst_ms=100)
    for _ in range(2):
        scene.left.clear()
        scene.now_s += 1_000
        for number in range(30):
            scene.refuse(str(number), took_s=0.01)
        assert len(scene.left) == 11
        scene.look_until_empty()


def test_without_a_burst_each_waits_until_those_before_it_are_paid() -> None:
    scene = Scene(refused_ms_per_s=50, refused_burst_ms=0)
    scene.refuse("one", took_s=0.001)
    scene.refuse("two", took_s=0.001)
    assert scene.left == ["one"]
    began_s = scene.now_s
    scene.look_until_empty()
    assert scene.left == ["one", "two"]
    assert scene.now_s - began_s >= 0.001 / 0.05


def test_addresses_are_served_in_turn_and_the_answers_of_one_in_their_order() -> None:
    scene = Scene(refused_burst_ms=0)
    scene.refuse("first", took_s=1)
    for number in range(20):
        scene.refuse(f"flood {number}", address="flood", took_s=0.001)
    scene.refuse("a", address="other", took_s=0.001)
    scene.refuse("b", address="other", took_s=0.001)
    scene.look_until_empty()
    assert scene.left[1:5] == ["flood 0", "a", "flood 1", "b"]
    assert scene.left[5:] == [f"flood {number}" for number in range(2, 20)]


def test_who_gives_up_is_not_called_and_delays_nobody() -> None:
    scene = Scene(refused_burst_ms=0)
    scene.refuse("first", took_s=0.001)
    for number in range(20):
        scene.refuse(str(number), took_s=0)
    for number in range(19):
        scene.door.give_up("", scene.answers[str(number)])
        scene.door.give_up("", scene.answers[str(number)])
    assert len(scene.door) == 1
    scene.look_until_empty()
    assert scene.left == ["first", "19"]
    assert len(scene.delays_s) < 5


def test_where_too_many_wait_the_oldest_of_the_address_with_the_most_is_cut() -> None:
    scene = Scene(refused_burst_ms=0, refused_waiting_max=5)
    scene.refuse("first", took_s=0.001)
    scene.refuse("other", address="other")
    for number in range(10):
        scene.refuse(str(number))
        assert len(scene.door) <= 5
    scene.refuse("other too", address="other")
    assert scene.cut == [str(number) for number in range(7)]
    scene.look_until_empty()
    assert sorted(scene.left) == ["7", "8", "9", "first", "other", "other too"]


def test_a_step_within_a_step_counts_once() -> None:
    scene = Scene(refused_burst_ms=100)
    began_s = scene.now_s
    scene.now_s += 0.03
    scene.door.spend(scene.now_s - 0.02)
    scene.door.spend(began_s)
    assert scene.door.left_s == pytest.approx(0.1 - 0.02)


def test_an_answer_that_fails_to_leave_stops_nobody_else() -> None:
    scene = Scene(refused_burst_ms=0)
    scene.refuse("first", took_s=0.001)
    scene.door.lets_through("", lambda: 1 // 0, cut=lambda: None)
    scene.refuse("last")
    with pytest.raises(ZeroDivisionError):
        scene.look_until_empty()
    scene.look_until_empty()
    assert scene.left == ["first", "last"]


# On sockets


@on_both_loops
async def test_one_without_a_key_waits_and_is_not_read_and_whatever_others_at_its_address_are_answered_they_do_not():
    async with (
        serving() as (server, bench),
        await Peer.connect(server) as bad,
        await Peer.connect(server) as good,
    ):
        overdraw(server)
        await bad.send(post(b"/refused") + post(body=b"behind it"))
        await eventually(lambda: len(server.connections.door) == 1)
        answer = asyncio.create_task(bad.reply())
        for status in NORMAL:
            for path in (b"/status/%d", b"/known/%d"):
                await good.send(post(path % status))
                assert (await good.reply()).status == status
        assert not answer.done()
        assert b"behind it" not in [bytes(request.body) for request in bench.seen]
        drained = asyncio.create_task(server.drain(30))  # a server that stops holds nothing back
        assert (await answer).status == 401
        assert await drained


@on_both_loops
async def test_only_what_is_refused_at_the_door_is_charged_to_its_allowance():
    async with serving(refused_ms_per_s=1, refused_burst_ms=60_000) as (server, _):
        door = server.connections.door
        for status in NORMAL:
            for path in (b"/status/%d", b"/known/%d"):
                assert (await talk(server, post(path % status))).status == status
        async with await Peer2.connect(server) as peer:
            for at, status in enumerate(NORMAL):
                await peer.request(f"/known/{status}", number=1 + 2 * at)
                await peer.until(ResponseReceived)
            assert door.left_s == 60
            for number in (101, 103):
                before_s = door.left_s
                await peer.request("/refused", number=number)
                await peer.until(ResponseReceived)
                assert door.left_s < before_s
        for data in (post(b"/refused"), b"GARBAGE\r\n\r\n"):
            before_s = door.left_s
            await talk(server, data)
            assert door.left_s < before_s


@on_both_loops
async def test_an_answer_waits_at_the_door_only_once_it_is_the_next_on_its_connection():
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        overdraw(server)
        await peer.send(post(b"/poll", b"first") + post(b"/refused") + post(b"/echo", b"last"))
        await bench.started.wait()
        assert len(server.connections.door) == 0
        bench.release.set()
        assert (await peer.reply()).body == b"first"
        assert len(server.connections.door) == 1
        server.connections.door.left_s = 1
        server.connections.door._look()
        assert (await peer.reply()).status == 401
        assert (await peer.reply()).body == b"last"


@on_both_loops
async def test_what_is_no_request_waits_at_the_door_too_and_one_connection_too_many_does_not():
    async with serving(connections_max=2) as (server, _), await Peer.connect(server) as good:
        overdraw(server)
        await good.send(post())
        assert (await good.reply()).status == 200
        async with await Peer.connect(server) as bad:
            await bad.send(post())
            assert (await bad.reply()).status == 200
            await bad.send(b"GARBAGE\r\n\r\n")
            await eventually(lambda: len(server.connections.door) == 1)
            assert (await talk(server, b"")).status == 503
            await good.send(post(b"/status/404"))
            assert (await good.reply()).status == 404
            assert len(server.connections.door) == 1


async def test_a_body_that_is_too_large_or_too_slow_is_no_matter_of_the_door_where_its_head_was_admitted():
    async with serving(body_bytes_max=10, body_grace_ms=10) as (server, _):
        overdraw(server)
        assert (await talk(server, post(b"/echo", b"x" * 100))).status == 413
        async with await Peer.connect(server) as slow:
            await slow.send(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n")
            (connection,) = server.connections._open
            assert isinstance(connection, HttpProtocol)
            await eventually(lambda: connection._reader.phase == Phase.BODY)
            pass_ms(server, 100)
            assert (await slow.reply()).status == 408


@on_both_loops
async def test_over_http_2_other_streams_go_on_where_a_key_was_used_on_the_connection():
    async with serving() as (server, _), await Peer2.connect(server) as peer:
        overdraw(server)
        await peer.request("/known/200", number=1)
        await peer.until(ResponseReceived)
        for number in range(3, 63, 2):
            await peer.request("/refused", number=number)
        for number, status in enumerate(NORMAL):
            await peer.request(f"/known/{status}", number=101 + 2 * number)
            assert (await peer.until(ResponseReceived)).stream_id == 101 + 2 * number
        assert len(server.connections.door) == 30
        await peer.request("/echo", b"no key is needed here", number=201)
        assert (await peer.until(ResponseReceived)).stream_id == 201
        drained = asyncio.create_task(server.drain(30))
        answers = [await peer.until(ResponseReceived) for _ in range(30)]
        assert [dict(answer.headers)[":status"] for answer in answers] == ["401"] * 30
        assert await drained


@on_both_loops
async def test_over_http_2_one_without_a_key_is_not_read_while_its_answer_waits_unless_a_key_comes_with_it():
    async with (
        serving() as (server, bench),
        await Peer2.connect(server) as bad,
        await Peer2.connect(server) as good,
    ):
        overdraw(server)
        await bad.request("/refused", number=1)
        await eventually(lambda: len(server.connections.door) == 1)
        await bad.request("/echo", b"behind it", number=3)
        for at, status in enumerate(NORMAL):
            await good.request(f"/status/{status}", number=1 + 2 * at)
            assert dict((await good.until(ResponseReceived)).headers)[":status"] == str(status)
        assert b"behind it" not in [bytes(request.body) for request in bench.seen]
        server.connections.door.left_s = 1
        server.connections.door._look()
        assert (await bad.until(ResponseReceived)).stream_id == 1
        assert (await bad.until(ResponseReceived)).stream_id == 3
        overdraw(server)
        bad.h2.send_headers(5, [*_pseudo("/refused")], end_stream=True)
        bad.h2.send_headers(7, [*_pseudo("/known/200")], end_stream=True)
        await bad.flush()
        assert (await bad.until(ResponseReceived)).stream_id == 7


@on_both_loops
async def test_over_http_2_half_of_the_streams_of_a_connection_are_left_for_those_that_are_admitted():
    async with serving(h2_streams_max=10) as (server, _), await Peer2.connect(server) as peer:
        overdraw(server)
        await peer.request("/known/200", number=1)
        await peer.until(ResponseReceived)
        for number in range(3, 103, 2):
            await peer.request("/refused", number=number)
            if number >= 13:
                assert (await peer.until(ResponseReceived)).stream_id == number - 10  # the one that waited longest
        assert len(server.connections.door) == 5


@on_both_loops
async def test_an_answer_that_nobody_waits_for_any_more_leaves_the_line():
    async with serving() as (server, _), await Peer2.connect(server) as peer:
        door = server.connections.door
        overdraw(server)
        await peer.request("/known/200", number=1)
        await peer.until(ResponseReceived)
        for number in (3, 5, 7):
            await peer.request("/refused", number=number)
        await eventually(lambda: len(door) == 3)
        peer.h2.reset_stream(5)
        await peer.flush()
        await eventually(lambda: len(door) == 2)
        peer.writer.close()
        await eventually(lambda: len(door) == 0)


@on_both_loops
async def test_where_too_many_answers_wait_the_connection_or_the_stream_of_the_oldest_is_cut():
    async with serving(refused_waiting_max=2) as (server, _), await Peer2.connect(server) as peer:
        overdraw(server)
        await peer.request("/known/200", number=1)
        await peer.until(ResponseReceived)
        await peer.request("/refused", number=3)
        async with await Peer.connect(server) as first, await Peer.connect(server) as second:
            await eventually(lambda: len(server.connections.door) == 1)
            await first.send(post(b"/refused"))
            await eventually(lambda: len(server.connections.door) == 2)
            await second.send(post(b"/refused"))
            assert (await peer.until(StreamReset)).stream_id == 3
            await peer.request("/refused", number=5)
            assert await first.closed()
            assert len(server.connections.door) == 2
            await peer.request("/known/200", number=7)
            await peer.until(ResponseReceived)


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


def _pseudo(path: str) -> list[tuple[str, str]]:
    return [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "test")]
