"""The priority of a topic: which topics are served first in a turn, and which are refused first at a limit."""

from __future__ import annotations

from typing import Final

from tenure.contract.config import PRIORITY_MAX
from tenure.core.state.topic import Topic

__all__ = ["AUTO_MAX", "effective_priority", "share_of"]

AUTO_MAX: Final = 100
"""The priority of a topic that was read this minute, where it is derived."""
_MINUTE_MS: Final = 60_000


def effective_priority(topic: Topic, wall_ms: int) -> int:
    """Return the priority that was set, else the derived one: 100 for a topic read this minute, one less for each
    minute since, and 0 in the end; 0 where it may not be derived.
    """
    config = topic.config
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or not topic.last_read_ms:
        return 0
    return max(0, AUTO_MAX - (wall_ms - topic.last_read_ms) // _MINUTE_MS)


def share_of(limit: int, priority: int | None) -> int:
    """Return how much of a shared limit a topic of this priority may use up.

    All of it from priority 0 on, half of it at the lowest: so the last room goes to topics of higher priority.
    """
    if priority is None or priority >= 0:
        return limit
    return limit * (2 * PRIORITY_MAX + priority) // (2 * PRIORITY_MAX)
