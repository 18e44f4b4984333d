"""Routes about an upgrade: which features the log uses, and the call that turns on the rest."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from msgspec.structs import replace

from tenure import __version__
from tenure.contract.replies import UpgradeStatus
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_whole_server
from tenure.http.api.context import Context
from tenure.http.api.query import Query
from tenure.http.api.render import reply
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]

_VERSION: Final = __version__


def status(context: Context, call: Call) -> Response:
    """Report the version and which features are on and off."""
    return _answer(call, context.broker.upgrade_status())


def finalize(context: Context, call: Call) -> Coroutine[Any, Any, Response]:
    """Turn on every feature of this version, durably. A repeat finds them on and changes nothing.

    Refused while a server that shares the home could not read them, unless ``force`` is set: it could not take over.
    """
    check_whole_server(call)
    return _finalize(context, call, force=Query(call.request).flag("force", False))


async def _finalize(context: Context, call: Call, *, force: bool) -> Response:
    off = context.broker.upgrade_status().off
    if context.cluster is not None and off and not force:
        await context.cluster.check_readers(off)
    return _answer(call, await context.broker.finalize_upgrade())


def _answer(call: Call, found: UpgradeStatus) -> Response:
    return reply(call.request, replace(found, version=_VERSION))


ROUTES = [
    Route("GET", "/v0/upgrade", status, frozenset({"read"}), summary="The version, and its features on and off"),
    Route(
        "POST",
        "/v0/upgrade/finalize",
        finalize,
        frozenset({"admin"}),
        summary="Turn on the features of this version; older versions cannot open the log after that",
    ),
]
