"""The log of requests: by their route, and never by their query, headers or body."""

from __future__ import annotations

import logging

from tenure.http.api.app import Route
from tenure.http.wire.message import Request

__all__ = ["log_request"]

access = logging.getLogger("tenure.http.access")


def log_request(route: Route | None, request: Request, *, status: int) -> None:
    """One line for a request that was answered; at level debug, because a queue answers many."""
    if access.isEnabledFor(logging.DEBUG):
        pattern = route.pattern if route is not None else "-"
        method = request.method if request.method.isalpha() else "-"
        about = {"method": method[:16], "route": pattern, "status": status, "ms": round(request.elapsed_ms, 3)}
        access.debug("request", extra=about)
