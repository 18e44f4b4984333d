"""A bare uvloop program that writes one event frame to every connected reader: what a fan-out costs at the least.

A connection that sends a GET becomes a reader. A POST forms the frame of its body once, as Tenure's watch does, and
writes it to all readers; then it is answered. `python -m bench.bare` serves.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from typing import cast

import uvloop

__all__ = ["FRAME"]

FRAME = (
    b'id: %b\nevent: record\ndata: {"topic":"t","records":[{"$seq":%d,"$ts":%d,"data":%b}],'
    b'"from_seq":%d,"to_seq":%d,"head_seq":%d}\n\n'
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_OPENED = b"16\r\nevent: caught-up\n\n\n\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class FanOut:
    """The readers, and the number of the last frame."""

    def __init__(self) -> None:
        self.readers: dict[asyncio.Transport, None] = {}
        self._seq = 0

    def publish(self, body: bytes) -> None:
        """Write one frame to all."""
        seq = self._seq = self._seq + 1
        data = body[body.index(b'"data":') + 7 : -3]
        frame_id = urlsafe_b64encode(b'{"t":%d}' % seq).rstrip(b"=")
        frame = FRAME % (frame_id, seq, time.time_ns() // 1_000_000, data, seq - 1, seq, seq)
        chunk = b"%x\r\n%b\r\n" % (len(frame), frame)
        for reader in self.readers:
            reader.write(chunk)


class Connection(asyncio.Protocol):
    """One reader, or one producer that has one request under way."""

    def __init__(self, readers: FanOut) -> None:
        self._fan_out = readers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):
            self._received = b""
            self._transport.write(_HEAD + _OPENED)
            self._fan_out.readers[self._transport] = None
            return
        start = head.index(b"content-length: ") + 16
        if len(body) == int(head[start:].partition(b"\r\n")[0]):
            self._received = b""
            self._fan_out.publish(body)
            self._transport.write(_ANSWER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fan_out.readers.pop(self._transport, None)


async def _serve() -> None:
    readers = FanOut()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(readers), "127.0.0.1", 0, backlog=2_048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
