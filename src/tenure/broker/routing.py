"""Routers: copying from topic to topic, from a cursor that moves in the same log batch as the copies."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from tenure.broker.answer import Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_cap
from tenure.broker.paging import after_name, check_prefix, clamp_limit, cursor_of
from tenure.broker.room import Share, check_made_by_use, check_not_retired, check_share, check_topic_room
from tenure.contract.records import Record, Stored
from tenure.contract.replies import Page
from tenure.core.config import DEFAULTS
from tenure.core.events import Event, RouterDeleted, RouterMoved, RouterPut, TopicPut
from tenure.core.matching import parse_match
from tenure.core.names import check_router_name, check_topic_name
from tenure.core.router import Router, find_cycle
from tenure.core.topic import Topic
from tenure.core.values import check_flag, check_reaches
from tenure.errors import Closed, Conflict, Invalid, NotFound, Overloaded

__all__ = ["delete_router", "forward", "get_router", "list_routers", "put_router"]


def put_router(
    engine: Engine,
    name: str,
    *,
    source: str,
    dest: str,
    preserve_node: bool = True,
    preserve_tag: bool = True,
    create_dest: bool = True,
    filter: object = None,
    allow_cycle: bool = False,
    share: Share | None = None,
) -> Answer[tuple[Router, bool]]:
    """Create or replace a router; it copies what is appended from now on.

    Raises Conflict for a cycle not allowed, NotFound for a destination that is absent and may not be created.
    """
    check_router_name(name)
    check_topic_name(source)
    check_topic_name(dest)
    if source == dest:
        raise Invalid("a router needs two different topics")
    check_flag(preserve_node, "preserve_node")
    check_flag(preserve_tag, "preserve_tag")
    check_flag(create_dest, "create_dest")
    check_flag(allow_cycle, "allow_cycle")
    check_share(share)
    rule = _rule(filter, bytes_max=engine.settings.tag_bytes_max)
    known = engine.state.routers.get(name)
    _check_cycle(engine, name, source, dest, allow_cycle=allow_cycle)
    _check_dest(engine, dest, create_dest=create_dest)
    limit = engine.settings.routers_max
    if known is None and limit and len(engine.state.routers) >= limit:
        raise Overloaded(f"there are {limit} routers, which is the limit", limit="routers_max", max=limit)
    if known is None and share is not None:
        share.take_router(name)
    topic = engine.state.topics.get(source)
    cursor = known.cursor if known is not None and known.source == source else topic.head_seq if topic else 0
    now = engine.now()
    event = RouterPut(now, name, source, dest, preserve_node, preserve_tag, create_dest, rule, allow_cycle, cursor)
    batch = engine.commit(event, 0)
    return Answer((copy(engine.state.routers[name]), known is None), batch, Level.SYNCED, engine.gate)


def _rule(given: object, *, bytes_max: int) -> list[str] | None:
    """A filter as it is kept, in a list of our own: the caller's may change under us."""
    if given is None:
        return None
    match = parse_match(given, bytes_max=bytes_max)
    return ["tag", "Eq", match.exact] if match.exact is not None else ["tag", "Glob", f"{match.prefix}*"]


def _check_cycle(engine: Engine, name: str, source: str, dest: str, *, allow_cycle: bool) -> None:
    if allow_cycle:
        return
    others = [router for router in engine.state.routers.values() if router.name != name]
    cycle = find_cycle(others, source=source, dest=dest)
    if cycle is not None:
        raise Conflict(f"records would go round: {' → '.join(cycle)}", code="router_cycle", cycle=cycle)


def _check_dest(engine: Engine, dest: str, *, create_dest: bool) -> None:
    if dest in engine.state.topics:
        return
    if not create_dest:
        raise NotFound(
            f"no topic {dest!r} and create_dest is false: create it first", code="topic_not_found", topic=dest
        )
    check_not_retired(engine, dest)


def get_router(engine: Engine, name: str) -> Router:
    """The router of that name; NotFound otherwise."""
    router = engine.state.routers.get(check_router_name(name))
    if router is None:
        raise NotFound(f"no router {name!r}", code="router_not_found", router=name)
    return copy(router)


def delete_router(engine: Engine, name: str) -> Answer[bool]:
    """Remove a router; the reply says whether it was there."""
    check_router_name(name)
    if name not in engine.state.routers:
        return Answer(False, 0, Level.NOW, engine.gate)
    batch = engine.commit(RouterDeleted(engine.now(), name), 0, urgent=True)
    return Answer(True, batch, Level.SYNCED, engine.gate)


def list_routers(
    engine: Engine,
    *,
    prefix: str = "",
    source: str | None = None,
    dest: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
    reaches: Callable[[str], bool] | None = None,
) -> Page:
    """Routers by name, those between the given topics only, and those that the caller reaches."""
    limit, prefix, after = clamp_limit(limit, engine.settings), check_prefix(prefix), after_name(cursor)
    check_reaches(reaches)
    state = engine.state
    routers = state.routers.values() if source is None else state.routers_from.get(check_prefix(source, "source"), [])
    if dest is not None:
        check_prefix(dest, "dest")
    wanted = (r for r in routers if r.name > after and r.name.startswith(prefix) and (dest is None or r.dest == dest))
    chosen = sorted(
        (r for r in wanted if reaches is None or r.within(reaches)),
        key=lambda router: router.name,
    )
    return Page(list(map(copy, chosen[:limit])), cursor_of(chosen[limit - 1].name) if len(chosen) > limit else None)


def forward(engine: Engine, source: Topic) -> bool:
    """Copy what is new in ``source`` through its routers, a step each; True if some of them have more to do.

    A destination that is full or absent holds its router where it is: it goes on with the next thing that happens there
    or here.
    """
    more = False
    for router in list(engine.state.routers_from.get(source.name, ())):
        if router.cursor < source.visible_seq:
            try:
                more |= _step(engine, source, router)
            except (Closed, NotFound, Overloaded):
                engine.stalled.setdefault(router.dest, set()).add(source.name)
    return more


def _step(engine: Engine, source: Topic, router: Router) -> bool:
    """Copy what one step allows; source records that cannot be read are missed, like those evicted before it came.

    Raises NotFound or Overloaded where the router has to wait; nothing was changed then.
    """
    now, lo = engine.now(), router.cursor + 1
    hi = min(lo + engine.settings.router_step_records, source.visible_seq + 1)
    match = router.match
    records, lost = engine.reader.sift(source, source.live_runs(lo, hi))
    copies = [
        _copy(router, record)
        for record in records
        if (match is None or match.matches(record.tag)) and record.hops < engine.settings.router_hops_max
    ]
    missed = len(lost) + max(0, min(hi, source.evict_floor) - max(lo, 1))
    events: list[tuple[Event, int]] = []
    dest = engine.state.topics.get(router.dest)
    dest_id = 0
    if copies or missed:
        dest_id, events = _deliver(engine, router, dest, copies, now=now, burnt=1 if missed else 0)
    events.insert(
        len(events) - (1 if copies else 0), (RouterMoved(now, router.name, hi - 1, len(copies), missed, dest_id), 0)
    )
    engine.commit_all(*events)
    engine.metrics.forwarded += len(copies)
    if copies:
        evict_over_cap(engine, engine.state.by_id[dest_id], now)
    return hi <= source.visible_seq


def _copy(router: Router, record: Stored) -> Record:
    return Record(
        data=record.data,
        tag=record.tag if router.preserve_tag else None,
        node=record.node if router.preserve_node else None,
        meta=record.meta,
        hops=record.hops + 1,
    )


def _deliver(
    engine: Engine, router: Router, dest: Topic | None, copies: list[Record], *, now: int, burnt: int
) -> tuple[int, list[tuple[Event, int]]]:
    """The events that put copies into the destination; ``burnt`` seqs before them mark what the source lost."""
    events: list[tuple[Event, int]] = []
    if dest is None:
        if not router.create_dest:
            raise NotFound(f"router {router.name!r} has no destination", code="topic_not_found")
        check_made_by_use(engine, router.dest)
        dest_id, first_seq = engine.state.next_topic_id, 1 + burnt
        events.append((TopicPut(now, dest_id, router.dest, DEFAULTS, implicit=True), dest_id))
    else:
        dest_id, first_seq = dest.id, dest.head_seq + 1 + burnt
    if copies:
        event = engine.appended(dest_id, first_seq, copies, now=now)
        check_topic_room(dest, dest.config if dest else DEFAULTS, records=len(copies), size=len(event.blobs))
        events.append((event, dest_id))
    return dest_id, events
