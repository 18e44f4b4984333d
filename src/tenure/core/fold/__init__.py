"""``fold(state, event, location)``: the one place where state changes.

The same function runs when an event has just been decided and when the log is read back, so what was answered and
what a restart rebuilds cannot differ. In a replay, an event of a topic whose base comes later in the log only builds
its frame index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.core.events import (
    Acked,
    Appended,
    BaseBegun,
    BasePart,
    Begun,
    Carried,
    Claimed,
    ClaimedIsolated,
    ClockSet,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Lost,
    Opened,
    Redriven,
    Released,
    Returned,
    RouterDeleted,
    RouterMoved,
    RouterPut,
    StateCarried,
    TopicCarried,
    TopicDeleted,
    TopicPut,
)
from tenure.core.fold import appends, bases, clock, leases, rewriting, routers, topics
from tenure.core.state.state import State

__all__ = ["FOLDS", "fold"]


def fold(state: State, event: Event, location: int = 0) -> None:
    """Apply one event. ``location`` is where its frame lies."""
    if event.__class__ is Opened:
        clock.end_epoch(state)
    if event.at_ms > state.log_ms:
        state.log_ms = event.at_ms
    if state.bases_begun:
        bases.note(state, event, location)
    FOLDS[type(event)](state, event, location)


def _base_part(state: State, event: BasePart, location: int) -> None:
    """Keep a part of a base; with the last one, fold what happened since it was begun over the whole."""
    pending = bases.collect(state, event)
    if pending is not None:
        apart = bases.set_apart(pending)
        for later, at in pending.later:
            fold(apart, later, at)
        bases.adopt(state, apart)
    bases.move(state, event)


FOLDS: dict[type[Event], Callable[[State, Any, int], None]] = {
    Opened: clock.opened,
    ClockSet: clock.clock_set,
    TopicPut: topics.topic_put,
    TopicDeleted: topics.topic_deleted,
    Appended: appends.appended,
    Deleted: topics.deleted,
    Evicted: topics.evicted,
    Claimed: leases.claimed,
    ClaimedIsolated: leases.claimed_isolated,
    Begun: leases.begun,
    Returned: leases.returned,
    Lost: leases.lost,
    Acked: leases.acked,
    Released: leases.released,
    Extended: leases.extended,
    DeadLettered: leases.dead_lettered,
    Redriven: leases.redriven,
    RouterPut: routers.router_put,
    RouterDeleted: routers.router_deleted,
    RouterMoved: routers.router_moved,
    Carried: rewriting.carried,
    TopicCarried: rewriting.topic_carried,
    StateCarried: rewriting.state_carried,
    BaseBegun: bases.begun,
    BasePart: _base_part,
}
