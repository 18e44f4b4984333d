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
    Carried,
    Claimed,
    ClockSet,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Opened,
    Redriven,
    Released,
    RouterDeleted,
    RouterMoved,
    RouterPut,
    StateCarried,
    TopicCarried,
    TopicDeleted,
    TopicPut,
)
from tenure.core.fold import appends, clock, leases, rewriting, routers, topics
from tenure.core.state.state import State

__all__ = ["FOLDS", "fold"]


def fold(state: State, event: Event, location: int = 0) -> None:
    """Apply one event. ``location`` is where its frame lies."""
    if event.at_ms > state.log_ms:
        state.log_ms = event.at_ms
    FOLDS[type(event)](state, event, location)


FOLDS: dict[type[Event], Callable[[State, Any, int], None]] = {
    Opened: clock.opened,
    ClockSet: clock.clock_set,
    TopicPut: topics.topic_put,
    TopicDeleted: topics.topic_deleted,
    Appended: appends.appended,
    Deleted: topics.deleted,
    Evicted: topics.evicted,
    Claimed: leases.claimed,
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
}
