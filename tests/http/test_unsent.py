"""Answers that nobody takes: what is kept of them, for one peer and for all, and who is cut to make room."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from h2.events import ResponseReceived, StreamEnded
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from tenure.http.server import Server
from tenure.http.wire.connections import Connections
from tenure.http.wire.http2.stream import OutQueue
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.outbound import Outbound
from tenure.http.wire.unsent import Unsent
from tests.http.test_h2 import Peer2
from tests.http.wire_support import Peer, eventually, on_both_loops, pass_ms, serving

BIG_BYTES = 3_000_000


@given(st.lists(st.binary(max_size=20) | st.integers(0, 30)))
def test_bytes_leave_in_the_order_in_which_they_came(steps: list[bytes | int]) -> None:
    queue, expected = OutQueue(), b""
    for step in steps:
        if isinstance(step, bytes):
            queue.put(step)
            expected += step
        else:
            taken = queue.take(step)
            assert taken == expected[:step]
            expected = expected[len(taken) :]
        assert len(queue) == len(expected)


class Fake:
    """A peer for whom bytes are kept."""

    def __init__(self, unsent: int, *, taken: int = 0) -> None:
        self.unsent = unsent
        self.taken = taken
        self.cut = False

    def unsent_bytes(self) -> int:
        return 0 if self.cut else self.unsent

    def taken_bytes(self) -> int:
        return self.taken

    def abort(self) -> None:
        self.cut = True


def ledger(total_max: int = 1_000) -> Unsent:
    return Unsent(WireLimits(unsent_bytes_total_max=total_max, body_bytes_per_s_min=10))


def test_the_peer_that_is_furthest_behind_is_cut_first() -> None:
    unsent = ledger()
    honest, first, second, last = Fake(400), Fake(300), Fake(200), Fake(200)
    for now_s, peer in enumerate((honest, first, second)):
        assert unsent.note(peer, now_s) == 0
    honest.taken = 1_000_000
    second.taken = 5
    assert unsent.note(last, 10) == 1
    assert [peer.cut for peer in (honest, first, second, last)] == [False, True, False, False]
    assert unsent.total_bytes == 800


def test_room_is_made_for_more_than_the_one_that_needs_it() -> None:
    unsent = ledger()
    peers = [Fake(10) for _ in range(101)]
    cut = sum(unsent.note(peer, 0) for peer in peers)
    assert cut == 14  # to seven eighths; of equals the earliest go
    assert [peer.cut for peer in peers] == [True] * 14 + [False] * 87
    assert unsent.total_bytes == 870


def test_what_has_been_taken_meanwhile_is_seen_before_anybody_is_cut() -> None:
    unsent = ledger()
    early, late = Fake(900), Fake(900)
    unsent.note(early, 0)
    early.unsent = 50
    assert unsent.note(late, 1) == 0
    assert unsent.total_bytes == 950
    unsent.forget(late)
    unsent.forget(late)
    early.unsent = 0
    unsent.note(early, 2)
    assert unsent.total_bytes == 0


async def _shut(server: Server, *, numbers: range, path: str = "/big") -> Peer2:
    """A peer that asks and opens no window."""
    peer = await Peer2.connect(server)
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    for number in numbers:
        await peer.request(path, number=number, method="GET")
    return peer


@on_both_loops
async def test_33_requests_of_a_peer_that_takes_nothing_wait_until_it_does() -> None:
    async with serving() as (server, bench), await _shut(server, numbers=range(1, 100, 2)) as peer:
        await eventually(lambda: server.connections.unsent.total_bytes > BIG_BYTES)
        await peer.request("/echo", number=101)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(bench.seen) == 2  # one fits, and one goes above the limit
        assert server.connections.unsent.total_bytes < 2 * BIG_BYTES + 100_000
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        peer.h2.increment_flow_control_window(1 << 30)
        await peer.flush()
        for _ in range(51):
            await peer.until(StreamEnded)
            peer.events = [event for event in peer.events if isinstance(event, StreamEnded)]
        assert len(bench.seen) == 51
        pass_ms(server, 1)
        assert server.connections.unsent.total_bytes == 0


@on_both_loops
async def test_33_a_waiting_request_that_is_taken_back_is_never_started() -> None:
    async with serving() as (server, bench), await _shut(server, numbers=range(1, 9, 2)) as peer:
        await eventually(lambda: len(bench.seen) == 2)
        peer.h2.reset_stream(5)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        peer.h2.increment_flow_control_window(1 << 30)
        await peer.flush()
        ended = {(await peer.until(StreamEnded)).stream_id for _ in range(3)}
        assert ended == {1, 3, 7}
        assert len(bench.seen) == 3


@on_both_loops
async def test_33_an_answer_that_many_wait_for_is_in_memory_once() -> None:
    limits = {"unsent_bytes_max": 1 << 30, "unsent_bytes_total_max": 1 << 31}
    async with serving(**limits) as (server, _), await _shut(server, numbers=range(1, 100, 2), path="/shared") as peer:
        await eventually(lambda: server.connections.unsent.total_bytes >= 50 * BIG_BYTES)
        (connection,) = server.connections._open
        parts = [part for stream in connection._streams.values() for part in stream.out._parts]  # type: ignore[attr-defined]
        assert len(parts) == 50
        assert len({id(part) for part in parts}) == 1
        assert (await peer.until(ResponseReceived)).stream_id == 1


@on_both_loops
async def test_33_those_who_take_nothing_are_cut_and_those_who_read_are_not() -> None:
    async with serving(unsent_bytes_total_max=10_000_000) as (server, _):
        shut = [await _shut(server, numbers=range(1, 5, 2)) for _ in range(8)]
        deaf = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" * 4)
        async with await Peer.connect(server) as honest, await Peer2.connect(server) as honest2:
            for number in range(1, 21, 2):
                pass_ms(server, 100)
                await honest.send(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
                assert len((await honest.reply()).body) == BIG_BYTES
                await honest2.request("/big", number=number, method="GET")
                assert (await honest2.until(StreamEnded)).stream_id == number
                assert server.connections.unsent.total_bytes <= 10_000_000
        assert server.connections.counts.slow_readers >= 6
        for peer in shut:
            peer.writer.close()
        for connection in deaf:
            connection.close()
        await eventually(lambda: server.connections.unsent.total_bytes == 0)


@on_both_loops
async def test_33_answers_behind_a_long_poll_are_bounded() -> None:
    async with serving() as (server, bench), await Peer.connect(server) as peer:
        await peer.send(b"GET /poll HTTP/1.1\r\nhost: x\r\n\r\n" + b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" * 20)
        await bench.started.wait()
        await eventually(lambda: server.connections.unsent.total_bytes > BIG_BYTES)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(bench.seen) == 3
        bench.release.set()
        assert (await peer.reply()).status == 200
        for _ in range(20):
            assert len((await peer.reply()).body) == BIG_BYTES


class Keeping(asyncio.Transport):
    """A transport that keeps each object of which a byte is left, as uvloop's does; its socket takes ``room`` bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.kept: list[tuple[bytes, int]] = []
        self.outbound: Outbound | None = None

    def write(self, data: Any) -> None:
        taken = min(self.room, len(data)) if not self.kept else 0
        self.room -= taken
        if taken < len(data):
            self.kept.append((data, len(data) - taken))
            assert self.outbound is not None
            if not self.outbound.stalled:
                self.outbound.stall()

    def get_write_buffer_size(self) -> int:
        return sum(left for _, left in self.kept)

    @property
    def kept_bytes(self) -> int:
        return sum(len(data) for data, _ in self.kept)


async def test_what_a_stalled_transport_keeps_is_about_what_was_not_taken_and_counts_until_it_is_gone() -> None:
    registry = Connections(WireLimits())
    transport = Keeping(room=800_000)
    outbound = transport.outbound = Outbound(transport, registry)
    outbound._give(b"x" * 1_000_000)
    assert 200_000 <= transport.kept_bytes <= 200_000 + (64 << 10)
    assert registry.unsent.total_bytes == outbound.unsent_bytes() == 200_000
    outbound._give(b"y" * 100_000)
    transport.kept = [(data, 1) for data, _ in transport.kept]  # of each a byte is left
    assert outbound.taken_bytes() == 1_100_000 - len(transport.kept)
    assert outbound.unsent_bytes() == 300_000
    outbound.stalled = False
    assert outbound.unsent_bytes() == len(transport.kept)


def test_an_answer_of_which_most_was_taken_is_not_kept_whole() -> None:
    queue = OutQueue()
    queue.put(b"x" * 1_000_000)
    taken = 0
    while len(queue) > 50_000:
        taken += len(queue.take(16_000))
        assert sum(map(len, queue._parts)) <= 2 * len(queue) + (64 << 10)
    assert queue.take(1 << 20) == b"x" * (1_000_000 - taken)
