"""HTTP/2 by prior knowledge: the same requests and responses on many streams of one connection.

The ``h2`` library keeps the protocol's state; this module bounds what a peer can make it do, and applies back-pressure
both ways.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import BODILESS, Refused, is_sound
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.http2.frame_meter import PREFACE, BadHead, Flood, FrameMeter, check_head, check_trailers
from tenure.http.wire.http2.reader import Http2Reader
from tenure.http.wire.http2.stream import Http2Sender, Http2Stream
from tenure.http.wire.http2.writer import Http2Writer
from tenure.http.wire.message import Admit, Request, Response, Stream
from tenure.http.wire.respond import Work, carry_out, fault_response, run_stream

__all__ = ["PREFACE", "Http2Protocol"]

log = logging.getLogger("tenure.http")


class Http2Protocol(asyncio.Protocol):
    """One connection, which takes over a transport whose first bytes were HTTP/2's.

    ``own`` is who is charged for it where a request has no key. Answers that wait at the door wait alone: other streams
    go on, unless no key was ever used on this connection. Then it is not read until they have left.
    """

    def __init__(self, admit: Admit, registry: Connections, *, client: str, own: Caller) -> None:
        self._admit = admit
        self._registry = registry
        self._client = client
        self._meter = FrameMeter(registry.limits)
        self._h2 = _connection(registry)
        self._streams: dict[int, Http2Stream] = {}
        self._waiting: deque[Http2Stream] = deque()
        self._settling = False
        self._own = own
        self._at_door: dict[Http2Stream, None] = {}
        self._is_known = False  # a key was used on it
        self._in_line = False
        self._idle_since_s = self._ticked_s = registry.now_s
        self._block_since_s: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = Http2Writer(self._h2, self._transport, self._registry, meter=self._meter)
        self._reader = Http2Reader(
            self._transport,
            self._registry,
            meter=self._meter,
            writer=self._writer,
            caller=self._own,
            parse=self._parse,
        )
        self._h2.initiate_connection()
        extra = self._registry.limits.h2_window_bytes - 65_535
        if extra > 0:
            self._h2.increment_flow_control_window(extra)
        self._writer.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writer.lose()
        self._registry.discard(self)
        self._reader.lose()
        for stream in list(self._streams.values()):
            self._drop(stream)
        vars(self._h2).clear()  # it refers to itself: freed now, not by the collector, which would look at everything

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writer.stall()
        self._reader.regulate()

    def resume_writing(self) -> None:
        self._writer.stalled = False
        if not self._writer.gone:
            self._reader.regulate()
            self._pump_all()
            self._settle()

    # Reading.

    def data_received(self, data: bytes) -> None:
        self._reader.receive(data)

    def _parse(self, part: bytes) -> None:
        try:
            self._meter.feed(part)
            for event in self._h2.receive_data(part):
                self._on_event(event)
        except Flood:
            self._registry.counts.floods += 1
            self._close(ErrorCodes.ENHANCE_YOUR_CALM)
        except ProtocolError:
            self._registry.counts.refused += 1
            self._close(None)
        except BadHead:
            self._registry.counts.refused += 1
            self._close(ErrorCodes.PROTOCOL_ERROR)
        except Exception:
            log.exception("an HTTP/2 connection failed")
            self.abort()
        else:
            self._note_block()
            self._settle()

    def _note_block(self) -> None:
        if not self._meter.block_open:
            self._block_since_s = None
        elif self._block_since_s is None:
            self._block_since_s = self._registry.now_s

    def _on_event(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._on_request(event)
            case DataReceived():
                self._on_data(event)
            case TrailersReceived():
                check_trailers(event.headers)
            case StreamEnded(stream_id=number):
                stream = self._streams.get(number)
                if stream is not None and stream.receiving:
                    stream.receiving = False
                    self._waiting.append(stream)
            case StreamReset(stream_id=number) if number in self._streams:
                self._drop(self._streams[number])
            case WindowUpdated(stream_id=number) if number in self._streams:
                self._pump(self._streams[number])
            case WindowUpdated(stream_id=0) | RemoteSettingsChanged():
                self._pump_all()
            case ConnectionTerminated():
                self._close(None)  # after GOAWAY the library sends nothing more, so no stream can be answered

    def _on_request(self, event: RequestReceived) -> None:
        check_head(event.headers)
        self._registry.mark_heard(self)
        if self._registry.draining:
            with suppress(ProtocolError):
                self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        stream = self._streams[event.stream_id] = Http2Stream(event.stream_id, self._registry)
        try:
            stream.read_head(event.headers)
            self._admit_head(stream, bodiless=event.stream_ended is not None)
        except Refused as refused:
            self._refuse(stream, refused)

    def _admit_head(self, stream: Http2Stream, *, bodiless: bool) -> None:
        """Have the head admitted before anything of the body is kept. Raises Refused."""
        request = stream.request(self._client)
        outcome = self._admit(request)
        account = stream.account = request.account if isinstance(outcome, Response) else outcome.account
        caller = self._own if account in ("", self._client) else self._registry.fair.named(account)
        if caller is not self._own and not self._is_known:
            self._is_known = True
            self._reader.hold_back(False)
        self._reader.caller, self._reader.is_at_door = caller, not account
        if not isinstance(outcome, Response):
            stream.caller = request.caller = caller
            stream.expect_body(outcome)
        elif bodiless or stream.passes_over:
            stream.refusal = outcome
        else:
            self._answer(stream, outcome)

    def _on_data(self, event: DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is not None and stream.receiving and event.data:
            try:
                stream.read_body(bytes(event.data))
            except Refused as refused:
                self._refuse(stream, refused)

    def _refuse(self, stream: Http2Stream, refused: Refused) -> None:
        self._registry.counts.refused += 1
        self._reader.is_at_door = not stream.account
        refused.forget_frames()
        self._answer(stream, refused.response())

    def _start(self, stream: Http2Stream) -> None:
        self._registry.counts.requests += 1
        body = stream.body()
        if stream.admission is None:
            assert stream.refusal is not None
            self._answer(stream, stream.refusal)
            return
        began_s = self._registry.fair.clock()
        outcome = carry_out(stream.admission, body, partial(self._answer, stream))
        if isinstance(outcome, Response):
            self._answer(stream, outcome)
        else:
            stream.pending = outcome
        if stream.caller is not None:
            stream.caller.spend(began_s)

    # Answering.

    def _answer(self, stream: Http2Stream, response: Response) -> None:
        if stream.gone or stream.opened or stream.at_door is not None:
            return
        if stream.account or self._registry.draining:
            self._open(stream, response)
            return
        stream.at_door = leave = partial(self._leave_door, stream, response)
        cut = partial(self._reset, stream, ErrorCodes.ENHANCE_YOUR_CALM)
        if self._registry.door.lets_through(self._client, leave, cut=cut):
            leave()
            return
        if stream.number not in self._streams:
            return  # too many wait, and it was cut
        self._at_door[stream] = None
        if len(self._at_door) > self._registry.limits.h2_streams_max // 2:
            self._let_in(next(iter(self._at_door)))  # the other half is for streams that are admitted
        self._reader.hold_back(not self._is_known)

    def _leave_door(self, stream: Http2Stream, response: Response) -> None:
        """Send an answer that waited at the door, or had not to."""
        self._leave_line(stream)
        self._open(stream, response)

    def _leave_line(self, stream: Http2Stream) -> None:
        stream.at_door = None
        if stream in self._at_door:
            del self._at_door[stream]
            self._reader.hold_back(bool(self._at_door) and not self._is_known)

    def _let_in(self, stream: Http2Stream) -> None:
        """Have an answer leave the door now."""
        leave = stream.at_door
        if leave is not None:
            self._registry.door.give_up(self._client, leave)
            leave()

    def _open(self, stream: Http2Stream, response: Response) -> None:
        """Begin the response."""
        stream.pending, stream.opened = None, True
        stream.release_body()
        with self._living(stream):
            self._respond(stream, response)
        self._settle()

    @contextmanager
    def _living(self, stream: Http2Stream) -> Iterator[None]:
        """Send on a stream that the peer may have reset in bytes whose events are still to come."""
        try:
            yield
        except ProtocolError:
            self._drop(stream)

    def _respond(self, stream: Http2Stream, response: Response) -> None:
        if not is_sound(response):
            response = fault_response(Request("", ""))
        bare = stream.head_only or response.status in BODILESS
        streams = response.stream is not None and not bare
        self._writer.send_head(stream, response, is_whole=bare or not (streams or response.body))
        if streams and response.stream is not None:
            stream.pending = Work(asyncio.get_running_loop().create_task(self._run(stream, response.stream)))
        elif bare or not response.body:
            self._finish(stream)
        else:
            self._writer.put(stream, response.body)
            stream.ended = True
            self._pump(stream)

    def _put(self, stream: Http2Stream, data: bytes) -> None:
        self._writer.put(stream, data)
        self._pump(stream)
        self._settle()

    async def _run(self, stream: Http2Stream, content: Stream) -> None:
        ended = await run_stream(content, Http2Sender(stream, self._put))  # made here: a task may end before it begins
        if stream.gone:
            return
        if ended or self._registry.draining:
            stream.ended = True
            self._pump(stream)
        else:
            self._reset(stream, ErrorCodes.INTERNAL_ERROR)
        self._settle()

    def _settle(self) -> None:
        """Start requests that the peer has made room for by taking its answers, and send what there is to send."""
        if self._settling:
            return
        self._settling = True
        while self._waiting and self._writer.held_bytes <= self._registry.limits.unsent_bytes_max:
            stream = self._waiting[0]
            if not (stream.gone or stream.opened or stream.at_door):
                if not self._may_start(stream):
                    break
                self._start(stream)
            self._waiting.popleft()
        self._settling = False
        self._writer.flush()
        self._writer.note()

    def _may_start(self, stream: Http2Stream) -> bool:
        """Return whether a request may be started in this turn; else go on in one of its caller."""
        fair, caller = self._registry.fair, stream.caller
        if caller is None or fair.is_free or fair.serves(caller):
            return True
        if not self._in_line:
            self._in_line = True
            caller.wait(self._take_turn)
        return False

    def _take_turn(self) -> None:
        self._in_line = False
        if not self._writer.gone:
            self._settle()

    def _pump_all(self) -> None:
        for stream in list(self._streams.values()):
            if stream.opened:
                self._pump(stream)

    def _pump(self, stream: Http2Stream) -> None:
        """Send what the peer's windows and the socket let through; end the stream where that was all."""
        with self._living(stream):
            if self._writer.pump(stream):
                self._finish(stream)
        stream.wake()

    def _finish(self, stream: Http2Stream) -> None:
        """End a stream whose response is sent. A request that is still coming is reset."""
        if stream.receiving:
            self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        self._meter.credit(2)
        self._drop(stream)

    def _reset(self, stream: Http2Stream, code: ErrorCodes) -> None:
        with suppress(ProtocolError):  # which the peer may have done itself
            self._h2.reset_stream(stream.number, code)
        self._drop(stream)
        self._writer.flush()

    def _drop(self, stream: Http2Stream) -> None:
        """Remove a stream; cancel the work that only its peer waited for."""
        self._streams.pop(stream.number, None)
        stream.gone = True
        if stream.at_door is not None:
            self._registry.door.give_up(self._client, stream.at_door)
            self._leave_line(stream)
        stream.release_body()
        self._writer.forget(stream)
        if stream.pending is not None:
            stream.pending.lose()
        stream.wake()
        self._idle_since_s = self._registry.now_s
        self._close_when_done()

    # Ending.

    def _close_when_done(self) -> None:
        if self._registry.draining and not self._streams and not self._writer.gone:
            self._close(ErrorCodes.NO_ERROR)

    def _close(self, code: ErrorCodes | None) -> None:
        """Send GOAWAY with this code, and close. ``None``: the library has sent it already."""
        self._writer.gone = True
        if code is not None:
            self._h2.close_connection(code)
        self._writer.flush()
        self._transport.close()
        for stream in list(self._streams.values()):
            self._drop(stream)

    def abort(self) -> None:
        """Close without another byte."""
        self._writer.abort()

    def drain(self) -> None:
        """Finish requests, end streams, refuse new ones; then send GOAWAY and close.

        GOAWAY comes last, because clients built on ``h2`` drop a connection that sent it, with all its responses.
        """
        for stream in list(self._at_door):
            self._let_in(stream)
        for stream in list(self._streams.values()):
            if stream.opened and stream.pending is not None:
                stream.pending.cancel()
        self._close_when_done()

    def abandon(self) -> None:
        """Answer pending requests at once with the error that the server stops, and close."""
        for stream in list(self._streams.values()):
            if stream.pending is not None:
                stream.pending.cancel()
            elif stream.receiving or not stream.opened:
                self._reset(stream, ErrorCodes.REFUSED_STREAM)

    def tick(self, now_s: float) -> None:
        """Check the deadlines of the connection and of its streams."""
        limits = self._registry.limits
        self._meter.refill(now_s - self._ticked_s)
        self._ticked_s = now_s
        self._writer.note()
        late_s = now_s - limits.tick_ms / 1000
        closing = self._transport.is_closing()
        if closing or self._writer.stalled:
            for stream in self._streams.values():
                stream.pass_over(late_s)
            if self._writer.too_slow(late_s):
                self._registry.counts.slow_readers += not closing
                self.abort()
        elif self._block_since_s is not None and late_s - self._block_since_s > limits.header_ms / 1000:
            self._registry.counts.timed_out += 1
            self._close(ErrorCodes.ENHANCE_YOUR_CALM)
        elif not self._streams and late_s - self._idle_since_s > limits.idle_ms / 1000:
            self._close(ErrorCodes.NO_ERROR)
        else:
            self._tick_streams(late_s)

    def _tick_streams(self, late_s: float) -> None:
        for stream in list(self._streams.values()):
            if stream.taken_too_slowly(late_s):
                self._registry.counts.slow_readers += 1
                self._reset(stream, ErrorCodes.CANCEL)
            elif stream.receiving:
                self._tick_body(stream, late_s)
        self._settle()

    def _tick_body(self, stream: Http2Stream, late_s: float) -> None:
        """Check the deadline of a request that is being read."""
        lapsed = stream.admission.lapsed() if stream.admission is not None else None
        if lapsed is not None:
            self._registry.counts.refused += 1
            self._answer(stream, lapsed)
        elif stream.body_too_slow(late_s):
            self._registry.counts.timed_out += 1
            self._reset(stream, ErrorCodes.CANCEL)


def _connection(registry: Connections) -> H2Connection:
    limits = registry.limits
    configuration = H2Configuration(client_side=False, header_encoding=None, validate_inbound_headers=False)
    connection = H2Connection(configuration)
    connection.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.h2_streams_max,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes_max + limits.target_bytes_max,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.h2_window_bytes,
            SettingCodes.ENABLE_PUSH: 0,
        },
    )
    connection.decoder.max_header_list_size = limits.header_bytes_max + limits.target_bytes_max
    return connection
