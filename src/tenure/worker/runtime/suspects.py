"""Suspects: jobs whose worker was lost, kept apart so that the one that ends its worker takes few others along.

A process for suspects runs up to `suspects_max` that were lost once together: most of them only stood beside the
culprit. One that was lost twice runs alone. Both kinds wait in one line, so that neither starves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tenure.worker.runtime.begin import ALONE_LOST_COUNT
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.pace import Share, Slots
from tenure.worker.runtime.timing import Timing
from tenure.worker.settings import WorkerSettings

__all__ = ["SuspectNotices", "SuspectSlots"]


class SuspectSlots(Slots):
    """The slots of a process for suspects, over all of its tasks: first come, first run."""

    prefetches = False

    def __init__(self, *, timing: Timing, settings: WorkerSettings) -> None:
        super().__init__(settings.suspects_max)
        self._timing = timing
        self._wait_ms = settings.suspects_wait_ms
        self._idle_ms = settings.suspects_idle_ms
        self._line: dict[HeldJob, tuple[Share, int]] = {}  # with the time since when it waits
        self._is_alone = False
        self._known: dict[str, int] = {}
        self._busy_ms = timing.now_ms()

    # The line

    def enter(self, share: Share, jobs: Sequence[HeldJob]) -> None:
        now_ms = self._timing.now_ms()
        for job in jobs:
            self._line[job] = (share, now_ms)

    def room(self) -> int:
        """Return how many more can run beside those that run and wait; none while one runs alone or is to."""
        waiting = [job for job, _, _ in self._waiting()]
        if self._is_alone or any(map(_runs_alone, waiting)):
            return 0
        return max(0, self._slots_max - self._taken - len(waiting))

    def _waiting(self) -> Iterator[tuple[HeldJob, Share, int]]:
        """Yield the jobs in the line, and drop those that were lost or given back meanwhile."""
        for job, (share, since_ms) in list(self._line.items()):
            if job.lost or job.settled:
                del self._line[job]
            else:
                yield job, share, since_ms

    # Running

    def fill(self, share: Share) -> None:
        while self._start_next():
            pass

    def _start_next(self) -> bool:
        """Start the first job in the line whose task can run it, unless it does not fit beside those that run."""
        for job, share, _ in self._waiting():
            if share.ready():
                if not self._fits(job):
                    return False
                del self._line[job]
                self._taken += 1
                self._is_alone = _runs_alone(job)
                share.start()
                return True
        return False

    def _fits(self, job: HeldJob) -> bool:
        if self._is_alone or _runs_alone(job):
            return self._taken == 0
        return self._taken < self._slots_max

    def free(self) -> None:
        super().free()
        self._is_alone = False
        self._busy_ms = self._timing.now_ms()
        self._report_room()

    def _report_room(self) -> None:
        for share in self._shares:
            share.freed()

    # Time

    async def return_overdue(self) -> None:
        """Give back jobs that waited for `suspects_wait_ms`, as behind one that runs long: others take them then."""
        while True:
            now_ms = self._timing.now_ms()
            due_ms = min(
                (since_ms + self._wait_ms for _, _, since_ms in self._waiting()), default=now_ms + self._wait_ms
            )
            if due_ms > now_ms:
                await self._timing.sleep_ms(due_ms - now_ms)
                continue
            for job, share, since_ms in self._waiting():
                if since_ms + self._wait_ms <= now_ms:
                    share.give_back(job)
            self._report_room()

    async def until_idle(self) -> None:
        """Return once there was no suspect for `suspects_idle_ms`."""
        while True:
            now_ms = self._timing.now_ms()
            if self._taken or any(self._known.values()) or any(True for _ in self._waiting()):
                self._busy_ms = now_ms
            left_ms = self._busy_ms + self._idle_ms - now_ms
            if left_ms <= 0:
                return
            await self._timing.sleep_ms(min(left_ms, max(1, self._idle_ms // 4)))

    def hear(self, queue: str, count: int) -> None:
        """Note how many suspects of a queue wait at the broker."""
        self._known[queue] = count


class SuspectNotices:
    """Asks the supervisor for a process that runs suspects, over the pipe ``fd``; does nothing without one."""

    def __init__(self, fd: int | None, *, timing: Timing, settings: WorkerSettings) -> None:
        self._fd = fd
        self._timing = timing
        self._again_ms = settings.suspects_notice_ms
        self._asked_ms: int | None = None

    def hear(self, queue: str, count: int) -> None:
        """Ask where suspects of a queue wait, unless that was done just now."""
        if not count or self._fd is None:
            return
        now_ms = self._timing.now_ms()
        if self._asked_ms is None or now_ms - self._asked_ms >= self._again_ms:
            self._asked_ms = now_ms
            with suppress(OSError):  # the pipe is full, or the supervisor is gone
                os.write(self._fd, b"!")


def _runs_alone(job: HeldJob) -> bool:
    return job.lost_count >= ALONE_LOST_COUNT
