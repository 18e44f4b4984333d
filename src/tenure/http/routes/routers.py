"""Routers: put, look, list, delete."""

from __future__ import annotations

from typing import Any

from tenure.core.router import Router
from tenure.http.app import Call, Route
from tenure.http.auth import check_name, visible
from tenure.http.body import Reader
from tenure.http.context import Context
from tenure.http.message import Later, Response
from tenure.http.query import Query
from tenure.http.render import Stopwatch, reply
from tenure.http.schemas import RouterBody

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_router = Reader(RouterBody)


def put_router(context: Context, call: Call) -> Later[tuple[Router, bool]]:
    """Create or replace a router."""
    request = call.request
    body = _router.read(request)
    check_name(call, body.source)
    check_name(call, body.dest)
    answer = context.broker.put_router(
        call.names["r"],
        source=body.source,
        dest=body.dest,
        preserve_node=body.preserve_node,
        preserve_tag=body.preserve_tag,
        create_dest=body.create_dest,
        filter=body.filter,
        allow_cycle=body.allow_cycle,
    )
    watch = Stopwatch(answer)

    def render(answered: tuple[Router, bool]) -> Response:
        router, created = answered
        fields = {"created": created, **router_fields(router)}
        return reply(request, fields, status=201 if created else 200, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def get_router(context: Context, call: Call) -> Response:
    """One router, as it stands now."""
    return reply(call.request, router_fields(context.broker.router(call.names["r"])))


def list_routers(context: Context, call: Call) -> Response:
    """Routers by name, those that the caller may see at both ends."""
    query = Query(call.request)
    size = min(query.whole("page_size", _PAGE_SIZE), context.settings.engine.page_max) or 1
    prefix, source, dest = query.text("prefix") or "", query.text("source"), query.text("dest")
    cursor, found = query.text("cursor"), list[Router]()
    while True:
        page = context.broker.routers(prefix=prefix, source=source, dest=dest, limit=size - len(found), cursor=cursor)
        found += (router for router in page.items if _shown(call, router))
        cursor = page.next_cursor
        if cursor is None or len(found) == size:
            break
    fields: dict[str, Any] = {"routers": [router_fields(router) for router in found]}
    if cursor is not None:
        fields["next_cursor"] = cursor
    return reply(call.request, fields)


def _shown(call: Call, router: Router) -> bool:
    return visible(call, router.name) and visible(call, router.source) and visible(call, router.dest)


def delete_router(context: Context, call: Call) -> Later[bool]:
    """Remove a router."""
    request, name = call.request, call.names["r"]
    answer = context.broker.delete_router(name)
    watch = Stopwatch(answer)
    return Later(answer, lambda deleted: reply(request, {"router": name, "deleted": deleted}, fsync_ms=watch.fsync_ms))


def router_fields(router: Router) -> dict[str, Any]:
    """A router as the wire shows it."""
    return {
        "router": router.name,
        "source": router.source,
        "dest": router.dest,
        "preserve_node": router.preserve_node,
        "preserve_tag": router.preserve_tag,
        "create_dest": router.create_dest,
        "filter": router.filter,
        "allow_cycle": router.allow_cycle,
        "forwarded_total": router.forwarded,
        "missed_total": router.missed,
    }


_ROUTER = "/v0/routers/:r"
ROUTES = [
    Route("GET", "/v0/routers", list_routers, frozenset({"read"}), summary="List routers"),
    Route("PUT", _ROUTER, put_router, frozenset({"admin"}), RouterBody, "Create or replace a router"),
    Route("GET", _ROUTER, get_router, frozenset({"read"}), summary="A router's fields and counts"),
    Route("DELETE", _ROUTER, delete_router, frozenset({"delete"}), summary="Remove a router"),
]
