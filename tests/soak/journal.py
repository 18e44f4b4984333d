"""`Journal`: what the clients of a run were told, in milliseconds of one clock that never jumps.

Answers name wall times of the server, whose wall the nemesis moves. Every shift is many times longer than a run, so
only one of those that were ever set puts an answered time inside the run: that one was in force.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tenure.client import Job
from tenure.testing import History

__all__ = ["EARLY_MS", "ROUNDING_MS", "Journal", "id_of"]

EARLY_MS: Final = 100
"""How long before it was sent an end of a lease is recorded: the server's clock may stand for one turn of its loop."""
ROUNDING_MS: Final = 25
"""How far an answered deadline may be off: the server adjusts its wall by steps of 20 ms."""
_SLACK_MS: Final = 60_000
"""How far outside the run an answered time may seem to be; much shorter than the shortest shift."""


class Journal:
    """A history, the shifts of the server's wall, and what is wrong without being an anomaly of a history."""

    def __init__(self) -> None:
        self.history = History()
        self.shifts: list[int] = [0]
        self.problems: list[str] = []
        self.depth: dict[str, int] = {}
        self.delay_ms: dict[str, int] = {}
        """How long after its append a job may be delivered, by its id; without an entry, at once."""
        self._claimed_ms: dict[tuple[str, str, int], int] = {}
        self._epoch_ms = time.time_ns() // 1_000_000 - _boot_ms()
        self.start_ms = self.now_ms()

    def now_ms(self) -> int:
        """Time since boot, on the axis of an unshifted wall."""
        return _boot_ms() + self._epoch_ms

    def early_ms(self) -> int:
        """The time to record for a call that is about to be sent and may end a lease."""
        return self.now_ms() - EARLY_MS

    def real_ms(self, wall_ms: int, *, ahead_ms: int = 0) -> int:
        """Return a time that the server answered without the shift of its wall; ``ahead_ms`` lies in the future."""
        first, last = self.start_ms - _SLACK_MS, self.now_ms() + _SLACK_MS
        for shift_ms in self.shifts:
            if first <= wall_ms - ahead_ms - shift_ms <= last:
                return wall_ms - shift_ms
        self.problems.append(f"a wall time of {wall_ms} (less {ahead_ms}) fits none of the shifts {self.shifts}")
        return wall_ms

    def delivered(self, topic: str, jobs: Sequence[Job], *, node: str, lease_ms: int) -> None:
        """Record the jobs of a claim that was just answered.

        A durable lease may be answered with a deadline that was moved meanwhile, which happens after a tenth of the
        lease at the earliest: its claim came at least ``EARLY_MS`` before its answer.
        """
        received_ms = self.now_ms()
        for job in jobs:
            deadline, id = self.real_ms(job.deadline or 0, ahead_ms=lease_ms), id_of(job.data)
            at = deadline - lease_ms
            at = min(at, received_ms) if at <= received_ms + ROUNDING_MS else received_ms - EARLY_MS
            self._claimed_ms[topic, job.lease_id or "", job.seq] = at
            due_ms = self.real_ms(job.ts) + self.delay_ms.get(id, 0)
            if at < due_ms - 2 * ROUNDING_MS:
                self.problems.append(f"{id} was delivered at {at}, before {due_ms}")
            self.history.delivery(
                topic,
                job.seq,
                id,
                lease=job.lease_id or "",
                node=node,
                deliveries=job.deliveries,
                at=at,
                deadline=deadline - ROUNDING_MS,
                tries=job.tries,
            )

    def claimed_ms(self, topic: str, job: Job) -> int:
        """Return the time that was recorded for the claim of a job."""
        return self._claimed_ms[topic, job.lease_id or "", job.seq]


def id_of(data: bytes | None) -> str:
    """Return the id in a payload of ours, which is a JSON text of the id and a padding."""
    return bytes(data or b"").decode().strip('".')


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
