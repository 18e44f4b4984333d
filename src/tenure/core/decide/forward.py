"""Forward records through routers; the cursor of a router moves in the same log batch as the copies."""

from __future__ import annotations

from typing import NamedTuple

from tenure.contract.config import DEFAULTS
from tenure.contract.records import Record, Stored
from tenure.core.decide.decision import Payloads, Steps, append_copies
from tenure.core.decide.evict import evict_over_cap
from tenure.core.decide.limits import check_made_by_use, check_topic_room, room_for
from tenure.core.events import Appended, Event, RouterMoved, TopicPut
from tenure.core.level import Level
from tenure.core.records import ends_of, pack
from tenure.core.state.router import Router
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Closed, NotFound, Overloaded

__all__ = ["Forwarded", "forward"]


class Forwarded(NamedTuple):
    """How far a step of a router came: whether it has ``more`` to do, how many bytes it copied, and whether its
    destination blocks it.
    """

    more: bool
    size: int = 0
    blocked: bool = False


def forward(state: State, router: Router, now_ms: int, payloads: Payloads) -> Steps[tuple[Forwarded, int]]:
    """Copy one step of what is new in a router's source: up to a number of records, and of bytes.

    A destination that is full or absent blocks the router, which goes on once something changes there or here.
    """
    source, done = state.topics.get(router.source), Forwarded(more=False)
    if source is not None and router.cursor < source.visible_seq:
        try:
            done = yield from _step(state, source, router, now_ms, payloads)
        except (Closed, NotFound, Overloaded):
            done = Forwarded(more=False, blocked=True)
    return done, Level.NOW


def _step(state: State, source: Topic, router: Router, now_ms: int, payloads: Payloads) -> Steps[Forwarded]:
    """Copy what one step allows, and the destination has room for; source records that cannot be read are missed, like
    those evicted before it came, and like one that is larger than the destination may ever hold.

    Raises NotFound or Overloaded where the router has to wait; nothing was changed then.
    """
    lo, settings, match = router.cursor + 1, state.settings, router.match
    hi = _end(state, source, lo, payloads)
    records, lost = payloads.readable(source, source.live_runs(lo, hi))
    chosen = [
        record
        for record in records
        if (match is None or match.matches(record.tag)) and record.hops < settings.router_hops_max
    ]
    copies, too_large = [_copy(router, record) for record in chosen], 0
    room = _room(state, router, copies)
    if room < len(copies):
        too_large = int(not room and _is_empty(state, router))
        hi = chosen[room].seq + too_large
        copies = copies[:room] if room or too_large else copies[:1]
    missed = too_large + sum(seq < hi for seq in lost) + max(0, min(hi, source.evict_floor) - max(lo, 1))
    events: list[Event] = []
    dest_id = size = 0
    if copies or missed:
        dest_id, events = _deliver(state, router, copies, now_ms=now_ms, burnt=1 if missed else 0)
    moved = RouterMoved(now_ms, router.name, hi - 1, len(copies), missed, dest_id)
    events.insert(len(events) - (1 if copies else 0), moved)
    if isinstance(events[-1], Appended):
        size = len(events[-1].blobs)
    yield events
    if copies:
        yield from evict_over_cap(state, state.by_id[dest_id], now_ms, payloads)
    return Forwarded(hi <= source.visible_seq, size)


def _end(state: State, source: Topic, lo: int, payloads: Payloads) -> int:
    """Return the seq before which a step that begins at ``lo`` ends; it takes one record at least."""
    hi = min(lo + state.settings.router_step_records, source.visible_seq + 1)
    runs = source.live_runs(lo, hi)
    fitting = payloads.fitting(source, runs, state.settings.router_step_bytes)
    return hi if fitting == runs else fitting[-2] + fitting[-1]


def _room(state: State, router: Router, copies: list[Record]) -> int:
    """Return how many of the copies the destination has room for."""
    dest = state.topics.get(router.dest)
    if dest is None or dest.config.discard != "reject":
        return len(copies)
    packed = pack(copies)
    return room_for(dest, dest.config, ends_of(packed.ends, len(packed.blobs)))


def _is_empty(state: State, router: Router) -> bool:
    return not state.topics[router.dest].count


def _copy(router: Router, record: Stored) -> Record:
    return Record(
        data=record.data,
        tag=record.tag if router.preserve_tag else None,
        node=record.node if router.preserve_node else None,
        meta=record.meta,
        hops=record.hops + 1,
    )


def _deliver(state: State, router: Router, copies: list[Record], *, now_ms: int, burnt: int) -> tuple[int, list[Event]]:
    """Return the events that put copies into the destination; ``burnt`` seqs before them mark what the source lost."""
    events: list[Event] = []
    dest = state.topics.get(router.dest)
    if dest is None:
        if not router.create_dest:
            raise NotFound(f"router {router.name!r} has no destination", code="topic_not_found")
        check_made_by_use(state, router.dest)
        dest_id, first_seq = state.next_topic_id, 1 + burnt
        events.append(TopicPut(now_ms, dest_id, router.dest, DEFAULTS, implicit=True))
    else:
        dest_id, first_seq = dest.id, dest.head_seq + 1 + burnt
    if copies:
        event = append_copies(state, dest_id, first_seq, copies, now_ms=now_ms)
        check_topic_room(dest, dest.config if dest else DEFAULTS, records=len(copies), size=len(event.blobs))
        events.append(event)
    return dest_id, events
