"""The work stream: jobs pushed to us as they come, leased to this connection."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.client.answers import decode_text
from tenure.client.core import Core
from tenure.client.encode import path_of, query_of
from tenure.client.opening import error_in, opened
from tenure.client.plan import Plan, Read
from tenure.client.replies import Job
from tenure.client.retry import unreached
from tenure.client.sse import FrameReader
from tenure.client.wire import Request, WireError
from tenure.core.values import check_whole
from tenure.errors import Overloaded

__all__ = ["Work"]

_jobs = msgspec.json.Decoder(list[Job])


class Work:
    """Gives the jobs of each chunk as a list, an empty one where the server only said that it is there.

    It does not reconnect: whoever holds jobs must know that the line broke, because the server may have given them to
    others.

    Ends where the server closes; raises Overloaded (``unreachable``, or ``disconnected`` once it was open) where the
    network breaks, and what the server says where it refuses.
    """

    def __init__(self, core: Core, topic: str, *, node: str | None, max_count: int, lease_ms: int | None) -> None:
        path = query_of(
            path_of(topic, "work"),
            node=core.node_or(node),
            max=check_whole(max_count, "max_count"),
            lease_ms=lease_ms,
        )
        self._request = Request("GET", path)
        self._frames = FrameReader(core.settings.frame_bytes_max)
        self.stream: Any = None

    def open(self) -> Plan[None]:
        """Connect, if that has not been done."""
        if self.stream is None:
            try:
                self.stream = yield from opened(self._request)
            except WireError as error:
                raise unreached(error) from error

    def next(self) -> Plan[list[Job] | None]:
        """The jobs that came next, none of them in a heartbeat; None where the server ended the stream."""
        yield from self.open()
        try:
            if chunk := (yield Read(self.stream)):
                datas, others = self._frames.feed_data(chunk, b"job")
                for frame in others:
                    if frame.event == b"error":
                        raise error_in(frame)
                return decode_text(_jobs, b"[%b]" % b",".join(datas)) if datas else []
        except WireError as error:
            raise Overloaded(f"the stream broke: {error.message}", code="disconnected") from error
        return None
