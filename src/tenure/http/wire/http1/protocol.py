"""HTTP/1.1 on a socket: back-pressure, refusals and deadlines; HTTP/2 is recognised and handed to its own protocol.

Bytes go to the reader, requests from there to the pipeline. The protocol itself decides when to read on, when a peer
has taken too long, and how the connection ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

from tenure.errors import Closed, Invalid
from tenure.http.wire.connection import Connection
from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import Refused
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.http1.pipeline import Pipeline
from tenure.http.wire.http1.reader import Phase, RequestReader
from tenure.http.wire.http2.protocol import PREFACE, Http2Protocol
from tenure.http.wire.message import Admit
from tenure.http.wire.reading_turns import ReadingTurns

__all__ = ["HttpProtocol"]

_SLICE_BYTES = 16 * 1024
"""What is parsed before looking whether there is room for more requests."""


class HttpProtocol(asyncio.Protocol):
    """One connection. ``admit`` is all it knows of the application; it takes the place of its ``arrival``."""

    __slots__ = (
        "_admit",
        "_arrival",
        "_buffered",
        "_discarding",
        "_discarding_since_s",
        "_half_closed",
        "_has_room",
        "_ignored_bytes",
        "_paused",
        "_paused_since_s",
        "_pipeline",
        "_reader",
        "_registry",
        "_silent",
        "_sniffed",
        "_transport",
        "_waits",
    )

    def __init__(self, admit: Admit, registry: Connections, *, arrival: Connection, has_room: bool) -> None:
        self._admit = admit
        self._registry = registry
        self._arrival = arrival
        self._has_room = has_room
        self._silent = True  # no whole head was read yet
        self._buffered = b""
        self._sniffed = False
        self._paused = False
        self._paused_since_s = 0.0
        self._waits = False  # for its turn to read on
        self._half_closed = False
        self._discarding = False  # nothing more is parsed; what comes is thrown away
        self._discarding_since_s: float | None = None
        self._ignored_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._registry.limits.write_buffer_bytes)
        peer = transport.get_extra_info("peername")
        client = str(peer[0]) if isinstance(peer, tuple) else ""
        self._pipeline = pipeline = Pipeline(
            self._registry, transport=self._transport, client=client, on_room=self._go_on, on_over=self._finish
        )
        self._reader = RequestReader(
            self._registry, client=client, admit=self._admit, deliver=pipeline.submit, invite=pipeline.invite
        )
        self._registry.replace(self._arrival, self)
        if not self._has_room or self._registry.draining:
            code = "shutting_down" if self._registry.draining else "not_ready"
            refused = Refused(Closed("no more connections are taken: try again later", code=code))
            self._refuse(refused, account=client)  # which is no fault of the peer's

    def connection_lost(self, exc: Exception | None) -> None:
        self._discarding = True
        self._registry.discard(self)
        self._reader.lose()
        self._pipeline.lose()

    # Reading.

    def data_received(self, data: bytes) -> None:
        if self._buffered:
            data, self._buffered = self._buffered + data, b""
        if not self._sniffed and self._is_http2(data):
            return
        if self._discarding:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > self._registry.limits.linger_bytes_max:
                self.abort()
            elif len(data) > _SLICE_BYTES:
                self._wait_for_turn(self._registry.lingering)
        elif self._pipeline.streaming:
            self._buffered = data  # read on only to notice that the peer goes; few bytes are pipelined after a stream
            if len(data) > self._registry.limits.write_buffer_bytes:
                self.abort()
        elif self._waits or not self._registry.fair.is_free:
            self._buffered = data
            self._wait_for_turn(self._reader.caller)
        else:
            self._feed(data)

    def _is_http2(self, data: bytes) -> bool:
        """Return whether the first bytes are those of HTTP/2, or may still become them."""
        if self._discarding:
            return False
        if data.startswith(PREFACE):
            self._buffered = data
            if self._registry.fair.is_free:
                self._become_http2()
            else:
                self._transport.pause_reading()
                self._reader.caller.wait(self._become_http2)
            return True
        if PREFACE.startswith(data):
            self._buffered = data
            return True
        self._sniffed = True
        return False

    def _become_http2(self) -> None:
        """Hand the connection over to HTTP/2, with the bytes that have come."""
        data, self._buffered = self._buffered, b""
        if self._discarding or self._transport.is_closing():
            return
        caller, began_s = self._reader.caller, self._registry.fair.clock()
        successor = Http2Protocol(self._admit, self._registry, client=self._reader.client, own=caller)
        self._registry.replace(self, successor)
        self._transport.set_protocol(successor)
        self._transport.resume_reading()
        successor.connection_made(self._transport)
        caller.spend(began_s)
        successor.data_received(data)

    def _feed(self, data: bytes) -> None:
        large = len(data) > _SLICE_BYTES
        if large and self._registry.reading.used_up():
            self._buffered = data
            self._wait_for_turn(self._registry.reading)
            return
        pipeline, reader, fair = self._pipeline, self._reader, self._registry.fair
        writer, began_s = pipeline.writer, fair.clock()
        fair.deadline_s = began_s + fair.left_s
        writer.gathering = True
        try:
            if large:
                self._feed_slices(data)
            else:
                reader.feed(data)
        except Refused as refused:
            self._refuse(refused)
        writer.gathering = False
        writer.release()
        reader.caller.spend(began_s)
        if reader.is_at_door:
            self._registry.door.spend(began_s)
        if self._silent and reader.heads:
            self._silent = False
            self._registry.mark_heard(self)
        if reader.over:
            self._discarding = True
        if large:
            self._wait_for_turn(self._registry.reading)
        else:
            self._regulate()

    def _feed_slices(self, data: bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(data) and not self._reader.over and not self._pipeline.full():
            self._reader.feed(view[at : at + _SLICE_BYTES])
            at += _SLICE_BYTES
        self._buffered = data[at:]

    def _wait_for_turn(self, turns: ReadingTurns | Caller) -> None:
        """Read nothing more in this turn: a peer that sends much would take all of the loop."""
        if not self._waits:
            self._waits = True
            turns.wait(self._take_turn)
        self._regulate()

    def _take_turn(self) -> None:
        self._waits = False
        self._go_on()

    def _go_on(self) -> None:
        """Continue with buffered bytes after a response was written, or when a turn has come."""
        if self._half_closed and not self._pipeline.busy:
            self._transport.close()
        elif self._buffered and not (self._discarding or self._waits or self._pipeline.full()):
            data, self._buffered = self._buffered, b""
            self._feed(data)
        else:
            self._regulate()

    def _regulate(self) -> None:
        """Pause or resume reading by the room there is; during a stream read on, to notice that the peer goes."""
        pipeline, now_s = self._pipeline, self._registry.now_s
        if pipeline.streaming or self._discarding:
            pause = self._waits or pipeline.is_at_door
        else:
            pause = self._waits or pipeline.full() or bool(self._buffered and self._sniffed)
        if pause != self._paused and not self._transport.is_closing():
            self._paused = pause
            if pause:
                self._paused_since_s = now_s
                self._transport.pause_reading()
            else:
                if now_s > self._paused_since_s:  # a turn is over within a tick, and excuses no slow peer
                    self._reader.pass_over(now_s)
                self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Handle the end of the peer's data. A peer that waits for a stream or a long poll is taken to be gone; a write
        is answered.
        """
        tls = self._transport.get_extra_info("sslcontext") is not None  # there both directions end together
        if tls or self._discarding_since_s is not None or self._pipeline.polled or not self._pipeline.busy:
            return False
        self._half_closed = self._discarding = True
        return True

    def pause_writing(self) -> None:
        self._pipeline.writer.stall()

    def resume_writing(self) -> None:
        self._pipeline.writer.flow()
        self._pipeline.flush()

    # Ending.

    def _refuse(self, refused: Refused, *, account: str = "") -> None:
        self._registry.counts.refused += 1
        self._discarding = True
        self._discarding_since_s = self._registry.now_s
        self._buffered = b""
        account = account or self._reader.account
        self._reader.is_at_door = not account
        self._reader.release()
        refused.forget_frames()
        self._pipeline.refuse(refused, account)
        self._regulate()

    def _finish(self) -> None:
        """End the connection after the last response. While the peer may still be sending, read and discard it, since a
        reset would destroy the response on its way.
        """
        self._discarding = True
        if self._discarding_since_s is None:
            self._transport.close()
        elif self._transport.can_write_eof() and not self._transport.is_closing():
            with suppress(OSError):  # the peer has reset the connection just now
                self._transport.write_eof()

    def abort(self) -> None:
        """Close without another byte."""
        self._discarding = True
        self._transport.abort()

    def drain(self) -> None:
        """Finish what is in flight, end streams, close."""
        self._pipeline.end_streams()
        if not (self._pipeline.busy or self._waits) and (self._discarding or self._reader.phase == Phase.BETWEEN):
            self._transport.close()

    def abandon(self) -> None:
        """Answer pending requests at once with the error that the server stops, and close."""
        if self._pipeline.busy:
            self._pipeline.abandon()
        else:
            self._transport.close()

    def tick(self, now_s: float) -> None:
        """Check the deadline of the current phase of the connection."""
        limits, reader, pipeline = self._registry.limits, self._reader, self._pipeline
        late_s = now_s - limits.tick_ms / 1000
        pipeline.writer.note()
        closing = self._transport.is_closing()
        if closing or pipeline.writer.stalled:
            if pipeline.writer.too_slow(late_s):
                self._registry.counts.slow_readers += not closing
                self.abort()
        elif self._discarding_since_s is not None:
            if late_s - self._discarding_since_s > limits.linger_ms / 1000 and not pipeline.busy:
                self._transport.close()
        elif reader.phase != Phase.BETWEEN:
            self._tick_request(late_s)
        elif not (pipeline.busy or self._waits):
            allowed_ms = limits.idle_ms if reader.messages else limits.header_ms
            if late_s - pipeline.idle_since_s > allowed_ms / 1000:
                self._registry.counts.timed_out += 1
                self._transport.close()

    def _tick_request(self, late_s: float) -> None:
        """Check the deadline of the request that is being read."""
        reader = self._reader
        lapsed = reader.lapsed() if reader.phase == Phase.BODY else None
        if lapsed is not None:
            self._refuse(lapsed)
        elif self._paused:
            reader.pass_over(late_s)
        elif reader.phase == Phase.BODY:
            if reader.body_too_slow(late_s):
                self._time_out()
        elif late_s - reader.since_s > self._registry.limits.header_ms / 1000:
            self._time_out()

    def _time_out(self) -> None:
        self._registry.counts.timed_out += 1
        self._refuse(Refused(Invalid("the request did not arrive in time: send it faster"), status=408))
