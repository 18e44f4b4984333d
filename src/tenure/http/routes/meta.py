"""Routes about the server itself: health, readiness, metrics, the rights of a key, the OpenAPI document."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from tenure import __version__
from tenure.contract.replies import Health, Ready
from tenure.errors import Closed, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.context import Context
from tenure.http.api.keys import SCOPES
from tenure.http.api.render import encode, reply
from tenure.http.routes.cluster import check_caught_up, check_leads, standby_of
from tenure.http.wire.errors import error_response
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]

_VERSION: Final = __version__


def health(context: Context, call: Call) -> Response:
    """Report that the process answers, and nothing more."""
    return reply(call.request, Health("ok", _VERSION, context.uptime_ms, context.started_ms))


def ready(context: Context, call: Call) -> Response:
    """Report whether requests are served, or would be after a takeover: not while the log is replayed, while a standby
    is behind or the server drains, nor after the disk failed.
    """
    standby = standby_of(context)
    try:
        if context.draining:
            raise Closed("this server is shutting down: use another", code="shutting_down")
        if standby is not None:
            check_caught_up(standby)
            return reply(call.request, Ready("standby"))
        check_leads(context)
    except Closed as error:
        return _not_ready(context, call, error)
    return reply(call.request, Ready("ready", wal_replay_complete=True, topics=context.topics_count))


def _not_ready(context: Context, call: Call, error: Closed) -> Response:
    """Return the error of every other route, with the fields that a prober looks for."""
    response = error_response(error, call.request)
    word = "draining" if context.draining else "failed" if context.is_open else "replaying"
    status = encode("behind" if word == "replaying" and standby_of(context) is not None else word)
    response.body = b'{"status":%b,"wal_replay_complete":%b,' % (status, encode(context.is_open)) + response.body[1:]
    return response


def metrics(context: Context, call: Call) -> Coroutine[Any, Any, Response]:
    """Report metrics of the server, as Prometheus text unless Accept asks for JSON."""
    if context.exposition is None:
        raise NotFound("no metrics are kept here")
    return context.exposition.answer(context.broker if context.is_open else None, call)


def key(context: Context, call: Call) -> Response:
    """Report what the caller's key may do; without keys every caller may do everything."""
    if call.key is None:
        return reply(call.request, {"keys": False, "scopes": sorted(SCOPES), "prefixes": None})
    return reply(call.request, {"keys": True, "scopes": sorted(call.key.scopes), "prefixes": call.key.prefixes})


def openapi(context: Context, call: Call) -> Response:
    """Send the contract as OpenAPI 3.1."""
    if context.openapi is None:
        raise NotFound("no document is served here")
    return Response(200, context.openapi())


ROUTES = [
    Route("GET", "/v0/health", health, summary="Whether the process answers"),
    Route("GET", "/healthz", health, summary="Whether the process answers"),
    Route("GET", "/v0/ready", ready, summary="Whether requests are served"),
    Route("GET", "/readyz", ready, summary="Whether requests are served"),
    Route("GET", "/v0/metrics", metrics, frozenset({"read"}), summary="Metrics", anywhere=True),
    Route("GET", "/v0/key", key, frozenset({"read"}), summary="What this key may do", anywhere=True),
    Route("GET", "/openapi.json", openapi, summary="This document"),
]
