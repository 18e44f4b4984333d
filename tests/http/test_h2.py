"""HTTP/2 by prior knowledge: the same answers, flow control, and floods that end in a closed connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tenure.http.server import Server
from tests.http.wire_support import eventually, on_both_loops, pass_ms, serving


class Peer2:
    """An HTTP/2 client whose frames a test can choose one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Event] = []

    @classmethod
    async def connect(cls, server: Server) -> Peer2:
        peer = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        peer.h2.initiate_connection()
        await peer.flush()
        return peer

    async def __aenter__(self) -> Peer2:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def request(self, path: str = "/echo", body: bytes = b"", *, number: int = 1, method: str = "POST") -> None:
        self.h2.send_headers(number, _head(path, method), end_stream=not body)
        if body:
            self.h2.send_data(number, body, end_stream=True)
        await self.flush()

    async def until(self, kind: type[Event], *, acknowledge: bool = True) -> Any:
        """The next event of a kind; everything that came is kept in ``events``."""
        while True:
            for at, event in enumerate(self.events):
                if isinstance(event, kind):
                    return self.events.pop(at)
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            for event in self.h2.receive_data(data):
                self.events.append(event)
                if isinstance(event, DataReceived) and acknowledge:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            await self.flush()

    async def ended(self) -> int | None:
        """Wait for the end of the connection; the code it ended with."""
        code = None
        try:
            while True:
                code = (await self.until(ConnectionTerminated)).error_code
        except (EOFError, ConnectionError):
            return code


def _head(path: str = "/echo", method: str = "POST", **extra: str) -> list[tuple[str, str]]:
    fixed = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "test")]
    return fixed + list(extra.items())


async def test_httpx_speaks_http_2_on_the_same_port():
    async with serving() as (server, bench):
        bench.release.set()
        base_url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base_url, http1=False, http2=True) as client:
            for size in (0, 1, 100_000, 3_000_000):
                reply = await client.post("/echo?a=b", content=b"x" * size)
                assert (reply.http_version, reply.status_code, len(reply.content)) == ("HTTP/2", 200, size)
            assert (await client.get("/stream")).content == b"onetwo"
            assert len((await client.get("/big")).content) == 3_000_000
            replies = await asyncio.gather(*(client.post("/echo", content=b"%d" % n) for n in range(100)))
            assert [reply.content for reply in replies] == [b"%d" % n for n in range(100)]
            head = await client.head("/big")
            assert (head.headers["content-length"], head.content) == ("3000000", b"")
        assert server.connections.counts.accepted == 1
        assert bench.seen[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert (bench.seen[0].query, bench.seen[0].client) == ("a=b", "127.0.0.1")


@on_both_loops
async def test_the_preface_may_come_in_pieces():
    async with serving() as (server, _), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head(), end_stream=True)
        data = peer.h2.data_to_send()
        for at in range(len(data)):
            peer.writer.write(data[at : at + 1])
            await asyncio.sleep(0)
        assert (await peer.until(ResponseReceived)).stream_id == 1


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (_head("/a%ff"), "400"),
        (_head("/a%zz"), "400"),
        (_head("/" + "a" * 9_000), "414"),
        (_head(**{"content-length": "99999999999"}), "413"),
        (_head() + [(f"x{n}", "1") for n in range(200)], "431"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_stays(head: list[tuple[str, str]], status: str):
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.config.validate_outbound_headers = False
        peer.h2.send_headers(1, head)
        await peer.flush()
        answer = await peer.until(ResponseReceived)
        assert dict(answer.headers)[":status"] == status
        await peer.until(StreamEnded)
        await peer.request(number=3)
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "200"
        assert len(bench.seen) == 1


@pytest.mark.parametrize("head", [_head(host="other"), _head()[:3], _head()[1:], [*_head(), ("Upper", "1")], []])
async def test_what_is_no_http_2_ends_the_connection(head: list[tuple[str, str]]):
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        block = peer.h2.encoder.encode(head)
        peer.writer.write(HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"]).serialize())
        assert await peer.ended() == ErrorCodes.PROTOCOL_ERROR
        assert bench.seen == []


@on_both_loops
async def test_29_a_body_cut_half_way_reaches_nobody():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        peer.h2.send_data(1, b"x" * 100)
        await peer.flush()
        await eventually(lambda: server.connections.bodies.held_bytes == 100)
        peer.h2.reset_stream(1)
        await peer.flush()
        await eventually(lambda: server.connections.bodies.held_bytes == 0)
        assert bench.seen == []


@on_both_loops
async def test_35_a_body_above_the_limit_is_refused_and_told_to_stop():
    async with serving(body_bytes_max=1_000) as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        peer.h2.send_data(1, b"x" * 2_000)
        await peer.flush()
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "413"
        assert (await peer.until(StreamReset)).error_code == ErrorCodes.NO_ERROR
        assert bench.seen == []


@on_both_loops
async def test_a_request_that_is_refused_at_its_head_is_answered_and_told_to_stop():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head("/refused"))
        await peer.flush()
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "401"
        assert (await peer.until(StreamReset)).error_code == ErrorCodes.NO_ERROR
        await peer.request(number=3)
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "200"
        assert len(bench.seen) == 1


@on_both_loops
async def test_a_small_body_that_was_refused_at_its_head_is_passed_over():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head("/refused", **{"content-length": "1000"}))
        peer.h2.send_data(1, b"x" * 999)
        peer.h2.send_headers(3, _head("/refused"), end_stream=True)
        await peer.flush()
        assert (await peer.until(ResponseReceived)).stream_id == 3
        assert server.connections.bodies.held_bytes == 0
        peer.h2.send_data(1, b"x", end_stream=True)
        await peer.flush()
        assert (await peer.until(ResponseReceived)).stream_id == 1
        await peer.until(StreamEnded)
        assert not any(isinstance(event, StreamReset) for event in peer.events)
        assert bench.seen == []


@on_both_loops
async def test_a_body_whose_key_is_taken_away_while_it_comes_is_refused_at_the_next_tick():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        peer.h2.send_data(1, b"x" * 10_000)
        await peer.flush()
        await eventually(lambda: server.connections.bodies.held_bytes == 10_000)
        bench.lapse = True
        pass_ms(server, 1)
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "401"
        assert (await peer.until(StreamReset)).error_code == ErrorCodes.NO_ERROR
        assert server.connections.bodies.held_bytes == 0
        assert bench.seen == []


@on_both_loops
async def test_bodies_on_streams_are_charged_to_their_caller():
    limits = {"small_body_bytes": 100, "bodies_bytes_per_caller_max": 20_000}
    async with serving(**limits) as (server, _), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head(**{"x-account": "one", "content-length": "15000"}))
        peer.h2.send_data(1, b"x" * 14_000)
        await peer.flush()
        await eventually(lambda: server.connections.bodies.held_bytes == 14_000)
        peer.h2.send_headers(3, _head(**{"x-account": "one", "content-length": "6500"}))
        await peer.flush()
        refused = await peer.until(ResponseReceived)
        assert (refused.stream_id, dict(refused.headers)[":status"]) == (3, "429")
        await peer.request(body=b"x" * 100, number=5)
        assert (await peer.until(ResponseReceived)).stream_id == 5
        peer.h2.send_data(1, b"x" * 1_000, end_stream=True)
        await peer.flush()
        assert (await peer.until(ResponseReceived)).stream_id == 1


@on_both_loops
async def test_34_what_a_body_on_a_stream_sent_before_buys_it_no_time():
    limits = {"body_grace_ms": 1_000, "body_bytes_per_s_min": 1_000}
    async with serving(**limits) as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        peer.h2.send_data(1, b"x" * 10_000)
        await peer.flush()
        await eventually(lambda: server.connections.bodies.held_bytes == 10_000)
        for _ in range(9):
            pass_ms(server, 100)
        assert server.connections.counts.timed_out == 0
        for _ in range(4):
            pass_ms(server, 100)
        assert (await peer.until(StreamReset)).error_code == ErrorCodes.CANCEL
        assert bench.seen == []


@on_both_loops
async def test_33_a_large_answer_buys_its_slow_reader_no_time():
    limits = {"write_stall_ms": 1_000, "body_bytes_per_s_min": 1_000}
    async with serving(**limits) as (server, _), await Peer2.connect(server) as peer:
        await peer.request("/big")
        await eventually(lambda: _blocked(server))
        for _ in range(9):
            pass_ms(server, 100)
        assert server.connections.counts.slow_readers == 0
        for _ in range(4):
            pass_ms(server, 100)
        assert (await peer.until(StreamReset, acknowledge=False)).error_code == ErrorCodes.CANCEL
        assert server.connections.counts.slow_readers == 1


@on_both_loops
async def test_33_a_reader_that_takes_the_least_is_not_cut():
    limits = {"write_stall_ms": 1_000, "body_bytes_per_s_min": 1_000}
    async with serving(**limits) as (server, bench), await Peer2.connect(server) as peer:
        await peer.request("/flood", method="GET")
        await eventually(lambda: _blocked(server))
        for _ in range(30):
            before = bench.sent_bytes
            await peer.until(DataReceived)  # opens the window for as much again
            while bench.sent_bytes < before + 10_000:
                await peer.until(DataReceived)
            await eventually(lambda: _blocked(server))
            pass_ms(server, 500)
        assert server.connections.counts.slow_readers == 0


@on_both_loops
async def test_34_a_body_on_a_stream_must_make_progress():
    async with serving(body_grace_ms=1_000) as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        await peer.flush()
        await eventually(lambda: _streams(server) == 1)
        pass_ms(server, 1_002)
        assert (await peer.until(StreamReset)).error_code == ErrorCodes.CANCEL
        assert bench.seen == []


@on_both_loops
async def test_34_an_idle_connection_is_told_goodbye():
    async with serving(idle_ms=1_000) as (server, _), await Peer2.connect(server) as peer:
        await peer.request()
        await peer.until(StreamEnded)
        pass_ms(server, 1_002)
        assert await peer.ended() == ErrorCodes.NO_ERROR


def _streams(server: Server) -> int:
    return sum(len(getattr(connection, "_streams", ())) for connection in server.connections._open)


@on_both_loops
async def test_a_stream_and_a_poll_are_cancelled_when_their_stream_is_reset():
    for path in ("/stream", "/poll"):
        async with serving() as (server, bench), await Peer2.connect(server) as peer:
            await peer.request(path, method="GET")
            await bench.started.wait()
            peer.h2.reset_stream(1)
            await peer.flush()
            await bench.cancelled.wait()
            await peer.request(number=3)
            await peer.until(ResponseReceived)


@on_both_loops
async def test_a_stream_opened_and_reset_at_once_does_not_harm_its_neighbours():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head("/stream", "GET"), end_stream=True)
        peer.h2.send_headers(3, _head(), end_stream=True)
        peer.h2.send_headers(5, _head("/big", "GET"), end_stream=True)
        peer.h2.increment_flow_control_window(1_000)
        peer.h2.reset_stream(3)
        peer.h2.reset_stream(5)
        await peer.flush()
        await bench.started.wait()
        bench.release.set()
        assert (await peer.until(StreamEnded)).stream_id == 1


async def test_a_fault_of_ours_is_an_answer():
    async with serving() as (server, _), await Peer2.connect(server) as peer:
        for number, path in ((1, "/broken"), (3, "/split")):
            await peer.request(path, number=number)
            assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "500"


@on_both_loops
async def test_33_a_reader_that_opens_no_window_is_bounded_and_then_cut():
    limits = {"write_stall_ms": 1_000, "body_bytes_per_s_min": 1_000_000}
    async with serving(**limits) as (server, bench), await Peer2.connect(server) as peer:
        await peer.request("/flood", method="GET")
        await eventually(lambda: _blocked(server))
        assert bench.sent_bytes < 65_535 + 2 * server.connections.limits.write_buffer_bytes
        pass_ms(server, 900)
        assert not bench.cancelled.is_set()
        pass_ms(server, 400)
        assert (await peer.until(StreamReset, acknowledge=False)).error_code == ErrorCodes.CANCEL
        await bench.cancelled.wait()
        assert server.connections.counts.slow_readers == 1


def _blocked(server: Server) -> bool:
    limit = server.connections.limits.write_buffer_bytes
    return any(
        len(one.out) > limit for each in server.connections._open for one in getattr(each, "_streams", {}).values()
    )


@on_both_loops
async def test_37_draining_says_goodbye_finishes_requests_and_ends_streams():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        await peer.request("/stream", number=1, method="GET")
        await bench.started.wait()
        bench.started.clear()
        await peer.request("/poll", b"finished", number=3)
        await bench.started.wait()
        draining = asyncio.create_task(server.drain(30))
        assert (await peer.until(StreamEnded)).stream_id == 1
        await peer.request(number=5)
        refused = await peer.until(StreamReset)
        assert (refused.stream_id, refused.error_code) == (5, ErrorCodes.REFUSED_STREAM)
        bench.release.set()
        assert (await peer.until(StreamEnded)).stream_id == 3
        data = [(event.stream_id, bytes(event.data)) for event in peer.events if isinstance(event, DataReceived)]
        assert [pair for pair in data if pair[1]] == [(1, b"one"), (3, b"finished")]
        assert await peer.ended() == ErrorCodes.NO_ERROR
        assert await draining is True


@on_both_loops
async def test_37_a_poll_that_does_not_end_hears_that_the_server_stops():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        await peer.request("/poll")
        await bench.started.wait()
        assert await server.drain(0.01) is False
        assert dict((await peer.until(ResponseReceived)).headers)[":status"] == "503"
        assert await peer.ended() == ErrorCodes.NO_ERROR


def _frames(make: Callable[[int], Frame], *, count: int) -> bytes:
    return b"".join(make(number).serialize() for number in range(count))


def _ping(number: int) -> Frame:
    return PingFrame(0, opaque_data=number.to_bytes(8, "big"))


FLOODS: dict[str, Callable[[int], Frame]] = {
    "pings": _ping,
    "settings": lambda _: SettingsFrame(0, settings={1: 4096}),
    "priorities": lambda number: PriorityFrame(2 * number + 101, depends_on=0, stream_weight=1),
    "windows": lambda _: WindowUpdateFrame(0, window_increment=1),
    "empty data": lambda _: DataFrame(1, data=b""),
}


@pytest.mark.parametrize("kind", sorted(FLOODS))
async def test_48_a_flood_of_control_frames_ends_the_connection(kind: str):
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.send_headers(1, _head())
        await peer.flush()
        await eventually(lambda: _streams(server) == 1)
        peer.writer.write(_frames(FLOODS[kind], count=5_000))
        assert await peer.ended() in (ErrorCodes.ENHANCE_YOUR_CALM, None)
        assert server.connections.counts.floods == 1
        await eventually(lambda: len(server.connections) == 0)
        assert bench.seen == []


async def test_48_rapid_reset_ends_the_connection_and_runs_few_requests():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        block = peer.h2.encoder.encode(_head("/poll"))

        def pair(number: int) -> bytes:
            opened = HeadersFrame(2 * number + 1, block if number == 0 else again, flags=["END_HEADERS", "END_STREAM"])
            return opened.serialize() + RstStreamFrame(2 * number + 1, error_code=8).serialize()

        again = peer.h2.encoder.encode(_head("/poll"))
        peer.writer.write(b"".join(pair(number) for number in range(20_000)))
        await peer.ended()
        assert server.connections.counts.floods == 1
        assert len(bench.seen) <= server.connections.limits.h2_control_frames_max + 1_000
        await eventually(lambda: len(server.connections) == 0)


@pytest.mark.parametrize("size", [0, 1_000, 16_000])
async def test_48_continuations_without_end_are_refused(size: int):
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        opened = HeadersFrame(1, peer.h2.encoder.encode(_head())).serialize()
        padding = ContinuationFrame(1, b"x" * size).serialize()
        peer.writer.write(opened + padding * 2_000)
        await peer.ended()
        assert bench.seen == []
        await eventually(lambda: len(server.connections) == 0)


async def test_48_headers_that_unpack_to_far_more_than_they_are_get_refused():
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        block = peer.h2.encoder.encode([*_head(), ("x", "a" * 4_000)])
        bomb = block + bytes([0x80 | 62]) * 10_000  # the entry just indexed, again and again
        peer.writer.write(HeadersFrame(1, bomb, flags=["END_HEADERS", "END_STREAM"]).serialize())
        assert await peer.ended() is not None
        assert bench.seen == []


async def test_48_a_header_block_left_open_is_given_up():
    async with serving(header_ms=1_000) as (server, _), await Peer2.connect(server) as peer:
        peer.writer.write(HeadersFrame(1, peer.h2.encoder.encode(_head())).serialize())
        await eventually(
            lambda: any(getattr(one, "_block_since_s", None) is not None for one in server.connections._open)
        )
        pass_ms(server, 1_002)
        assert await peer.ended() == ErrorCodes.ENHANCE_YOUR_CALM


async def test_more_streams_than_allowed_end_the_connection():
    async with serving(h2_streams_max=10) as (server, bench), await Peer2.connect(server) as peer:
        peer.h2.remote_settings.max_concurrent_streams = 1_000
        for number in range(1, 41, 2):
            peer.h2.send_headers(number, _head("/poll"), end_stream=True)
        await peer.flush()
        assert await peer.ended() is not None
        assert len(bench.seen) <= 10


async def test_ordinary_use_is_no_flood():
    async with serving(h2_control_frames_max=50) as (server, _):
        base_url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base_url, http1=False, http2=True) as client:
            for _ in range(20):
                assert len((await client.get("/big")).content) == 3_000_000
        assert server.connections.counts.floods == 0
        assert server.connections.counts.accepted == 1
