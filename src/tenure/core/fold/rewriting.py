"""Fold what trimming rewrites at the tail: records, the base of a topic, the facts of the whole broker."""

from __future__ import annotations

from tenure.core.events import Carried, StateCarried, TopicCarried
from tenure.core.state.frame_index import FramePlace, replace_frames
from tenure.core.state.snapshot import load_state, load_topic
from tenure.core.state.state import State

__all__ = ["carried", "rest_of", "state_carried", "topic_carried"]


def carried(state: State, event: Carried, location: int) -> None:
    topic = state.by_id.get(event.topic) or state.orphan(event.topic)
    frame = (event.lo, location, event.size_bytes, event.ats_ms[-1])
    replace_frames(topic.frame_index, event.lo, event.hi, frame, rest=rest_of(event))
    state.note_holder(location >> 32, event.topic)


def rest_of(event: Carried) -> FramePlace | None:
    """Return the place of what was left of a frame that was rewritten in part; None where nothing was."""
    if not event.rest:
        return None
    location, size, at_ms = event.rest
    return event.hi, location, size, at_ms


def topic_carried(state: State, event: TopicCarried, location: int) -> None:
    """Move the base of a topic; a replay that does not know the topic yet takes its state from here."""
    topic = state.by_id.get(event.topic)
    if topic is None:
        topic = load_topic(event.snapshot)
        orphan = state.orphans.pop(event.topic, None)
        if orphan is not None:
            topic.frame_index = orphan.frame_index
            topic.drop_dead_segments()
        state.add_topic(topic)
    topic.base = location >> 32
    state.note_holder(topic.base, topic.id)


def state_carried(state: State, event: StateCarried, location: int) -> None:
    load_state(state, event.snapshot)
