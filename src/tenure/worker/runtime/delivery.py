"""`Delivery`: one job from its payload to its verdict. Workers and tests take the same path.

    decode ─► (ACK_FIRST: settle) ─► middlewares ─► executor, within the time limit ─► what was raised ─► verdict

Most handlers are async, quick and return. For these, a Context is the only object made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from tenure.errors import Invalid, NotFound, TenureError
from tenure.worker.backends.backend import Backend
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware, around_handler
from tenure.worker.observing.reason import exc_info_of
from tenure.worker.payload import Misfit
from tenure.worker.processes.executors import Executor
from tenure.worker.runtime.extender import Extender
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.time_limit import TimeLimit
from tenure.worker.runtime.timing import Timing
from tenure.worker.verdict import ACKED, AckPolicy, Verdict, VerdictKind, is_failure, verdict_of

__all__ = ["Delivery", "Settle", "failures_of", "report_verdict"]

Settle = Callable[[HeldJob, Verdict], Awaitable[bool]]
"""Send a verdict now; True once the broker has taken it, False where the lease was lost."""


class Delivery:
    """Runs the jobs of one task. It is the `Reporter` of their contexts."""

    def __init__(
        self,
        task: Handler[Any],
        *,
        backend: Backend,
        timing: Timing,
        executor: Executor,
        settle: Settle,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.task = task
        self.timing = timing
        self._settle = settle
        self._backend = backend
        self._extender = Extender(backend, lease_ms=task.options.lease_ms, timing=timing)
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
        """Run the handler of one job and return the verdict to send; None for no verdict.

        Raises no error of the handler. Cancelling it cancels the handler, without a verdict.
        """
        ctx = Context(job, self)
        try:
            payload = self._decode(job.data)
        except Misfit as misfit:
            return self._report(ctx, self._reject_misfit(misfit, ctx))
        if self._acks_first and not await self._ack_first(ctx):
            return None
        try:
            await (self._run(self.task, payload, ctx) if self._is_plain else self._guarded(payload, ctx))
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            return self._report(ctx, None)  # the handler cancelled itself: its lease runs out
        except GeneratorExit:
            raise  # the caller closed this coroutine
        except BaseException as error:  # SystemExit too: one job must not end the worker
            return self._report(ctx, await self._verdict_on(error, ctx))
        if self._is_plain:
            return self._returned if not (job.settled or job.lost) else None
        return self._report(ctx, await self._verdict_on(None, ctx))

    # The reporter of a Context

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        return await self._settle(job, verdict)

    async def extend(self, job: HeldJob, lease_ms: int | None) -> bool:
        return await self._extender.extend_one(job, lease_ms=lease_ms or 0)

    def wait(self, answer: Coroutine[Any, Any, bool]) -> bool:
        try:
            if asyncio.get_running_loop() is self._loop:
                answer.close()
                raise Invalid("ctx.blocking is for threads: on the loop, await the same method of ctx")
        except RuntimeError:  # no loop runs in this thread, as required
            pass
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()

    # Around the handler

    async def _ack_first(self, ctx: Context) -> bool:
        """Ack before the handler runs (ACK_FIRST); False where the ack is not certain, so that the job is not run
        twice.
        """
        try:
            return await ctx.ack()
        except TenureError as error:
            ctx.logger.warning("not run, because its ack could not be sent: %s", error)
            return False

    async def _guarded(self, payload: Any, ctx: Context) -> None:
        """Run the handler within its time limit, inside the middlewares."""

        async def innermost() -> None:
            running = self._run(self.task, payload, ctx)
            await (running if self._limit is None else self._limit.run(running))

        await around_handler(self._middlewares, ctx, innermost)()

    # The verdict

    async def _verdict_on(self, error: BaseException | None, ctx: Context) -> Verdict | None:
        """Return the verdict for what the handler raised; None where one was given already, or would be fenced."""
        job, options = ctx.job, self._options
        failed = is_failure(error)
        if error is not None and failed:
            ctx.logger.warning("failed: %r", error, exc_info=exc_info_of(error))
        if job.settled or ctx.lost:
            return None
        failures: int | None = 0
        if failed and options.policy is AckPolicy.NACK_ON_ERROR:
            failures = await failures_of(job, self._backend, retries=options.retries)
        if failures is None:
            return None
        return verdict_of(
            error, options.policy, seq=job.seq, failures=failures, retries=options.retries, backoff=options.backoff
        )

    def _reject_misfit(self, misfit: Misfit, ctx: Context) -> Verdict:
        ctx.logger.warning("rejected unseen: %s", misfit)
        return Verdict(VerdictKind.REJECT, None, str(misfit))

    def _report(self, ctx: Context, verdict: Verdict | None) -> Verdict | None:
        return report_verdict(self._middlewares, ctx, verdict)


async def failures_of(job: HeldJob, backend: Backend, *, retries: int) -> int | None:
    """Return how often a job has failed so far, None where the job is gone.

    Tries also end in crashes, so they only bound the failures: while they do not exceed the retries, the backend is
    not asked. Where it cannot be asked, the job is given back and not rejected by guess: its queue's ``max_deliveries``
    still ends it.
    """
    if job.tries_count <= retries:
        return job.tries_count
    try:
        return await backend.failures(job)
    except NotFound:
        return None
    except TenureError:
        return retries


def report_verdict(middlewares: Sequence[Middleware], ctx: Context, verdict: Verdict | None) -> Verdict | None:
    """Call the verdict hook of each middleware and return the verdict; an error in a hook is logged, not raised."""
    for middleware in middlewares:
        try:
            middleware.verdict(ctx, verdict)
        except Exception:
            ctx.logger.exception("%s failed in its verdict hook", type(middleware).__name__)
    return verdict
