"""Routers: put, get, list and delete them."""

from __future__ import annotations

from typing import Unpack

import msgspec
from msgspec.json import Decoder

from tenure.client.calls.requests import call, get, request_of
from tenure.client.plan.encode import query_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.commands import DeleteRouter, RouterFields
from tenure.contract.names import check_router_name, check_topic_name
from tenure.contract.options import RouterOptions
from tenure.contract.replies import RouterInfo, RouterPage
from tenure.errors import Invalid

__all__ = ["delete_router", "put_router", "router", "routers"]


class _Deleted(msgspec.Struct):
    deleted: bool


_router = Decoder(RouterInfo)
_page = Decoder(RouterPage)
_deleted = Decoder(_Deleted)


def _path(name: str) -> str:
    return "/v0/routers/" + check_router_name(name).replace(">", "%3E")


def put_router(
    session: Session, name: str, *, source: str, dest: str, **options: Unpack[RouterOptions]
) -> Plan[RouterInfo]:
    """Create or replace a router: what is appended to ``source`` is copied to ``dest``."""
    if check_topic_name(source) == check_topic_name(dest):
        raise Invalid("source and dest must be two topics")
    command = RouterFields(source=source, dest=dest, **options)
    put, _ = yield from call(session, request_of(_path(name), command, method="PUT"), _router, command.repeat)
    return put


def router(session: Session, name: str) -> Plan[RouterInfo]:
    """Return one router, as it is now."""
    return (yield from get(session, _path(name), _router))


def routers(
    session: Session,
    *,
    prefix: str = "",
    source: str | None = None,
    dest: str | None = None,
    page_size: int = 1000,
    cursor: str | None = None,
) -> Plan[RouterPage]:
    """Return routers by name, those whose both ends the key reaches."""
    path = query_of("/v0/routers", prefix=prefix, source=source, dest=dest, page_size=page_size, cursor=cursor)
    return (yield from get(session, path, _page))


def delete_router(session: Session, name: str) -> Plan[bool]:
    """Remove a router; return whether there was one. Never repeated after a lost answer."""
    reply, _ = yield from call(session, Request("DELETE", _path(name)), _deleted, DeleteRouter.repeat)
    return reply.deleted
