"""Fold the base of a topic that was logged in parts, some time after the moment that it shows.

Only a replay that does not know the topic needs it. From `BaseBegun` on, such a replay collects the events of the topic
beside its frame index; after the last part it folds them over the snapshot, in a state of their own.
"""

from __future__ import annotations

from tenure.core.events import (
    BaseBegun,
    BasePart,
    ClockSet,
    Event,
    Opened,
    RouterMoved,
    TopicCarried,
    TopicDeleted,
)
from tenure.core.state.pending_base import PendingBase
from tenure.core.state.snapshot import load_topic
from tenure.core.state.state import State

__all__ = ["adopt", "begun", "collect", "move", "note", "set_apart"]


def begun(state: State, event: BaseBegun, location: int) -> None:
    if event.topic not in state.by_id:
        state.orphan(event.topic)
        state.bases_begun[event.topic] = PendingBase(state.wall_offset_ms, state.epoch)


def note(state: State, event: Event, location: int) -> None:
    """Keep an event for the bases that it is folded over later; forget those that will never be complete."""
    if isinstance(event, Opened):  # a base does not outlive the process that logs it
        state.bases_begun.clear()
    elif isinstance(event, (TopicCarried, TopicDeleted)):
        state.bases_begun.pop(event.topic, None)
    elif isinstance(event, ClockSet):
        for pending in state.bases_begun.values():
            pending.later.append((event, location))
    elif not isinstance(event, (BaseBegun, BasePart)):
        topic_id = event.dest if isinstance(event, RouterMoved) else event.topic
        if topic_id in state.bases_begun:
            state.bases_begun[topic_id].later.append((event, location))


def collect(state: State, event: BasePart) -> PendingBase | None:
    """Keep a part; return the whole with the last one."""
    pending = state.bases_begun.get(event.topic)
    if pending is None:
        return None
    pending.parts.append(event.data)
    return state.bases_begun.pop(event.topic) if event.is_last else None


def set_apart(pending: PendingBase) -> State:
    """Return a state with nothing but the topic, as it was when its base was begun."""
    state = State()
    state.wall_offset_ms, state.epoch = pending.wall_offset_ms, pending.epoch
    state.add_topic(load_topic(b"".join(pending.parts)))
    return state


def adopt(state: State, apart: State) -> None:
    """Move the topic from the state of its own to where it belongs; its frames were indexed here all the time."""
    [topic] = apart.by_id.values()
    topic.frame_index = state.orphan(topic.id).frame_index
    del state.orphans[topic.id]
    topic.drop_dead_segments()
    state.add_topic(topic)


def move(state: State, event: BasePart) -> None:
    """Move the base of a topic to where the parts were begun."""
    topic = state.by_id.get(event.topic)
    if topic is not None and event.is_last:
        topic.base = event.segment
        state.note_holder(topic.base, topic.id)
