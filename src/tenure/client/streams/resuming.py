"""Streams that reconnect and resume by themselves.

A broken stream reconnects with the id of the last frame that was returned, after a random back-off, so that many
readers do not come back together (fault 36). Records or events that were lost in between are reported to the reader as
a `Tombstone` or a `Gap` (fault 32).

An outage ends with an item, or once a connection has carried heartbeats for `reconnect_max_ms`: a quiet stream is
healthy, and a connection that lasts no longer than the longest pause is not. Until then the back-off grows and the time
limit for reconnecting runs, so that a server which accepts and disconnects is not called in a tight loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

from tenure.backoff import backoff_ms
from tenure.client.plan.retry import unsent_error
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan, Sleep
from tenure.client.streams.opening import error_of_frame
from tenure.client.streams.sse import Frame, FrameReader
from tenure.client.transport.stream_connection import Line
from tenure.client.transport.wire import WireError
from tenure.errors import Closed, Overloaded, TenureError

__all__ = ["Resuming"]

T = TypeVar("T")


class Resuming(ABC, Generic[T]):
    """The rules of reconnecting. A subclass connects and parses its frames."""

    def __init__(self, session: Session, *, last_event_id: str | None = None) -> None:
        self._session = session
        self._ready: deque[tuple[T, str]] = deque()
        self._broken_count = 0
        self._broken_since_s = 0.0
        self._opened_s = 0.0
        self._pending_error: TenureError | None = None
        self.line = Line()
        self.last_event_id = last_event_id or ""
        """The id of the last item that was returned: to resume with, in another process too."""

    @abstractmethod
    def _connect(self) -> Plan[None]:
        """Connect from `last_event_id` on."""

    def _over(self) -> bool:
        """Return whether nothing more can come."""
        return False

    @abstractmethod
    def _parse(self, frame: Frame) -> T | None:
        """Return the item of a frame, or None where the frame has none."""

    def next(self) -> Plan[T | None]:
        """Return the next item, or None where nothing more can come; reconnect for as long as the settings allow."""
        while not self._ready:
            if self.line.closed or self._over():
                return None
            try:
                yield from self._read()
            except WireError as error:
                broken = Overloaded(f"the stream broke: {error.message}", code="disconnected")
                yield from self._rest(unsent_error(error) if error.is_own else broken)
            except (Overloaded, Closed) as error:
                yield from self._rest(error)
        item, frame_id = self._ready.popleft()
        self.last_event_id = frame_id or self.last_event_id
        return item

    def _read(self) -> Plan[None]:
        """Read one chunk, after connecting where that is needed. Raises the error of an ``error`` frame only with the
        next call, so that the items before it are returned first.
        """
        error, self._pending_error = self._pending_error, None
        if error is not None:
            raise error
        if not self.line.is_open:
            self._frames = FrameReader(self._session.settings.frame_bytes_max)
            yield from self._connect()
            self._opened_s = self._session.now_s()
        chunk = yield from self.line.read()
        if not chunk:
            raise WireError("the server ended it", sent=True)
        for frame in self._frames.feed(chunk):
            if frame.event == b"error":
                self._pending_error = error_of_frame(frame)
                break
            item = self._parse(frame)
            if item is not None:
                self._ready.append((item, frame.id))
        if self._ready or self._has_held():
            self._broken_count = 0

    def _has_held(self) -> bool:
        """Return whether the connection has lasted longer than any pause between two attempts."""
        return self._session.now_s() - self._opened_s >= self._session.settings.reconnect_max_ms / 1000

    def _rest(self, error: TenureError) -> Plan[None]:
        """Disconnect and wait before the next attempt. Raises the error once the time for reconnecting is over."""
        self.line.drop()
        if self._ready or self.line.closed:
            return
        if error.code == "client_closed":
            raise error
        now_s, settings = self._session.now_s(), self._session.settings
        if not self._broken_count:
            self._broken_since_s = now_s
        self._broken_count += 1
        if settings.reconnect_for_ms and now_s - self._broken_since_s > settings.reconnect_for_ms / 1000:
            raise error
        min_ms, max_ms = settings.reconnect_min_ms, settings.reconnect_max_ms
        yield Sleep(backoff_ms(self._broken_count, min_ms=min_ms, max_ms=max_ms, chance=self._session.chance) / 1000)
