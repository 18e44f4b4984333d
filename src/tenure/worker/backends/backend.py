"""`Backend`: the interface to what keeps the jobs of a task: a queue of a broker, or a topic of timers in Redis.

A backend takes, extends and settles jobs. Slots, handlers, policies, heartbeats, the retry of verdicts and the drain
are the same for all backends, and depend on none.
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
        """The state of the connection, shared with other backends on the same server."""
        ...

    @property
    def isolates(self) -> bool:
        """Whether a lease that ends without a verdict makes its job a suspect, so that a worker that is alive says
        something of each.
        """
        ...

    async def declare(self) -> None:
        """Create or complete the queue as the task declares it. Raises Overloaded, Closed or Indeterminate where it
        cannot be reached.
        """
        ...

    def source(self, feed: Feed) -> Source:
        """Return the source that delivers its jobs into ``feed``."""
        ...

    async def take(self, count_max: int, *, lease_ms: int) -> list[HeldJob]:
        """Claim jobs that are due now, without waiting; the ``lease_ms`` of each job is the length of its lease."""
        ...

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        """Set the leases to end ``lease_ms`` from now; returns the jobs that are no longer ours.

        Raises NotFound where the queue is gone, and all jobs with it.
        """
        ...

    async def begin(self, job: HeldJob) -> None:
        """Log that the handler of a suspect starts. Raises LeaseLost, and Conflict where its group must not begin it
        now.
        """
        ...

    def acker(self, *, batch_max: int, pending_max: int, requests_max: int) -> Acker:
        """Return an acker, which sends verdicts in batches."""
        ...

    async def failures(self, job: HeldJob) -> int:
        """Return how often the job has failed, this time included. Raises NotFound where it is gone."""
        ...
