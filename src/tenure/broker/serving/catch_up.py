"""Topics that are behind: many of their leases, delays or TTLs ended together, more than one turn should end.

They are worked through step by step. A command that needs the present of such a topic waits for that, in order; those
on all other topics go on, and so do appends and looks, which show how far it has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from tenure.broker.engine import Engine
from tenure.broker.serving.long_work import LongWork
from tenure.core.decide.catch_up import catch_up
from tenure.core.state.topic import Topic

__all__ = ["CatchUp"]


class CatchUp:
    """The topics that catch up, each with the line of the commands that wait for it; ``waiting`` counts them all."""

    def __init__(self, engine: Engine, work: LongWork) -> None:
        self._engine = engine
        self._work = work
        self._lines: dict[Topic, deque[Callable[[], None]]] = {}
        self.waiting = 0

    def begin(self) -> None:
        """Work through the topics that are behind, those that are not at it yet."""
        for topic in self._engine.state.behind:
            if topic not in self._lines:
                self._lines[topic] = deque()
                self._work.add(partial(self._step, topic))

    def then(self, topic: Topic, run: Callable[[], None]) -> None:
        """Call ``run``, which raises nothing, when this topic has caught up, after those that wait for it already."""
        self._engine.state.behind[topic] = None
        self.begin()
        self._lines[topic].append(run)
        self.waiting += 1

    def _step(self, topic: Topic) -> bool:
        """Take one step of a topic, or run one command that waited for it."""
        engine, line = self._engine, self._lines[topic]
        if topic in engine.state.behind:
            if not engine.carry_out(catch_up(engine.state, topic, engine.now(), engine.reader)).reply:
                return False
            engine.state.behind.pop(topic, None)
            engine.changed_topics.add(topic)
        if line:
            self.waiting -= 1
            line.popleft()()
        if line or topic in engine.state.behind:
            return False
        del self._lines[topic]
        return True
