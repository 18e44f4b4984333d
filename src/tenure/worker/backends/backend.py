"""`Backend`: who keeps the jobs of a task, as the runtime sees it. The broker is one, a Redis with timers another.

A side says where jobs come from, and how they are extended and settled. Slots, handlers, policies, heartbeats, the
repeating of verdicts and the drain are the same over all of them, and know none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tenure.client.batching.acker import Acker
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed, Source

__all__ = ["Backend"]


class Backend(Protocol):
    """The jobs of one queue, or the timers of one topic."""

    @property
    def link(self) -> Link:
        """What is known about the way to it, together with the other sides that take the same way."""
        ...

    async def declare(self) -> None:
        """Make it what the task needs. Raises Overloaded, Closed or Indeterminate where it cannot be reached."""
        ...

    def source(self, feed: Feed) -> Source:
        """The flow of its jobs into ``feed``."""
        ...

    async def take(self, count_max: int, *, lease_ms: int) -> list[HeldJob]:
        """Claim what is due now, without waiting; each job says for how long in its ``lease_ms``."""
        ...

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        """Let the leases run ``lease_ms`` from now; returns those jobs that are not ours any more.

        Raises NotFound where all of them are gone.
        """
        ...

    def acker(self, *, batch_max: int, pending_max: int, requests_max: int) -> Acker:
        """What gathers the verdicts."""
        ...

    async def failures(self, job: HeldJob) -> int:
        """How often the job has failed, this time included. Raises NotFound where it is gone."""
        ...
