"""The console's page and its files. Open to all callers: they hold no secret, and the requests they make need a key."""

from __future__ import annotations

from tenure.console.assets import HEADERS, INDEX, load
from tenure.errors import NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.context import Context
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]


def page(context: Context, call: Call) -> Response:
    """Send the page itself."""
    return _send(call, INDEX)


def file(context: Context, call: Call) -> Response:
    """Send one of its scripts, styles or drawings."""
    return _send(call, "/".join(name for part in ("folder", "file") if (name := call.names.get(part)) is not None))


def _send(call: Call, name: str) -> Response:
    asset = load().get(name)
    if asset is None:
        raise NotFound("there is nothing at this path", code="not_found")
    headers = [*HEADERS.items(), (b"etag", asset.etag)]
    known = call.request.headers.get("if-none-match", "")
    if asset.etag.decode() in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(304, headers=headers, content_type=asset.content_type)
    return Response(200, asset.body, headers=headers, content_type=asset.content_type)


ROUTES = [
    Route("GET", "/", page, summary="The console"),
    Route("GET", "/console/:file", file, summary="A file of the console"),
    Route("GET", "/console/:folder/:file", file, summary="A file of the console"),
]
