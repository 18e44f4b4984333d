"""`Work`: the stream of jobs that the server pushes, leased to its connection."""

from __future__ import annotations

import msgspec

from tenure.client.plan.answers import decode_text
from tenure.client.plan.encode import path_of, query_of
from tenure.client.plan.retry import unreachable_error
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.streams.opening import error_of_frame
from tenure.client.streams.sse import FrameReader
from tenure.client.transport.stream_connection import Line
from tenure.client.transport.wire import Request, WireError
from tenure.contract.replies import Job
from tenure.contract.values import check_whole
from tenure.errors import Overloaded, TenureError

__all__ = ["Work"]

_jobs = msgspec.json.Decoder(list[Job])


class Work:
    """A stream of lists of jobs, one per chunk; an empty list is a heartbeat.

    It does not reconnect: a worker that holds jobs must know that the connection broke, because the server may have
    given them to others.

    Ends where the server closes; raises Overloaded (``unreachable``, or ``disconnected`` once it was open) where the
    network breaks, and the error with which the server refuses.
    """

    def __init__(self, session: Session, topic: str, *, node: str | None, max_count: int, lease_ms: int | None) -> None:
        path = query_of(
            path_of(topic, "work"),
            node=session.node_or(node),
            max=check_whole(max_count, "max_count"),
            lease_ms=lease_ms,
        )
        self._request = Request("GET", path)
        self._frames = FrameReader(session.settings.frame_bytes_max)
        self._pending_error: TenureError | None = None
        self.line = Line()

    def open(self) -> Plan[None]:
        """Connect unless connected."""
        if not self.line.is_open:
            try:
                yield from self.line.open(self._request)
            except WireError as error:
                raise unreachable_error(error) from error

    def next(self) -> Plan[list[Job] | None]:
        """Return the next jobs, none for a heartbeat; None where the server ended the stream. The error of an ``error``
        frame is raised after the jobs that came with it are returned: they are leased to this connection.
        """
        if self._pending_error is not None:
            raise self._pending_error
        yield from self.open()
        try:
            if chunk := (yield from self.line.read()):
                return self._jobs_in(chunk)
        except WireError as error:
            raise Overloaded(f"the stream broke: {error.message}", code="disconnected") from error
        return None

    def _jobs_in(self, chunk: bytes) -> list[Job]:
        datas, others = self._frames.feed_data(chunk, b"job")
        for frame in others:
            if frame.event == b"error":
                self._pending_error = error_of_frame(frame)
                break
        if self._pending_error is not None and not datas:
            raise self._pending_error
        return decode_text(_jobs, b"[%b]" % b",".join(datas)) if datas else []
