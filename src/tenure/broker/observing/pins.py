"""Pins and time marks, for a reader of the log in another process: the log is kept for it and shows the time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tenure.core.events import ClockSet
from tenure.errors import Closed, Overloaded

if TYPE_CHECKING:
    from tenure.broker.engine import Engine

__all__ = ["Pin", "mark_time"]


class Pin(NamedTuple):
    """A request to keep the log from ``batch`` on, while that takes no more than ``bytes_max`` beyond what is kept
    anyway.
    """

    batch: int
    bytes_max: int


def mark_time(engine: Engine, marked: int) -> int:
    """End every lease that has expired, and log the time where any did since ``marked`` expiries.

    Expiry is a rule and no event: in a log without new events nothing shows that a deadline has passed. Where a queue
    has more than one step ends, the time is logged after that. Return the count of expiries that are marked now.
    """
    now = engine.now()
    for topic in engine.state.by_id.values():
        if topic.queue is not None and now >= topic.queue.next_change_ms:
            engine.state.advance(topic, now)
    if engine.metrics.expired != marked and not engine.state.behind and not engine.state.awaited:
        with suppress(Closed, Overloaded):  # no room: the next one tries again
            engine.commit(ClockSet(now, engine.state.wall_offset_ms))
            return engine.metrics.expired
    return marked
