"""A topic's priority: who is served first where there is more to do than one turn, or the room that is left, allows."""

from __future__ import annotations

from typing import Final

from tenure.contract.config import PRIORITY_MAX
from tenure.core.state.topic import Topic

__all__ = ["AUTO_MAX", "effective_priority", "share_of"]

AUTO_MAX: Final = 100
"""The priority of a topic that was read this minute, where it is derived."""
_MINUTE_MS: Final = 60_000


def effective_priority(topic: Topic, wall_ms: int) -> int:
    """Return what was set; else, where it may be derived, 100 for a topic read this minute, one less for each minute
    since, and 0 in the end.
    """
    config = topic.config
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or not topic.last_read_ms:
        return 0
    return max(0, AUTO_MAX - (wall_ms - topic.last_read_ms) // _MINUTE_MS)


def share_of(limit: int, priority: int | None) -> int:
    """Return how much of a limit that all topics share one of this priority may use up.

    All of it from priority 0 on, half of it at the lowest: so the room that is left last goes to those before it.
    """
    if priority is None or priority >= 0:
        return limit
    return limit * (2 * PRIORITY_MAX + priority) // (2 * PRIORITY_MAX)
