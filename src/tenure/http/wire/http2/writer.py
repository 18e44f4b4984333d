"""The sending half of an HTTP/2 connection: response heads, and bodies within the peer's flow control windows.

Bytes wait in their stream until the windows and the socket let them through; what waits is counted with what all other
peers have not taken.
"""

from __future__ import annotations

import asyncio

from h2.connection import H2Connection

from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import BODILESS, all_headers
from tenure.http.wire.http2.frame_meter import FrameMeter
from tenure.http.wire.http2.stream import Http2Stream
from tenure.http.wire.message import Response
from tenure.http.wire.outbound import Outbound

__all__ = ["Http2Writer"]


class Http2Writer(Outbound):
    """The writer of one connection's streams. ``held_bytes`` are in the streams and not sent yet."""

    __slots__ = ("_h2", "_meter")

    def __init__(self, h2: H2Connection, transport: asyncio.Transport, registry: Connections, *, meter: FrameMeter):
        super().__init__(transport, registry)
        self._h2 = h2
        self._meter = meter

    def send_head(self, stream: Http2Stream, response: Response, *, is_whole: bool) -> None:
        """Send the head of a response; ``is_whole`` where no body follows."""
        head = [(b":status", b"%d" % response.status), (b"date", self._registry.date[6:-2])]
        if response.status not in BODILESS:
            head.append((b"content-type", response.content_type))
            if response.stream is None:
                head.append((b"content-length", b"%d" % len(response.body)))
        head += [(name.lower(), value) for name, value in all_headers(response)]
        self._h2.send_headers(stream.number, head, end_stream=is_whole)

    def put(self, stream: Http2Stream, data: bytes) -> None:
        """Add to the body of a response, to be sent by `pump`."""
        stream.out.put(data)
        self.held_bytes += len(data)

    def pump(self, stream: Http2Stream) -> bool:
        """Send what the peer's windows and the socket let through; return whether the response is complete by that."""
        while stream.out and not self.stalled:
            size = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if size <= 0:
                break
            data = stream.out.take(size)
            self.held_bytes -= len(data)
            self._h2.send_data(stream.number, data)
            stream.sent_bytes += len(data)
            self._meter.credit(2)
            self.flush()
        if stream.out:
            stream.block()
            return False
        stream.blocked = False
        if not stream.ended or stream.gone:
            return False
        self._h2.end_stream(stream.number)
        return True

    def forget(self, stream: Http2Stream) -> None:
        """Drop what a stream still has for the peer."""
        self.held_bytes -= len(stream.out)
        stream.out.clear()

    def flush(self) -> None:
        """Write the frames that the library has ready."""
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._give(data)

    def abort(self) -> None:
        """Close the connection without another byte."""
        self.gone = True
        super().abort()
