"""`TypedDelivery`: deliver the jobs of a queue to the task of each job's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.worker.backends.backend import Backend
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware
from tenure.worker.processes.executors import Executor
from tenure.worker.runtime.delivery import Delivery, Settle, failures_of, report_verdict
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.typed_queue import TypedQueue, UnknownType
from tenure.worker.verdict import AckPolicy, Verdict, verdict_of

__all__ = ["TypedDelivery", "delivery_for"]


class TypedDelivery:
    """A `Delivery` for each task of a typed queue, chosen by the type of the job."""

    def __init__(
        self,
        queue: TypedQueue,
        deliveries: dict[Handler[Any], Delivery],
        *,
        backend: Backend,
        middlewares: Sequence[Middleware],
    ) -> None:
        self._queue = queue
        self._deliveries = deliveries
        self._backend = backend
        self._middlewares = middlewares

    async def handle(self, job: HeldJob) -> Verdict | None:
        """Run the task of the job's type and return the verdict to send; None for no verdict."""
        try:
            delivery = self._deliveries[self._queue.task_of(job)]
        except UnknownType as error:
            return await self._give_back(job, error)
        return await delivery.handle(job)

    async def _give_back(self, job: HeldJob, error: UnknownType) -> Verdict | None:
        """Nack a job whose type has no task here, as after a failure: during a deployment a newer worker may know the
        type; a type that no worker knows becomes a dead letter once its retries are spent.
        """
        ctx = Context(job, next(iter(self._deliveries.values())))
        ctx.logger.warning("given back: %s", error)
        options = self._queue.options
        failures = await failures_of(job, self._backend, retries=options.retries)
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
        return report_verdict(self._middlewares, ctx, verdict)


def delivery_for(
    task: Handler[Any],
    *,
    backend: Backend,
    timing: Timing,
    executor: Executor,
    settle: Settle,
    middlewares: Sequence[Middleware] = (),
) -> Delivery | TypedDelivery:
    """Return the delivery for the jobs of a queue: of its one task, or by type."""
    deliveries = {
        member: Delivery(
            member, backend=backend, timing=timing, executor=executor, settle=settle, middlewares=middlewares
        )
        for member in task.tasks
    }
    if isinstance(task, TypedQueue):
        return TypedDelivery(task, deliveries, backend=backend, middlewares=middlewares)
    return deliveries[task]
