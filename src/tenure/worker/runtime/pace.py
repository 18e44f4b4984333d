"""How fast and in what order jobs start: a token bucket per task, and slots shared by weight between tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.durations import Rate

__all__ = ["Bucket", "Lane", "Slots"]

_BURST_MS: Final = 50
_WHOLE: Final = 1 - 1e-9  # sums of fractions fall a little short


class Bucket:
    """At most ``rate`` starts, evenly spread: what may start together is what falls due within 50 ms, at least one.

    Spread and not saved up, because a limit is there to protect something that does not like bursts.
    """

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self._per_ms = rate.count / rate.per_ms
        self._tokens_max = max(1.0, self._per_ms * _BURST_MS)
        self._tokens = self._tokens_max
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> float:
        """How long until a start is allowed; 0 means now."""
        self._fill(now_ms)
        return 0.0 if self._tokens >= _WHOLE else (1 - self._tokens) / self._per_ms

    def take(self) -> None:
        """One starts."""
        self._tokens -= 1

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(self._tokens_max, self._tokens + (now_ms - self._filled_ms) * self._per_ms)
        self._filled_ms = now_ms


class Lane:
    """One task's place among those that share the slots. ``ready`` says whether it would start a job now, ``start``
    does so.
    """

    def __init__(self, weight: int, *, ready: Callable[[], bool], start: Callable[[], None]) -> None:
        self.weight = weight
        self.ready = ready
        self.start = start
        self.turn = 0.0


class Slots:
    """Hands out starts. Without a limit every lane goes as far as it is ready; with one, lanes that compete get slots
    in proportion to their weights, and a lane that was idle gains nothing by it.
    """

    def __init__(self, slots_max: int = 0) -> None:
        self._slots_max = slots_max
        self._taken = 0
        self._turn = 0.0
        self._lanes: list[Lane] = []

    def add(self, lane: Lane) -> None:
        """Let a lane compete."""
        self._lanes.append(lane)

    def free(self) -> None:
        """A job that was started has ended."""
        self._taken -= 1

    def fill(self, lane: Lane) -> None:
        """Start what can be started, after something changed for ``lane`` or a slot became free."""
        if not self._slots_max:
            while lane.ready():
                self._taken += 1
                lane.start()
            return
        while self._taken < self._slots_max:
            hungry = [lane for lane in self._lanes if lane.ready()]
            if not hungry:
                return
            chosen = min(hungry, key=self._turn_of)
            self._turn = self._turn_of(chosen)
            chosen.turn = self._turn + 1 / chosen.weight
            self._taken += 1
            chosen.start()

    def _turn_of(self, lane: Lane) -> float:
        """Start-time fair queueing: where a lane stands, but never before those that went on without it."""
        return max(lane.turn, self._turn)
