"""The jobs of a queue to their verdicts: by its one task, or by the task of each job's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tenure.worker.backends.backend import Backend
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware
from tenure.worker.runtime.delivery import Executor, Handling, Settle, failures_of, told
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.typed_queue import TypedQueue, UnknownType
from tenure.worker.verdict import AckPolicy, Verdict, verdict_of

__all__ = ["Handles", "TypedHandling", "handling_for"]


class Handles(Protocol):
    """What becomes of each job of a queue."""

    async def handle(self, job: HeldJob) -> Verdict | None:
        """Run the handler of one job and return what the broker is to be told; None for nothing."""
        ...


class TypedHandling:
    """A handling for each task of a typed queue."""

    def __init__(
        self,
        queue: TypedQueue,
        handlings: dict[Handler[Any], Handling],
        *,
        side: Backend,
        middlewares: Sequence[Middleware],
    ) -> None:
        self._queue = queue
        self._handlings = handlings
        self._side = side
        self._middlewares = middlewares

    async def handle(self, job: HeldJob) -> Verdict | None:
        try:
            handling = self._handlings[self._queue.task_of(job)]
        except UnknownType as error:
            return await self._refused(job, error)
        return await handling.handle(job)

    async def _refused(self, job: HeldJob, error: UnknownType) -> Verdict | None:
        """Give a job back that has no task here, as if its handler had failed: during a deployment a newer worker may
        know its type, and a job that nobody knows becomes a dead letter once its retries are spent.
        """
        ctx = Context(job, next(iter(self._handlings.values())))
        ctx.logger.warning("given back: %s", error)
        options = self._queue.options
        failures = await failures_of(job, self._side, retries=options.retries)
        if failures is None:
            return None
        verdict = verdict_of(
            error,
            AckPolicy.NACK_ON_ERROR,
            seq=job.seq,
            failures=failures,
            retries=options.retries,
            backoff=options.backoff,
        )
        return told(self._middlewares, ctx, verdict)


def handling_for(
    task: Handler[Any],
    *,
    side: Backend,
    timing: Timing,
    executor: Executor,
    settle: Settle,
    middlewares: Sequence[Middleware] = (),
) -> Handles:
    """Return what handles the jobs of a queue."""
    handlings = {
        member: Handling(member, side=side, timing=timing, executor=executor, settle=settle, middlewares=middlewares)
        for member in task.tasks
    }
    if isinstance(task, TypedQueue):
        return TypedHandling(task, handlings, side=side, middlewares=middlewares)
    return handlings[task]
