"""`Work`: the stream of jobs that the server pushes, leased to its connection."""

from __future__ import annotations

import msgspec

from tenure.client.plan.answers import decode_text
from tenure.client.plan.encode import path_of, query_of
from tenure.client.plan.retry import unsent_error
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.streams.opening import error_of_frame
from tenure.client.streams.sse import FrameReader
from tenure.client.transport.stream_connection import Line
from tenure.client.transport.wire import Request, WireError
from tenure.contract.commands import Claim
from tenure.contract.replies import Job
from tenure.contract.values import check_whole
from tenure.errors import Overloaded, TenureError

__all__ = ["Work"]


class _Suspects(msgspec.Struct):
    suspects: int = 0


_jobs = msgspec.json.Decoder(list[Job])
_suspects = msgspec.json.Decoder(_Suspects)


class Work:
    """A stream of lists of jobs, one per chunk; an empty list is a heartbeat.

    It does not reconnect: a worker that holds jobs must know that the connection broke, because the server may have
    given them to others.

    Ends where the server closes; raises Overloaded (``unreachable``, or ``disconnected`` once it was open) where the
    network breaks, and the error with which the server refuses.

    ``suspects`` is how many suspects wait on the queue, as the server said last; an empty list comes with that.
    """

    def __init__(
        self, session: Session, topic: str, claim: Claim, *, max_count: int, lease_ms: int | None = None
    ) -> None:
        path = query_of(
            path_of(topic, "work"),
            node=claim.node,
            max=check_whole(max_count, "max_count"),
            lease_ms=lease_ms,
            isolate="true" if claim.isolate else None,
            group=claim.group,
            suspects="true" if claim.suspects else None,
        )
        self._request = Request("GET", path)
        self._frames = FrameReader(session.settings.frame_bytes_max)
        self._pending_error: TenureError | None = None
        self.line = Line()
        self.suspects = 0

    def open(self) -> Plan[None]:
        """Connect unless connected."""
        if not self.line.is_open:
            try:
                yield from self.line.open(self._request)
            except WireError as error:
                raise unsent_error(error) from error

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
            if frame.event == b"suspects":
                self.suspects = decode_text(_suspects, frame.data).suspects
            if frame.event == b"error":
                self._pending_error = error_of_frame(frame)
                break
        if self._pending_error is not None and not datas:
            raise self._pending_error
        return decode_text(_jobs, b"[%b]" % b",".join(datas)) if datas else []
