"""`Extender`: extend the leases of jobs, and move their deadlines on our clock as the broker moved them on its own.

The broker sets a deadline to its own now plus the time asked for, so a later extend for less takes back an earlier one
for more. Two rules keep our deadline at or before the broker's:

- Every extend asks for the longest that was ever asked for its job, and never for less than the task's lease.
- Where two extends of a job overlap, the broker may apply them in either order. Then only the task's lease is counted
  on, which is the least that any of them asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenure.worker.backends.backend import Backend
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing

__all__ = ["Extender"]


class Extender:
    """The extends of one task's jobs, whose lease is ``lease_ms``."""

    def __init__(self, backend: Backend, *, lease_ms: int, timing: Timing) -> None:
        self._backend = backend
        self._lease_ms = lease_ms
        self._timing = timing

    def length_ms(self, job: HeldJob) -> int:
        """Return for how long a job is extended."""
        return max(job.lease_ms, self._lease_ms)

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        """Set the leases to end ``lease_ms`` from now, at least `length_ms` of each; return the jobs that are no longer
        ours.

        Raises what the backend raises; the deadlines are then unchanged.
        """
        asked_ms = self._timing.now_ms()
        numbers = [_begin(job) for job in jobs]
        try:
            gone = await self._backend.extend(jobs, lease_ms=lease_ms)
        finally:
            for job in jobs:
                job.extends_open -= 1
        skipped = set(gone)
        for job, number in zip(jobs, numbers, strict=True):
            if job not in skipped:
                is_alone = number == job.extends_begun
                job.deadline_ms = asked_ms + (lease_ms if is_alone else self._lease_ms)
                job.beat_ms = asked_ms + self._lease_ms // 3
        return gone

    async def extend_one(self, job: HeldJob, *, lease_ms: int) -> bool:
        """Set the lease of a job to end ``lease_ms`` from now, or the longest asked for before; False where it is gone.

        A heartbeat in flight at the same time may shorten the lease again: then the extend is sent a second time.
        """
        lease_ms = max(lease_ms, self.length_ms(job))
        for _ in range(2):
            asked_ms = self._timing.now_ms()
            if await self.extend([job], lease_ms=lease_ms):
                return False
            job.lease_ms = lease_ms
            if job.deadline_ms >= asked_ms + lease_ms:
                break
        return True


def _begin(job: HeldJob) -> int:
    """Count an extend of a job; return its number, or 0 where another one is in flight."""
    job.extends_begun += 1
    job.extends_open += 1
    return job.extends_begun if job.extends_open == 1 else 0
