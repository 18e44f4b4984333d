"""Remove records from the counts of their topic and of the broker."""

from __future__ import annotations

from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["lighten", "remove"]


def remove(state: State, topic: Topic, runs: list[int], *, records: int, size: int) -> None:
    """Remove records for good, also those under a lease."""
    for lo, n in zip(runs[::2], runs[1::2], strict=True):
        if topic.queue is not None:
            topic.queue.forget_range(lo, lo + n)
        topic.bury(lo, lo + n)
    if topic.queue is not None and not topic.queue.delays.by_wall:
        state.wall_queues.discard(topic.id)
    topic.count -= records
    if topic.queue is not None:
        state.jobs -= records
    lighten(state, topic, size)
    if topic.tags is not None:
        topic.tags.sweep(2 * records)


def lighten(state: State, topic: Topic, size: int) -> None:
    """Take ``size`` bytes off a topic: all of them once it is empty, and never more than it has, because the weight of
    records in a damaged frame is a guess.
    """
    size = min(size, topic.bytes) if topic.count else topic.bytes
    topic.bytes -= size
    state.live_bytes -= size
