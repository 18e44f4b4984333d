"""Rate limits and fair shares: a token bucket per task, and slots that tasks share by weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from tenure.durations import Rate
from tenure.worker.options import HELD_MAX
from tenure.worker.runtime.job import HeldJob

__all__ = ["Bucket", "Share", "Slots"]

_BURST_MS: Final = 50
_WHOLE: Final = 1 - 1e-9  # sums of fractions fall a little short


class Bucket:
    """At most ``rate`` starts, evenly spread: what may start together is what falls due within 50 ms, at least one.

    Starts are spread and not saved up: a rate limit usually protects a service that does not take bursts.
    """

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self._per_ms = rate.count / rate.per_ms
        self._tokens_max = max(1.0, self._per_ms * _BURST_MS)
        self._tokens = self._tokens_max
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> float:
        """Return how long until a start is allowed; 0 means now."""
        self._fill(now_ms)
        return 0.0 if self._tokens >= _WHOLE else (1 - self._tokens) / self._per_ms

    def take(self) -> None:
        """Take the token of one start."""
        self._tokens -= 1

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(self._tokens_max, self._tokens + (now_ms - self._filled_ms) * self._per_ms)
        self._filled_ms = now_ms


class Share:
    """One task's weighted share of the slots. ``ready`` returns whether it can start a job now, ``start`` starts the
    one that came first. ``freed`` is called when `Slots.room` grows, ``give_back`` with a job that waits too long.
    """

    def __init__(
        self,
        weight: int,
        *,
        ready: Callable[[], bool],
        start: Callable[[], None],
        freed: Callable[[], None] = lambda: None,
        give_back: Callable[[HeldJob], None] = lambda job: None,
    ) -> None:
        self.weight = weight
        self.ready = ready
        self.start = start
        self.freed = freed
        self.give_back = give_back
        self.turn = 0.0


class Slots:
    """The slots for running jobs. Without a limit each share starts all that is ready; with one, competing shares get
    slots in proportion to their weights, and a share that was idle gains no credit.
    """

    prefetches: ClassVar[bool] = True
    """Whether more jobs are held than run."""

    def __init__(self, slots_max: int = 0) -> None:
        self._slots_max = slots_max
        self._taken = 0
        self._turn = 0.0
        self._shares: list[Share] = []

    def add(self, share: Share) -> None:
        """Let a share compete for slots."""
        self._shares.append(share)

    def room(self) -> int:
        """Return how many more jobs may be taken from the broker, over all shares."""
        return HELD_MAX

    def enter(self, share: Share, jobs: Sequence[HeldJob]) -> None:
        """Note that jobs of a share wait for a slot."""

    def free(self) -> None:
        """Return the slot of a job that has ended."""
        self._taken -= 1

    def fill(self, share: Share) -> None:
        """Start the jobs that can start, after a change of ``share`` or after a slot became free."""
        if not self._slots_max:
            while share.ready():
                self._taken += 1
                share.start()
            return
        while self._taken < self._slots_max:
            hungry = [share for share in self._shares if share.ready()]
            if not hungry:
                return
            chosen = min(hungry, key=self._turn_of)
            self._turn = self._turn_of(chosen)
            chosen.turn = self._turn + 1 / chosen.weight
            self._taken += 1
            chosen.start()

    def _turn_of(self, share: Share) -> float:
        """Return the virtual start time of a share (start-time fair queueing), never before that of the last start."""
        return max(share.turn, self._turn)
