"""Tallies: what each kind of event adds to the totals, to the meters of its queue, and to the changed topics.

A tally sees the event before the fold does, while the state still shows what it is about to change. Appends and puts,
which may be about a topic that does not exist yet, are counted by the engine after their fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tenure.core.events import (
    Acked,
    Begun,
    Claimed,
    ClaimedIsolated,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Lost,
    Redriven,
    Released,
    Returned,
    RouterMoved,
    TopicDeleted,
)
from tenure.core.state.ranges import count, each

if TYPE_CHECKING:
    from tenure.broker.engine import Engine

__all__ = ["TALLIES"]


def _claimed(engine: Engine, event: Claimed) -> None:
    state = engine.state
    topic = state.by_id[event.topic]
    topic.last_read_ms = event.at_ms + state.wall_offset_ms
    engine.totals.claimed += engine.meters.claimed(topic, event)


def _acked(engine: Engine, event: Acked) -> None:
    topic = engine.state.by_id[event.topic]
    engine.totals.acked += engine.meters.acked(topic, event)
    engine.changed_topics.add(topic)


def _released(engine: Engine, event: Released) -> None:
    released = engine.meters.released(event)
    if event.cause == "nack":
        engine.totals.nacked += released
    engine.changed_topics.add(engine.state.by_id[event.topic])


def _begun(engine: Engine, event: Begun) -> None:
    engine.totals.begun += 0 if event.is_over else count(event.runs)


def _returned(engine: Engine, event: Returned) -> None:
    engine.totals.returned += count(event.runs)
    engine.changed_topics.add(engine.state.by_id[event.topic])


def _lost(engine: Engine, event: Lost) -> None:
    engine.changed_topics.add(engine.state.by_id[event.topic])


def _extended(engine: Engine, event: Extended) -> None:
    if event.cause == "extend":
        engine.totals.extended += count(event.runs)
    topic = engine.state.by_id[event.topic]
    if topic.queue is not None and event.deadline_ms < topic.queue.next_change_ms:
        engine.changed_topics.add(topic)  # it comes before all other deadlines, so waiting callers need a new alarm


def _dead_lettered(engine: Engine, event: DeadLettered) -> None:
    topic = engine.state.by_id[event.topic]
    assert topic.queue is not None
    held = topic.queue.in_flight
    engine.totals.dead_lettered += count(event.runs)
    engine.totals.nacked += sum(seq in held for seq in each(event.runs))  # only a nack buries what is held
    engine.changed_topics.add(topic)


def _redriven(engine: Engine, event: Redriven) -> None:
    engine.changed_topics.add(engine.state.by_id[event.topic])


def _deleted(engine: Engine, event: Deleted) -> None:
    engine.totals.deleted += event.count
    engine.changed_topics.add(engine.state.by_id[event.topic])


def _evicted(engine: Engine, event: Evicted) -> None:
    engine.totals.evicted += event.count


def _router_moved(engine: Engine, event: RouterMoved) -> None:
    engine.totals.forwarded += event.forwarded
    engine.totals.produced -= event.forwarded  # the append in the same batch counts its copies
    dest = engine.state.by_id.get(event.dest) if event.missed else None
    if dest is not None:  # the seq that marks the loss for its readers becomes durable as a record does
        engine.note_head(dest, dest.head_seq + 1)


def _topic_deleted(engine: Engine, event: TopicDeleted) -> None:
    engine.meters.forget(event.topic)
    engine.changed_topics.add(engine.state.by_id[event.topic])


TALLIES: Final[dict[type[Event], Callable[[Engine, Any], None]]] = {
    Claimed: _claimed,
    ClaimedIsolated: _claimed,
    Begun: _begun,
    Returned: _returned,
    Lost: _lost,
    Acked: _acked,
    Released: _released,
    Extended: _extended,
    DeadLettered: _dead_lettered,
    Redriven: _redriven,
    Deleted: _deleted,
    Evicted: _evicted,
    RouterMoved: _router_moved,
    TopicDeleted: _topic_deleted,
}
