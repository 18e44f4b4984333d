"""The sending half of an HTTP/2 connection: response heads, and bodies within the peer's flow control windows.

Bytes wait in their stream until the windows and the socket let them through; what waits is counted with what all other
peers have not taken.
"""

from __future__ import annotations

import asyncio

from h2.connection import H2Connection

from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import BODILESS, all_headers
from tenure.http.wire.http2.frame_meter import FrameMeter
from tenure.http.wire.http2.stream import Http2Stream
from tenure.http.wire.message import Response

__all__ = ["Http2Writer"]


class Http2Writer:
    """The writer of one connection's streams.

    ``queued_bytes`` are in the streams and not sent yet; ``stalled`` says that the socket takes no more for now, and
    ``gone`` that nothing will be sent any more.
    """

    def __init__(self, h2: H2Connection, transport: asyncio.Transport, registry: Connections, *, meter: FrameMeter):
        self._h2 = h2
        self._transport = transport
        self._registry = registry
        self._meter = meter
        self._pace: Pace | None = None
        self._written_bytes = 0
        self._noted = False
        self.queued_bytes = 0
        self.stalled = False
        self.gone = False

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
        self.queued_bytes += len(data)

    def pump(self, stream: Http2Stream) -> bool:
        """Send what the peer's windows and the socket let through; return whether the response is complete by that."""
        while stream.out and not self.stalled:
            size = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if size <= 0:
                break
            data = stream.out.take(size)
            self.queued_bytes -= len(data)
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
        self.queued_bytes -= len(stream.out)
        stream.out.clear()

    def flush(self) -> None:
        """Write the frames that the library has ready."""
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._written_bytes += len(data)
            self._transport.write(data)

    # What the peer has not taken.

    def stall(self) -> None:
        """Send nothing more until the socket has room again; measure from now on how fast the peer takes it."""
        self.stalled, self._pace = True, Pace(self._registry.now_s, self.taken_bytes())
        self.note()

    def too_slow(self, now_s: float) -> bool:
        """Return whether the peer takes what waits for it in the socket more slowly than it must."""
        limits, taken_bytes = self._registry.limits, self.taken_bytes()
        if self._pace is None:
            self._pace = Pace(self._registry.now_s, taken_bytes)
        return self._pace.too_slow(
            now_s, taken_bytes, window_ms=limits.write_stall_ms, bytes_per_s_min=limits.body_bytes_per_s_min
        )

    def note(self) -> None:
        """Have what is kept for the peer counted with what all others have not taken."""
        keeps = not self.gone and self.unsent_bytes() > 0
        if keeps or self._noted:
            self._noted = keeps
            self._registry.note_unsent(self)

    def unsent_bytes(self) -> int:
        """Return how many bytes are kept for the peer."""
        return self.queued_bytes + self._transport.get_write_buffer_size()

    def taken_bytes(self) -> int:
        """Return how many bytes the peer has taken since it connected."""
        return self._written_bytes - self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection without another byte."""
        self.gone = True
        self._transport.abort()

    def lose(self) -> None:
        """Count nothing for this peer any more: it is gone."""
        self.gone = True
        self._registry.unsent.forget(self)
