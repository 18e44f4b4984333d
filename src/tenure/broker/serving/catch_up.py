"""Topics that are behind: many of their leases, delays or TTLs ended together, more than one turn should end.

They are worked through step by step. A command that needs the present of such a topic waits, in order, until time has
passed there up to its arrival, and is judged by that: an ack that came in time is in time, whatever ended before it.
Those on all other topics go on, and so do appends and looks, which show how far it has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tenure.broker.engine import Engine
from tenure.core.decide.catch_up import catch_up
from tenure.core.state.topic import Topic
from tenure.turns import Turns

__all__ = ["CatchUp"]


class _Waiting(NamedTuple):
    """A command that waits for its topic: when it came, in log time, and how it is run."""

    came_ms: int
    run: Callable[[int], None]


class CatchUp:
    """The topics that catch up, each with the line of the commands that wait for it; ``waiting`` counts them all."""

    def __init__(self, engine: Engine, turns: Turns) -> None:
        self._engine = engine
        self._turns = turns
        self._lines: dict[Topic, deque[_Waiting]] = {}
        self.waiting = 0

    def begin(self) -> None:
        """Work through the topics that are behind, those that are not at it yet."""
        for topic in self._engine.state.behind:
            if topic not in self._lines:
                self._lines[topic] = deque()
                self._turns.add(partial(self._step, topic))

    def then(self, topic: Topic, run: Callable[[int], None]) -> None:
        """Call ``run``, which raises nothing, with the time that it is now when this topic has caught up with that
        time, after those that wait for it already.
        """
        self._engine.state.behind[topic] = None
        self._engine.state.awaited.add(topic)
        self.begin()
        self._lines[topic].append(_Waiting(self._engine.now(), run))
        self.waiting += 1

    def _step(self, topic: Topic) -> bool:
        """Take one step of a topic towards the arrival of the command that waits first, and run that once it is there.
        While one waits the topic is awaited: what comes meanwhile waits after it.
        """
        engine, line = self._engine, self._lines[topic]
        state, until_ms = engine.state, line[0].came_ms if line else engine.now()
        if topic in state.behind or line:
            if state.by_id.get(topic.id) is topic and not state.step_time(topic, until_ms):
                return False
            if not engine.carry_out(catch_up(state, topic, until_ms, engine.reader)).reply:
                return False
            state.behind.pop(topic, None)
            engine.changed_topics.add(topic)
        if line:
            self._run_first(topic, line)
        if line or topic in state.behind:
            return False
        del self._lines[topic]
        return True

    def _run_first(self, topic: Topic, line: deque[_Waiting]) -> None:
        self.waiting -= 1
        first = line.popleft()
        if not line:
            self._engine.state.awaited.discard(topic)
        first.run(first.came_ms)
