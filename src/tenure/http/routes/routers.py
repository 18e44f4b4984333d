"""Routes of routers: put, get, list, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import asdict

from tenure.contract.commands import DeleteRouter, PutRouter, RouterFields
from tenure.core.state.router import Router
from tenure.errors import Conflict, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name, visible
from tenure.http.api.body import Reader
from tenure.http.api.command import built, sharing
from tenure.http.api.context import Context
from tenure.http.api.prefixes import check_router, mask_cycle
from tenure.http.api.query import Query
from tenure.http.api.render import reply
from tenure.http.wire.message import Response, Result

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_router = Reader(RouterFields)


def put_router(context: Context, call: Call) -> Result:
    """Create or replace a router. A cycle that it would close is reported without names beyond the caller's key."""
    try:
        return _put(context, call)
    except Conflict as conflict:
        raise mask_cycle(call, conflict) from None


def _build_put(context: Context, call: Call) -> PutRouter:
    body = _router.read(call.request)
    check_name(call, body.source)
    check_name(call, body.dest)
    _check_known(context, call)
    if call.key is not None and context.shares is not None:
        context.shares.note_maker(call.names["r"], call.key, context.broker)
    return PutRouter(router=call.names["r"], **asdict(body))


def _render_put(call: Call, answered: tuple[Router, bool], fsync_ms: float) -> Response:
    router, created = answered
    fields = {"created": created, **router_fields(router)}
    return reply(call.request, fields, status=201 if created else 200, fsync_ms=fsync_ms)


_put = built(_build_put, _render_put, bounds=sharing)


def get_router(context: Context, call: Call) -> Response:
    """Return one router, as it is now."""
    router = context.broker.router(call.names["r"])
    check_router(call, router)
    return reply(call.request, router_fields(router))


def list_routers(context: Context, call: Call) -> Response:
    """List routers by name, those that the caller may see at both ends."""
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


def delete_router(context: Context, call: Call) -> DeleteRouter:
    """Build the command that removes a router."""
    _check_known(context, call)
    return DeleteRouter(router=call.names["r"])


def _deleted(call: Call, deleted: bool, fsync_ms: float) -> Response:
    return reply(call.request, {"router": call.names["r"], "deleted": deleted}, fsync_ms=fsync_ms)


def _check_known(context: Context, call: Call) -> None:
    """Raise Denied where a router of this name exists and is beyond the caller's key."""
    with suppress(NotFound):
        check_router(call, context.broker.router(call.names["r"]))


def router_fields(router: Router) -> dict[str, Any]:
    """Return the fields of a router on the wire."""
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
    Route("DELETE", _ROUTER, built(delete_router, _deleted), frozenset({"delete"}), summary="Remove a router"),
]
