"""Fold the clock: the opening of the log, and a wall clock that moved against log time."""

from __future__ import annotations

from tenure.core.events import ClockSet, Opened
from tenure.core.state.state import State

__all__ = ["clock_set", "end_epoch", "opened"]


def end_epoch(state: State) -> None:
    """Let time pass up to the end of the log, before the event that opens it again changes what a deadline means.

    A lease that isolates and ran out by then did so while a broker had the log open, and its jobs are lost. One that
    runs out later says nothing about its worker. So a replay judges each of them as the broker did.
    """
    for topic in state.by_id.values():
        state.pass_time(topic, state.log_ms)


def opened(state: State, event: Opened, location: int) -> None:
    state.epoch = event.epoch  # first: what ran out since the last event is judged by this opening
    _set_offset(state, event.at_ms, event.wall_offset_ms)
    state.leases_given = 0
    state.boot_id, state.boot_ms, state.opened_ms = event.boot_id, event.boot_ms, event.at_ms


def clock_set(state: State, event: ClockSet, location: int) -> None:
    _set_offset(state, event.at_ms, event.wall_offset_ms)


def _set_offset(state: State, at_ms: int, wall_offset_ms: int) -> None:
    waiting = [(topic, topic.queue) for topic_id in sorted(state.wall_queues) if (topic := state.by_id[topic_id]).queue]
    for topic, queue in waiting:
        if at_ms >= queue.next_change_ms:
            state.pass_time(topic, at_ms)
    state.wall_offset_ms = wall_offset_ms
    for _, queue in waiting:  # a plan that is too early does no harm: time passes, and it is made again
        by_wall = queue.delays.by_wall
        if by_wall:
            queue.next_change_ms = min(queue.next_change_ms, (by_wall.first >> 64) - wall_offset_ms)
