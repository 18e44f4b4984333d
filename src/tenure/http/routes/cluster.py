"""Routes about the servers that share a home: who leads, who follows, and the call that hands the lead over.

A load balancer asks ``/v0/leader``, which has a success on one server only; a rolling update asks for readiness, which
a standby has too, or it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from tenure.address import Address, parse_address
from tenure.contract.bodies import HandOverBody
from tenure.contract.replies import ClusterInfo
from tenure.errors import Closed, Conflict, Invalid, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_whole_server
from tenure.http.api.body import Reader
from tenure.http.api.context import Cluster, Context
from tenure.http.api.render import reply
from tenure.http.wire.message import Response

__all__ = ["ROUTES", "check_caught_up", "check_leads", "standby_of"]

_read_hand_over = Reader(HandOverBody, optional=True).read


def cluster_of(context: Context) -> ClusterInfo:
    """Return what this server knows of the servers that share its home; one without a home is alone."""
    if context.cluster is not None:
        return context.cluster.info()
    url = context.settings.advertise
    return ClusterInfo(role="alone", url=url, leader=url, is_caught_up=context.is_open)


def standby_of(context: Context) -> ClusterInfo | None:
    """Return the view of a server that follows another one, or waits for one; None for one that leads or is alone."""
    info = None if context.cluster is None else context.cluster.info()
    return info if info is not None and info.role == "standby" else None


def check_leads(context: Context) -> None:
    """Raise NotLeader on a standby; Closed while the log is replayed or the server drains, and after it failed."""
    failed = context.broker.failed
    if failed is not None:
        raise Closed(f"{failed.message} Restart the server.")
    if context.draining:
        raise Closed("this server is shutting down: use another", code="shutting_down")


def check_caught_up(standby: ClusterInfo) -> None:
    """Raise Closed where a standby is too far behind to take over, or could not read the log."""
    if standby.trouble:
        raise Closed(f"this server cannot take over: {standby.trouble}", code="not_ready")
    if not standby.is_caught_up:
        raise Closed(
            "this server is still reading the home's log: try again shortly",
            code="not_ready",
            follow_lag_links=standby.follow_lag_links,
            follow_lag_ms=standby.follow_lag_ms,
        )


def cluster(context: Context, call: Call) -> Response:
    """Report this server's view of the cluster; where the log lives is for keys that see all of it."""
    is_tenant = call.key is not None and call.key.prefixes is not None
    return reply(call.request, replace(cluster_of(context), home="" if is_tenant else context.settings.home))


def leader(context: Context, call: Call) -> Response:
    """Report that this server leads; any other is refused, with the address of the leader where it is known."""
    check_leads(context)
    info = cluster_of(context)
    return reply(call.request, {"leader": info.leader, "epoch": info.epoch})


def hand_over(context: Context, call: Call) -> Coroutine[Any, Any, Response]:
    """Give the lead to another server. Nothing happens where nobody could take it."""
    check_whole_server(call)
    to = _read_hand_over(call.request).to
    check_leads(context)
    if context.cluster is None:
        raise Conflict(
            "this server leads alone: start a second one with the same --home, and both with --advertise",
            code="no_standby",
        )
    return _hand_over(context.cluster, call, to=_successor(context.cluster.info(), to) if to else "")


async def _hand_over(cluster: Cluster, call: Call, *, to: str) -> Response:
    await cluster.hand_over(to)
    return reply(call.request, cluster.info())


def _successor(info: ClusterInfo, to: str) -> str:
    """Return the URL of a member as it advertises it. Raises Invalid for what is no URL, Conflict for this server
    itself, NotFound for one that has left no sign of life in the home.
    """
    try:
        wanted = parse_address(to)
    except Invalid as error:
        raise Invalid(f"to: {error.message}", field="to") from None
    if _is_at(info.url, wanted):
        raise Conflict(f"{info.url} leads already: name another server", code="leads_already")
    others = [member.url for member in info.members if member.url and member.url != info.url]
    found = next((url for url in others if _is_at(url, wanted)), None)
    if found is None:
        seen = f"those seen are {', '.join(others)}" if others else "no other server was seen"
        raise NotFound(f"no server at {to} follows this one: {seen}", code="member_not_found", members=others)
    return found


def _is_at(url: str, address: Address) -> bool:
    """Return whether a URL, which was read from a store, leads to an address."""
    try:
        return parse_address(url) == address
    except Invalid:
        return False


ROUTES = [
    Route("GET", "/v0/cluster", cluster, frozenset({"read"}), summary="Who leads, and who follows", anywhere=True),
    Route(
        "POST",
        "/v0/cluster/handover",
        hand_over,
        frozenset({"admin"}),
        HandOverBody,
        "Give the lead to another server",
    ),
    Route("GET", "/v0/leader", leader, summary="Whether this server leads; for load balancers"),
]
