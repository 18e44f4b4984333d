"""`QueueBackend`: a queue of a broker as the backend of a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from tenure.client.batching.acker import Acker
from tenure.worker.backends.declare import declare
from tenure.worker.backends.queue_source import Isolation, QueueSource, held_job
from tenure.worker.options import TaskOptions
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["QueueBackend"]

_UNTRIED: Final = frozenset({"returned", "lost", "expired"})
"""Ends of deliveries that may have been no tries."""


class QueueBackend:
    """One queue through one client. Jobs are pushed where the task and the worker allow it and the stream opens.

    Its claims isolate: the loss of this worker is no try of the jobs that it holds. ``group`` is the same for all
    processes that die together, by default this client's node. ``suspects`` takes only jobs whose worker was lost.
    """

    isolates = True

    def __init__(
        self,
        client: AsyncClient,
        options: TaskOptions,
        *,
        link: Link,
        push: bool = True,
        group: str | None = None,
        suspects: bool = False,
    ) -> None:
        self.link = link
        self._client = client
        self._options = options
        self._queue = options.queue
        self._isolation = Isolation(group=group, suspects=suspects)
        # A process for suspects takes only as many as it can run now, which a stream cannot know.
        self._push = push and options.push and not suspects

    async def declare(self) -> None:
        await declare(self._client, self._options)

    def source(self, feed: Feed) -> QueueSource:
        return QueueSource(
            self._client,
            self._queue,
            feed=feed,
            link=self.link,
            lease_ms=self._options.lease_ms,
            push=self._push,
            isolation=self._isolation,
        )

    async def take(self, count_max: int, *, lease_ms: int) -> list[HeldJob]:
        claimed = await self._client.claim(self._queue, max_count=count_max, lease_ms=lease_ms)
        return [held_job(self._queue, job, self._client.node, lease_ms=lease_ms) for job in claimed.jobs]

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        extended = await self._client.extend(
            self._queue,
            [job.seq for job in jobs],
            node=jobs[0].node,
            lease_ids=[job.lease_id for job in jobs],
            lease_ms=lease_ms,
        )
        skipped = set(extended.skipped)
        return [job for job in jobs if job.seq in skipped] if skipped else ()

    async def begin(self, job: HeldJob) -> None:
        await self._client.begin(self._queue, job.seq, lease_id=job.lease_id, node=job.node)

    def acker(self, *, batch_max: int, pending_max: int, requests_max: int) -> Acker:
        return Acker(
            self._client, self._queue, batch_seqs_max=batch_max, pending_max=pending_max, requests_max=requests_max
        )

    async def failures(self, job: HeldJob) -> int:
        """Count the deliveries that ended in a nack with a reason, because deliveries also end in crashes and drains.
        Each try that the broker no longer remembers counts too, or a job with many retries would never end.
        """
        history = (await self._client.job(self._queue, job.seq)).history
        failed = sum(delivery.end == "nack" and bool(delivery.reason) for delivery in history)
        untried = sum(delivery.end in _UNTRIED for delivery in history)
        tried = len(history) - min(untried, job.deliveries - job.tries_count)
        return failed + max(0, job.tries_count - 1 - tried) + 1
