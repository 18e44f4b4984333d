"""Routers: put, look, list, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import asdict

from tenure.contract.commands import PutRouter, RouterFields
from tenure.core.state.router import Router
from tenure.errors import Conflict, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name, visible
from tenure.http.api.body import Reader
from tenure.http.api.context import Context
from tenure.http.api.prefixes import check_router, masked_cycle
from tenure.http.api.query import Query
from tenure.http.api.render import Stopwatch, reply
from tenure.http.api.shares import share_of
from tenure.http.wire.message import Later, Response

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_router = Reader(RouterFields)


def put_router(context: Context, call: Call) -> Later[tuple[Router, bool]]:
    """Create or replace a router."""
    request = call.request
    body = _router.read(request)
    check_name(call, body.source)
    check_name(call, body.dest)
    _check_known(context, call)
    try:
        command = PutRouter(router=call.names["r"], share=share_of(context, call), **asdict(body))
        answer = context.broker.run(command)
    except Conflict as conflict:
        raise masked_cycle(call, conflict) from None
    watch = Stopwatch(answer)

    def render(answered: tuple[Router, bool]) -> Response:
        router, created = answered
        fields = {"created": created, **router_fields(router)}
        return reply(request, fields, status=201 if created else 200, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def get_router(context: Context, call: Call) -> Response:
    """One router, as it stands now."""
    router = context.broker.router(call.names["r"])
    check_router(call, router)
    return reply(call.request, router_fields(router))


def list_routers(context: Context, call: Call) -> Response:
    """Routers by name, those that the caller may see at both ends."""
    query = Query(call.request)
    size = min(query.whole("page_size", _PAGE_SIZE), context.settings.engine.page_max) or 1
    prefix, source, dest = query.text("prefix") or "", query.text("source"), query.text("dest")
    page = context.broker.routers(
        prefix=prefix,
        source=source,
        dest=dest,
        limit=size,
        cursor=query.text("cursor"),
        reaches=lambda name: visible(call, name),
    )
    fields: dict[str, Any] = {"routers": [router_fields(router) for router in page.items]}
    if page.next_cursor is not None:
        fields["next_cursor"] = page.next_cursor
    return reply(call.request, fields)


def delete_router(context: Context, call: Call) -> Later[bool]:
    """Remove a router."""
    request, name = call.request, call.names["r"]
    _check_known(context, call)
    answer = context.broker.delete_router(name)
    watch = Stopwatch(answer)
    return Later(answer, lambda deleted: reply(request, {"router": name, "deleted": deleted}, fsync_ms=watch.fsync_ms))


def _check_known(context: Context, call: Call) -> None:
    """Raise Denied where a router of this name is there already and beyond the caller's key."""
    with suppress(NotFound):
        check_router(call, context.broker.router(call.names["r"]))


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
    Route("PUT", _ROUTER, put_router, frozenset({"admin"}), RouterFields, "Create or replace a router"),
    Route("GET", _ROUTER, get_router, frozenset({"read"}), summary="A router's fields and counts"),
    Route("DELETE", _ROUTER, delete_router, frozenset({"delete"}), summary="Remove a router"),
]
