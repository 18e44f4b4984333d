"""The exchanges of one HTTP/1.1 connection: run as they come, answered in order.

At most ``pipeline_max`` run at once; what came beyond that waits here, and the protocol stops reading. A stream holds
its place until it ends. Responses of one turn leave in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import Refused, encode_response, encode_stream_head
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.http1.writer import Http1Sender, Http1Writer
from tenure.http.wire.message import Request, Response, Send, Stream
from tenure.http.wire.respond import Exchange, Work, carry_out, fault_response, run_stream

__all__ = ["Pipeline"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_KEEP = b"connection: keep-alive\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"


class Pipeline:
    """The requests under way on one connection, and the order of their responses.

    ``on_room`` is called when something was written outside of a read, ``on_over`` after the last response.
    """

    __slots__ = (
        "_backlog",
        "_client",
        "_exchanges",
        "_flushing",
        "_invitation",
        "_on_over",
        "_on_room",
        "_passes",
        "_registry",
        "_transport",
        "_waits",
        "idle_since_s",
        "is_at_door",
        "over",
        "streaming",
        "writer",
    )

    def __init__(
        self,
        registry: Connections,
        *,
        transport: asyncio.Transport,
        client: str,
        on_room: Callable[[], None],
        on_over: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._transport = transport
        self._client = client
        self._on_room = on_room
        self._on_over = on_over
        self._exchanges: deque[Exchange] = deque()
        self._backlog: deque[Exchange] = deque()
        self.writer = Http1Writer(transport, registry)
        self._flushing = self._invitation = False
        self._waits = False  # for a turn of the caller whose request is next
        self._passes = False  # what waited at the door may leave
        self.is_at_door = False
        """Whether the next answer waits at the door."""
        self.idle_since_s = registry.now_s
        self.streaming = False
        self.over = False
        """The last response has been written."""

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered."""
        return bool(self._exchanges or self._backlog)

    @property
    def polled(self) -> bool:
        """Whether the peer waits for what ends with the connection: a stream, a wait, or other work."""
        return self.streaming or any(one.pending is not None and one.pending.ends_with_peer for one in self._exchanges)

    def full(self) -> bool:
        """Return whether no more should be read."""
        return bool(self._backlog) or self._held()

    def _held(self) -> bool:
        limits = self._registry.limits
        return (
            self.is_at_door
            or self.writer.stalled
            or self.streaming
            or len(self._exchanges) >= limits.pipeline_max
            or self.writer.held_bytes > limits.unsent_bytes_max
        )

    def submit(self, exchange: Exchange) -> None:
        """Take in a request; it starts at once if there is room."""
        self._registry.counts.requests += 1
        fair = self._registry.fair
        if self._backlog or self._held():
            self._backlog.append(exchange)
        elif (fair.is_free and exchange.request.started <= fair.deadline_s) or self._may_start(exchange):
            self._start(exchange)
        else:
            self._backlog.append(exchange)

    def _may_start(self, exchange: Exchange) -> bool:
        """Return whether a request may be started in this turn; else have the pipeline called in one of its caller."""
        caller = exchange.request.caller
        if caller is None or exchange.response is not None or self._registry.fair.serves(caller):
            return True
        if not self._waits:
            self._waits = True
            caller.wait(partial(self._take_turn, caller))
        return False

    def _take_turn(self, caller: Caller) -> None:
        """Start what waited for this turn."""
        self._waits = False
        if not self.writer.gone:
            began_s = self._registry.fair.clock()
            self.writer.gathering = True
            self.flush()
            self.writer.gathering = False
            self.writer.release()
            caller.spend(began_s)
            self._on_room()

    def refuse(self, refused: Refused, account: str) -> None:
        """Answer, after all others, something that is no request, or not read to its end; the connection ends with it.
        Without an account it is refused at the door.
        """
        exchange = Exchange(refused.request or Request("GET", "/", client=self._client), keep_alive=False, old=False)
        exchange.response, exchange.request.account = refused.response(), account
        if self._backlog:
            self._backlog.append(exchange)
        else:
            self._start(exchange)
        self.flush()

    def invite(self) -> None:
        """Send 100 Continue, after all earlier responses."""
        if self.busy:
            self._invitation = True
        else:
            self.writer.write(_CONTINUE)

    def _start(self, exchange: Exchange) -> None:
        self._exchanges.append(exchange)
        if exchange.response is not None:  # refused: the answer is there
            self._hold(exchange, exchange.response)
            if self._exchanges[0] is exchange:
                self.flush()
            return
        assert exchange.admission is not None
        outcome = carry_out(exchange.admission, exchange.body, partial(self._answer, exchange))
        if isinstance(outcome, Response):
            self._answer(exchange, outcome)
        else:
            exchange.pending = outcome

    def _answer(self, exchange: Exchange, response: Response) -> None:
        if not self.writer.gone:
            exchange.pending = None
            if exchange.charge is not None:
                exchange.charge.release()
            self._hold(exchange, response)
            if self._exchanges[0] is exchange:
                self.flush()
            else:
                self.writer.note()

    def _hold(self, exchange: Exchange, response: Response) -> None:
        exchange.response = response
        self.writer.held_bytes += len(response.body)

    def _may_leave(self, exchange: Exchange) -> bool:
        """Return whether an answer may be written: what was refused at the door may have to wait there."""
        if exchange.admission is not None or exchange.request.account:
            return True
        if not (self._passes or self.is_at_door or self._registry.draining):
            self.is_at_door = not self._registry.door.lets_through(
                self._client, self._leave_door, cut=self._transport.abort
            )
        self._passes = False
        return not self.is_at_door

    def _leave_door(self) -> None:
        self.is_at_door, self._passes = False, True
        self.flush()

    def flush(self) -> None:
        """Write what is ready, in order; start what waited for that."""
        if self._flushing or self.writer.gone or self.is_at_door:
            return
        self._flushing = True
        exchanges = self._exchanges
        while True:
            while exchanges and not (self.streaming or self.over):
                response = exchanges[0].response
                if response is None or not self._may_leave(exchanges[0]):
                    break
                self._emit(exchanges[0], response)
            if not self._backlog or self.over or self._held() or not self._may_start(self._backlog[0]):
                break
            self._start(self._backlog.popleft())
        self._flushing = False
        if not self.writer.gathering:
            self._on_room()

    def _emit(self, exchange: Exchange, response: Response) -> None:
        self.writer.held_bytes -= len(response.body)
        head_only = exchange.request.method == "HEAD"
        last = not exchange.keep_alive or (self._registry.draining and len(self._exchanges) == 1 and not self._backlog)
        date = self._registry.date
        connection = _CLOSE if last else _KEEP if exchange.old else b""
        try:
            if response.stream is not None and not head_only:
                framing = _CLOSE if exchange.old else _CHUNKED + connection
                self.writer.write(encode_stream_head(response, date=date, framing=framing))
                self._open(exchange, response.stream, last=last or exchange.old)
                return
            data = encode_response(response, date=date, connection=connection, head_only=head_only)
        except ValueError:
            data = encode_response(fault_response(exchange.request), date=date, connection=connection)
        self.writer.write(data)
        self._leave(last=last)

    def _leave(self, *, last: bool) -> None:
        """Remove the first exchange, whose response is written."""
        self._exchanges.popleft()
        if last:
            self.over = True
            self.writer.release()
            self._on_over()
        elif not self._exchanges:
            self.idle_since_s = self._registry.now_s
            if self._invitation:
                self._invitation = False
                self.writer.write(_CONTINUE)

    def _open(self, exchange: Exchange, stream: Stream, *, last: bool) -> None:
        self.streaming = True
        self.writer.release()
        send = Http1Sender(self.writer, chunked=not exchange.old)
        exchange.pending = Work(asyncio.get_running_loop().create_task(self._run(exchange, stream, send, last)))

    async def _run(self, exchange: Exchange, stream: Stream, send: Send, last: bool) -> None:
        """Run a stream to its end. One that was cut short gets no proper end, so that its reader notices."""
        ended = await run_stream(stream, send)  # made here: a task may end before it begins
        if self.writer.gone:
            return
        if not (ended or self._registry.draining):
            self._transport.abort()
            return
        self.streaming = False
        exchange.pending = None
        if not exchange.old:
            self.writer.write(b"0\r\n\r\n")
        self._leave(last=last or self._registry.draining)
        self.flush()

    # The end.

    def lose(self) -> None:
        """Stop the work of a peer that is gone. A write goes on."""
        self.writer.lose()
        if self.is_at_door:
            self._registry.door.give_up(self._client, self._leave_door)
        for exchange in (*self._exchanges, *self._backlog):
            exchange.release()
            if exchange.pending is not None:
                exchange.pending.lose()
        self._exchanges.clear()
        self._backlog.clear()
        self._on_room = self._on_over = _nothing  # the connection, which holds this: freed now, not by the collector

    def end_streams(self) -> None:
        """End a running stream, and hold no answer back, because the server stops."""
        if self.is_at_door:
            self._registry.door.give_up(self._client, self._leave_door)
            self._leave_door()
        if self.streaming and self._exchanges[0].pending is not None:
            self._exchanges[0].pending.cancel()

    def abandon(self) -> None:
        """Answer pending requests now with the error that the server stops."""
        while self._backlog:
            self._backlog.pop().release()
        for exchange in list(self._exchanges):
            if exchange.pending is not None:
                exchange.pending.cancel()


def _nothing() -> None:
    """Do nothing: the callback of a peer that is gone."""
