"""Grace: for how long the jobs of a worker stay with it after its connection was cut, if their leases isolate.

A cut says little: a proxy ends connections as it likes, and the worker runs on. So its jobs are lost only after a while
without a word of it. Each cut is a small machine of its own:

    state      heard                    ended                    time up
    waiting    kept: their deadlines    over: its successor      over: the jobs are lost
               end these leases         said what became of them
    kept       kept                     over                     kept
    over       over                     over                     over
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from tenure.broker.serving.alarms import Alarm, Alarms
from tenure.core.state.topic import Topic

__all__ = ["GRACE", "Cut", "CutState", "Graces"]


class CutState(Enum):
    """How far the grace of a cut connection has come."""

    WAITING = auto()
    KEPT = auto()
    OVER = auto()


class Cut(Enum):
    """What happens to a cut connection: its node was heard, was said to have ended, or its time is up."""

    HEARD = auto()
    ENDED = auto()
    TIME_UP = auto()


GRACE: Final[dict[tuple[CutState, Cut], tuple[CutState, bool]]] = {
    (CutState.WAITING, Cut.HEARD): (CutState.KEPT, False),
    (CutState.WAITING, Cut.ENDED): (CutState.OVER, False),
    (CutState.WAITING, Cut.TIME_UP): (CutState.OVER, True),
    (CutState.KEPT, Cut.HEARD): (CutState.KEPT, False),
    (CutState.KEPT, Cut.ENDED): (CutState.OVER, False),
    (CutState.KEPT, Cut.TIME_UP): (CutState.KEPT, False),
    (CutState.OVER, Cut.HEARD): (CutState.OVER, False),
    (CutState.OVER, Cut.ENDED): (CutState.OVER, False),
    (CutState.OVER, Cut.TIME_UP): (CutState.OVER, False),
}
"""The state after each event, and whether the jobs are lost by it."""


class _Waiting(NamedTuple):
    """A cut connection whose grace runs: the leases that were read from it, and the alarm at its end."""

    topic: Topic
    numbers: Sequence[int]
    alarm: Alarm


class Graces:
    """The cut connections whose grace runs, in ``waiting`` by node. Nothing of them is logged: a broker that is opened
    again takes the leases of before for those of workers that could not reach it.
    """

    def __init__(
        self,
        alarms: Alarms,
        *,
        now: Callable[[], int],
        grace_ms: int,
        lose: Callable[[Topic, Sequence[int]], None],
    ) -> None:
        self._alarms = alarms
        self._now = now
        self._grace_ms = grace_ms
        self._lose = lose
        self.waiting: dict[str, list[_Waiting]] = {}

    def begin(self, topic: Topic, node: str, numbers: Sequence[int]) -> None:
        """Let the grace of a connection that was cut begin, for the leases that were read from it."""
        if not numbers:
            return
        alarm = self._alarms.at(self._now() + self._grace_ms, lambda: self._step(node, Cut.TIME_UP, waiting))
        waiting = _Waiting(topic, numbers, alarm)
        self.waiting.setdefault(node, []).append(waiting)

    def heard(self, node: str) -> None:
        """Keep the jobs of a node to their deadlines: it sent a request."""
        for waiting in self.waiting.get(node, [])[:]:
            self._step(node, Cut.HEARD, waiting)

    def ended(self, node: str, topic: str) -> None:
        """Forget the cut connections of a node to a topic: its successor says what became of its jobs."""
        for waiting in self.waiting.get(node, [])[:]:
            if waiting.topic.name == topic:
                self._step(node, Cut.ENDED, waiting)

    def _step(self, node: str, event: Cut, waiting: _Waiting) -> None:
        """Take one step of a cut that is waiting. Every such step ends the wait."""
        _, is_lost = GRACE[CutState.WAITING, event]
        waiting.alarm.cancel()
        cuts = self.waiting[node]
        cuts.remove(waiting)
        if not cuts:
            del self.waiting[node]
        if is_lost:
            self._lose(waiting.topic, waiting.numbers)

    def close(self) -> None:
        """Forget all of them."""
        self.waiting.clear()
