"""One job from its payload to a verdict: the only path there is, for workers and for tests alike.

    decode ─► (ACK_FIRST: settle) ─► middlewares ─► executor, within the time limit ─► what was raised ─► verdict

Most jobs are async, quick and return. For these, nothing is made here but a Context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from tenure.errors import Invalid, NotFound, TenureError
from tenure.worker.backends.backend import Backend
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware, around_handler
from tenure.worker.observing.reason import exc_info_of
from tenure.worker.payload import Misfit
from tenure.worker.runtime.extender import Extender
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.time_limit import TimeLimit
from tenure.worker.runtime.timing import Timing
from tenure.worker.verdict import ACKED, AckPolicy, Verdict, VerdictKind, is_failure, verdict_of

__all__ = ["Executor", "Handling", "Settle", "failures_of", "told"]

Settle = Callable[[HeldJob, Verdict], Awaitable[bool]]
"""Tell the broker now; True once it has taken the verdict, False where the lease was lost."""


class Executor(Protocol):
    """Where handlers run."""

    def run(self, task: Handler[Any], payload: Any, ctx: Context) -> Coroutine[Any, Any, object]:
        """Run the handler and raise what it raised. Cancelling this stops it, as far as its kind can be stopped."""
        ...

    async def close(self) -> None:
        """Stop what still runs and give threads and processes back."""
        ...


class Handling:
    """What happens to each job of one task. It is the `Hands` of its jobs' contexts."""

    def __init__(
        self,
        task: Handler[Any],
        *,
        side: Backend,
        timing: Timing,
        executor: Executor,
        settle: Settle,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.task = task
        self.timing = timing
        self._settle = settle
        self._side = side
        self._extender = Extender(side, lease_ms=task.options.lease_ms, timing=timing)
        self._run = executor.run
        self._decode = task.decode
        self._middlewares = tuple(middlewares)
        self._options = task.options
        self._loop = asyncio.get_running_loop()
        limit_ms = task.options.time_limit_ms
        self._limit = None if limit_ms is None else TimeLimit(limit_ms, timing=timing)
        self._is_plain = not middlewares and self._limit is None
        self._acks_first = task.options.policy is AckPolicy.ACK_FIRST
        self._returned = None if task.options.policy is AckPolicy.MANUAL else ACKED

    async def handle(self, job: HeldJob) -> Verdict | None:
        """Run the handler of one job and return what the broker is to be told; None for nothing.

        Raises nothing of the handler's. Cancelling it cancels the handler, and no verdict comes of that.
        """
        ctx = Context(job, self)
        try:
            payload = self._decode(job.data)
        except Misfit as misfit:
            return self._told(ctx, self._unfit(misfit, ctx))
        if self._acks_first and not await self._acked_first(ctx):
            return None
        try:
            await (self._run(self.task, payload, ctx) if self._is_plain else self._guarded(payload, ctx))
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            return self._told(ctx, None)  # the handler cancelled itself: the lease simply ends
        except GeneratorExit:
            raise  # nobody waits for this coroutine any more
        except BaseException as error:  # also SystemExit and its like: one job must not end the worker of all others
            return self._told(ctx, await self._after(error, ctx))
        if self._is_plain:
            return self._returned if not (job.settled or job.lost) else None
        return self._told(ctx, await self._after(None, ctx))

    # What a Context reaches the broker through

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        return await self._settle(job, verdict)

    async def extend(self, job: HeldJob, lease_ms: int | None) -> bool:
        return await self._extender.extend_one(job, lease_ms=lease_ms or 0)

    def wait(self, answer: Coroutine[Any, Any, bool]) -> bool:
        try:
            if asyncio.get_running_loop() is self._loop:
                answer.close()
                raise Invalid("ctx.blocking is for threads: on the loop, await the same method of ctx")
        except RuntimeError:  # no loop runs in this thread, as it should be
            pass
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()

    # Around the handler

    async def _acked_first(self, ctx: Context) -> bool:
        """Whether the job may run: only once it is surely gone from the queue, or it could run again."""
        try:
            return await ctx.ack()
        except TenureError as error:
            ctx.logger.warning("not run, because its ack could not be sent: %s", error)
            return False

    async def _guarded(self, payload: Any, ctx: Context) -> None:
        """The handler within its time limit, within the middlewares."""

        async def innermost() -> None:
            running = self._run(self.task, payload, ctx)
            await (running if self._limit is None else self._limit.run(running))

        await around_handler(self._middlewares, ctx, innermost)()

    # What becomes of the job

    async def _after(self, error: BaseException | None, ctx: Context) -> Verdict | None:
        """The verdict on what the handler did; none where one was given already, or would be fenced."""
        job, options = ctx.job, self._options
        failed = is_failure(error)
        if error is not None and failed:
            ctx.logger.warning("failed: %r", error, exc_info=exc_info_of(error))
        if job.settled or ctx.lost:
            return None
        failures: int | None = 0
        if failed and options.policy is AckPolicy.NACK_ON_ERROR:
            failures = await failures_of(job, self._side, retries=options.retries)
        if failures is None:
            return None
        return verdict_of(
            error, options.policy, seq=job.seq, failures=failures, retries=options.retries, backoff=options.backoff
        )

    def _unfit(self, misfit: Misfit, ctx: Context) -> Verdict:
        ctx.logger.warning("rejected unseen: %s", misfit)
        return Verdict(VerdictKind.REJECT, None, str(misfit))

    def _told(self, ctx: Context, verdict: Verdict | None) -> Verdict | None:
        return told(self._middlewares, ctx, verdict)


async def failures_of(job: HeldJob, side: Backend, *, retries: int) -> int | None:
    """Return how often a job has failed by now, None where it is gone.

    Deliveries also end in crashes and drains, so they only bound the failures: while they cannot exceed the
    retries, nobody is asked. Where nobody can be asked, the job is given back rather than rejected by guess: its
    queue's ``max_deliveries`` still ends it.
    """
    if job.deliveries <= retries:
        return job.deliveries
    try:
        return await side.failures(job)
    except NotFound:
        return None
    except TenureError:
        return retries


def told(middlewares: Sequence[Middleware], ctx: Context, verdict: Verdict | None) -> Verdict | None:
    """Report a verdict to the middlewares and return it; one that fails there must not cost the broker its answer."""
    for middleware in middlewares:
        try:
            middleware.verdict(ctx, verdict)
        except Exception:
            ctx.logger.exception("%s failed in its verdict hook", type(middleware).__name__)
    return verdict
