"""The route that advances the clock, for tests; served only with ``--test-clock``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure.clock import OffsetClock
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_whole_server
from tenure.http.api.body import Reader
from tenure.http.api.render import reply
from tenure.http.wire.message import Response

__all__ = ["routes"]

_TEN_YEARS_MS = 10 * 366 * 86_400_000


class AdvanceBody(msgspec.Struct, frozen=True):
    """The body of the request: by how many ms to advance."""

    ms: Annotated[int, msgspec.Meta(ge=0, le=_TEN_YEARS_MS)]


_READER = Reader(AdvanceBody)


def routes(clock: OffsetClock) -> list[Route]:
    """Return the route that moves this clock."""

    def advance(_: object, call: Call) -> Response:
        """Advance wall time and log time together; alarms that are due by then ring before the answer."""
        check_whole_server(call)
        clock.advance(_READER.read(call.request).ms)
        return reply(call.request, {"now_ms": clock.wall_ms(), "offset_ms": clock.offset_ms})

    summary = "Let time pass (tests only)"
    return [Route("POST", "/v0/_test/advance", advance, frozenset({"admin"}), AdvanceBody, summary)]
