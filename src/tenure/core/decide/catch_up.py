"""Let the past of a topic catch up with the time, step by step, where much of it ended together."""

from __future__ import annotations

from tenure.core.decide.decision import Payloads, Steps
from tenure.core.decide.evict import evict_over_cap, evict_over_ttl
from tenure.core.level import Level
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["catch_up"]


def catch_up(state: State, topic: Topic, now_ms: int, payloads: Payloads) -> Steps[tuple[bool, int]]:
    """Evict what is over the TTL or a cap, as much as one step does, on a topic on which time has passed up to now.

    The reply is whether nothing is left of it.
    """
    done = state.by_id.get(topic.id) is not topic or (
        not topic.is_due(now_ms)
        and (yield from evict_over_ttl(state, topic, now_ms, payloads))
        and (yield from evict_over_cap(state, topic, now_ms, payloads))
    )
    return done, Level.NOW
