"""Decide the commands on routers: put, get, list, delete."""

from __future__ import annotations

from copy import copy

from tenure.contract.bounds import UNBOUND, Bounds
from tenure.contract.commands import DeleteRouter, GetRouter, ListRouters, PutRouter
from tenure.contract.names import check_router_name, check_topic_name
from tenure.contract.replies import Page
from tenure.contract.values import check_flag
from tenure.core.decide.decision import Decided, Decision, Payloads, Steps
from tenure.core.decide.limits import check_not_retired
from tenure.core.events import RouterDeleted, RouterPut
from tenure.core.level import Level
from tenure.core.paging import after_name, check_prefix, clamp_limit, cursor_of
from tenure.core.state.router import Router, find_cycle
from tenure.core.state.state import State
from tenure.core.tag_match import parse_match
from tenure.errors import Conflict, Invalid, NotFound, Overloaded

__all__ = ["delete_router", "get_router", "list_routers", "put_router"]


def put_router(
    state: State, command: PutRouter, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decided[tuple[Router, bool]]:
    """Create or replace a router; it copies what is appended from now on.

    Raises Conflict for a cycle not allowed, NotFound for a destination that is absent and may not be created, and
    Overloaded for one router too many.
    """
    name, source, dest = check_router_name(command.router), command.source, command.dest
    check_topic_name(source)
    check_topic_name(dest)
    if source == dest:
        raise Invalid("a router needs two different topics")
    for flag in ("preserve_node", "preserve_tag", "create_dest", "allow_cycle"):
        check_flag(getattr(command, flag), flag)
    rule = _rule(command.filter, bytes_max=state.settings.tag_bytes_max)
    known = state.routers.get(name)
    if not command.allow_cycle:
        _check_cycle(state, name, source, dest)
    _check_dest(state, dest, create_dest=command.create_dest)
    limit = state.settings.routers_max
    if known is None and limit and len(state.routers) >= limit:
        raise Overloaded(f"there are {limit} routers, which is the limit", limit="routers_max", max=limit)
    if known is None or known.source != source:
        _check_source(state, source)
    if known is None and bounds.share is not None:
        bounds.share.take_router(name)
    topic = state.topics.get(source)
    cursor = known.cursor if known is not None and known.source == source else topic.head_seq if topic else 0
    event = RouterPut(
        now_ms,
        name,
        source,
        dest,
        command.preserve_node,
        command.preserve_tag,
        command.create_dest,
        rule,
        command.allow_cycle,
        cursor,
    )
    return _put(state, event, created=known is None)


def _put(state: State, event: RouterPut, *, created: bool) -> Steps[tuple[tuple[Router, bool], int]]:
    yield [event]
    return (copy(state.routers[event.name]), created), Level.SYNCED


def _rule(given: object, *, bytes_max: int) -> list[str] | None:
    """Return a filter as it is kept, in a new list: the caller may change its own later."""
    if given is None:
        return None
    match = parse_match(given, bytes_max=bytes_max)
    return ["tag", "Eq", match.exact] if match.exact is not None else ["tag", "Glob", f"{match.prefix}*"]


def _check_source(state: State, source: str) -> None:
    """Raise Overloaded where as many routers as may lead from a topic."""
    limit = state.settings.routers_per_source_max
    if 0 < limit <= len(state.routers_from.get(source, ())):
        raise Overloaded(
            f"{limit} routers lead from {source!r}, which is the limit: copy into a topic that more lead from, delete "
            "some, or raise the broker's setting routers_per_source_max",
            limit="routers_per_source_max",
            max=limit,
        )


def _check_cycle(state: State, name: str, source: str, dest: str) -> None:
    cycle = find_cycle(state.routers_from, name=name, source=source, dest=dest)
    if cycle is not None:
        raise Conflict(f"records would go round: {' → '.join(cycle)}", code="router_cycle", cycle=cycle)


def _check_dest(state: State, dest: str, *, create_dest: bool) -> None:
    if dest in state.topics:
        return
    if not create_dest:
        raise NotFound(
            f"no topic {dest!r} and create_dest is false: create it first", code="topic_not_found", topic=dest
        )
    check_not_retired(state, dest)


def get_router(state: State, command: GetRouter, now_ms: int, payloads: Payloads) -> Decision[Router]:
    """Return the router of that name. Raises NotFound."""
    name = check_router_name(command.router)
    router = state.routers.get(name)
    if router is None:
        raise NotFound(f"no router {name!r}", code="router_not_found", router=name)
    return None, copy(router), Level.NOW


def delete_router(state: State, command: DeleteRouter, now_ms: int, payloads: Payloads) -> Decision[bool]:
    """Remove a router; the reply says whether it was there."""
    if check_router_name(command.router) not in state.routers:
        return None, False, Level.SYNCED  # another call may have deleted it just now
    return RouterDeleted(now_ms, command.router), True, Level.SYNCED


def list_routers(
    state: State, command: ListRouters, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decision[Page[Router]]:
    """List routers by name, those between the given topics only, and those that the caller reaches."""
    limit, prefix = clamp_limit(command.limit, state.settings), check_prefix(command.prefix)
    after, source, dest, reaches = after_name(command.cursor), command.source, command.dest, bounds.reaches
    routers = state.routers.values() if source is None else state.routers_from.get(check_prefix(source, "source"), [])
    if dest is not None:
        check_prefix(dest, "dest")
    wanted = (r for r in routers if r.name > after and r.name.startswith(prefix) and (dest is None or r.dest == dest))
    chosen = sorted(
        (r for r in wanted if reaches is None or r.within(reaches)),
        key=lambda router: router.name,
    )
    more = len(chosen) > limit
    return None, Page(list(map(copy, chosen[:limit])), cursor_of(chosen[limit - 1].name) if more else None), Level.NOW
