"""What a broker does for a reader of its log in another process: it keeps the log for it, and shows it the time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tenure.core.events import ClockSet
from tenure.errors import Closed, Overloaded

if TYPE_CHECKING:
    from tenure.broker.engine import Engine

__all__ = ["Pin", "mark_time"]


class Pin(NamedTuple):
    """Keep the log from ``batch`` on, while that takes no more than ``bytes_max`` beyond what is kept anyway."""

    batch: int
    bytes_max: int


def mark_time(engine: Engine, marked: int) -> int:
    """End every lease that has run out, and note the time in the log where any did since ``marked`` expiries.

    Expiry is a rule and no event: in a log that has fallen silent nothing says that a deadline has passed. Returns the
    count of expiries that are marked now.
    """
    now = engine.now()
    for topic in engine.state.by_id.values():
        if topic.queue is not None and now >= topic.queue.next_change_ms:
            engine.state.pass_time(topic, now)
    if engine.metrics.expired != marked:
        with suppress(Closed, Overloaded):  # no room: the next one tries again
            engine.commit(ClockSet(now, engine.state.wall_offset_ms))
            return engine.metrics.expired
    return marked
