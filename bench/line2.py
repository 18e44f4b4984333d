"""HTTP/2 for the hostile benchmarks: a connection that many callers share, and a flood that costs its sender little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

from bench.attacks import crowd

__all__ = ["Line2", "flood2"]

_ENDS = 1
"""The flag of a frame that ends its stream."""
_AT_ONCE = 48


def fields(method: str, path: str, key: str) -> list[tuple[str, str]]:
    """The headers of a request."""
    pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
    return [*pseudo, ("content-type", "application/json"), *([("authorization", f"Bearer {key}")] if key else [])]


class Line2:
    """One connection, opened by the first call; calls may overlap."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._h2: H2Connection

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of one answer. Raises OSError."""
        if self._writer is None:
            await self._open()
        number = self._h2.get_next_available_stream_id()
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._h2.send_headers(number, fields(method, path, self._key), end_stream=not body)
        if body:
            self._h2.send_data(number, body, end_stream=True)
        self._flush()
        return await answer

    async def _open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._h2.initiate_connection()
        self._task = asyncio.ensure_future(self._read())

    def _flush(self) -> None:
        if self._writer is not None:
            self._writer.write(self._h2.data_to_send())

    async def _read(self) -> None:
        found: dict[int, tuple[int, bytes]] = {}
        while data := await self._reader.read(1 << 16):
            for event in self._h2.receive_data(data):
                match event:
                    case ResponseReceived():
                        found[event.stream_id] = int(dict(event.headers)[b":status"]), b""
                    case DataReceived():
                        status, body = found[event.stream_id]
                        found[event.stream_id] = status, body + event.data
                        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case StreamEnded():
                        self._waiting.pop(event.stream_id).set_result(found.pop(event.stream_id))
                    case StreamReset():
                        self._waiting.pop(event.stream_id).set_exception(ConnectionResetError("a stream was reset"))
            self._flush()
        for answer in self._waiting.values():
            answer.set_exception(ConnectionResetError("the server closed the connection"))
        self._waiting.clear()

    def close(self) -> None:
        """Close it; the next call opens another one."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


def flood2(path: str, *, count: int = 8) -> Callable[[int, str], Awaitable[None]]:
    """Keep 48 requests in flight on each of so many connections. Their frames are made by hand: the same header block
    over and over.
    """

    async def load(port: int, key: str) -> None:
        await crowd(count, lambda: _flood(port, fields("GET", path, key)))

    return load


async def _flood(port: int, headers: list[tuple[str, str]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        connection = H2Connection(H2Configuration(client_side=True))
        connection.initiate_connection()
        connection.increment_flow_control_window((1 << 31) - 1 - 65_535)
        writer.write(connection.data_to_send())
        encoder, number, in_flight = connection.encoder, 1, 0
        first, block = encoder.encode(headers), encoder.encode(headers)
        while True:
            frames = []
            for _ in range(_AT_ONCE - in_flight):
                part = first if number == 1 else block
                frames.append(len(part).to_bytes(3, "big") + b"\x01\x05" + number.to_bytes(4, "big") + part)
                number += 2
            writer.write(b"".join(frames))
            in_flight = _AT_ONCE - await _ended(reader)
    finally:
        writer.close()


async def _ended(reader: asyncio.StreamReader) -> int:
    """Read frames until one ends a stream; return 1."""
    while True:
        frame = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(frame[:3], "big"))
        if frame[3] in (0, 1) and frame[4] & _ENDS:
            return 1
