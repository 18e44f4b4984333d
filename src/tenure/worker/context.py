"""`Context`: a handler's view of its job: fields, lease, ack, nack, reject, extend; on the loop and in threads."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from tenure.durations import Duration, ms_of
from tenure.errors import LeaseLost
from tenure.worker.backoff import DELAY_MS_MAX
from tenure.worker.observing.reason import bounded
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.verdict import ACKED, Verdict, VerdictKind

__all__ = ["BlockingContext", "Context", "Reporter"]

_logger: Final = logging.getLogger("tenure.task")


class Reporter(Protocol):
    """Sends the verdicts and extends of a context to the broker: in the worker itself, or over the pipe of a child."""

    timing: Timing

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        """Send a verdict now; return False where the lease was lost."""
        ...

    async def extend(self, job: HeldJob, lease_ms: int | None) -> bool:
        """Set the deadline to now plus ``lease_ms``, or the task's lease if that is longer; False where it was lost."""
        ...

    def wait(self, answer: Coroutine[Any, Any, bool]) -> bool:
        """Block the handler's thread until the loop has the answer."""
        ...


class Context:
    """One job as its handler sees it. ``check()``, ``lost`` and the fields may be used in any thread.

    The methods that talk to the broker are awaited; a handler that cannot await has the same ones in ``blocking``.

    >>> import asyncio
    >>> from tenure import Context
    >>> from tenure.testing import make_context
    >>> async def handle(page: int, ctx: Context) -> None:
    ...     ctx.check()
    ...     await ctx.nack("try page later", delay="1m")
    >>> ctx = make_context("pages")
    >>> asyncio.run(handle(7, ctx))
    >>> ctx.verdict.reason, ctx.verdict.delay_ms
    ('try page later', 60000)
    """

    __slots__ = ("_logger", "_reporter", "job")

    def __init__(self, job: HeldJob, reporter: Reporter) -> None:
        self.job = job
        self._reporter = reporter
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def queue(self) -> str:
        return self.job.topic

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def timer_id(self) -> str | None:
        """The id of a timer; None for the job of a queue."""
        return self.job.timer_id

    @property
    def tag(self) -> str | None:
        return self.job.tag

    @property
    def ts_ms(self) -> int:
        """When the job was put, or the timer was due, in milliseconds since the epoch."""
        return self.job.ts

    @property
    def deliveries(self) -> int:
        """How often the job was handed out, this time included; crashes and drains count too."""
        return self.job.deliveries

    @property
    def attempt(self) -> int:
        """Which try this is, from 1: another name for ``deliveries``, for log lines and idempotency keys."""
        return self.job.deliveries

    @property
    def meta(self) -> dict[str, Any]:
        """The meta that the producer set beside the payload; decoded again at each call."""
        return {} if self.job.meta is None else _decode_meta(self.job.meta)

    @property
    def lost(self) -> bool:
        """Whether another worker may hold the job by now: stop working on it."""
        return self.job.lost or (not self.job.settled and self._reporter.timing.now_ms() > self.job.deadline_ms)

    @property
    def remaining_ms(self) -> int:
        """How long the lease still runs; heartbeats renew it while the handler runs."""
        return max(0, self.job.deadline_ms - self._reporter.timing.now_ms())

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that puts the queue, the seq and the attempt on every line."""
        if self._logger is None:
            self._logger = _JobLogger(_logger, self._fields())
        return self._logger

    @property
    def blocking(self) -> BlockingContext:
        """``ack``, ``nack``, ``reject`` and ``extend`` for handlers that run in a thread or a process."""
        return BlockingContext(self, self._reporter)

    def check(self) -> None:
        """Raise LeaseLost where the lease is gone; call it before each step with an outside effect."""
        if self.lost:
            raise LeaseLost(f"the lease on job {self.seq} of {self.queue!r} is gone: stop working on it", seq=self.seq)

    async def ack(self) -> bool:
        """Complete the job now; False where the lease was lost. It does not undo what the handler has done."""
        return await self._settle(ACKED)

    async def nack(self, reason: str = "", *, delay: Duration | None = None) -> bool:
        """Give the job back now, to be delivered again after ``delay``; False where the lease was lost."""
        delay_ms = None if delay is None else ms_of(delay, field="delay", max_ms=DELAY_MS_MAX)
        return await self._settle(Verdict(VerdictKind.NACK, delay_ms, bounded(reason) or None))

    async def reject(self, reason: str = "") -> bool:
        """Dead-letter the job now; False where the lease was lost."""
        return await self._settle(Verdict(VerdictKind.REJECT, None, bounded(reason) or "rejected by its handler"))

    async def extend(self, lease: Duration | None = None) -> None:
        """Set the deadline to now plus ``lease``, or plus the task's own lease where that is longer. Raises LeaseLost.

        Heartbeats extend by the task's lease; call this where the loop will be blocked for longer than that. From then
        on heartbeats extend this job by the longest lease asked for, so that none of them shortens it.
        """
        lease_ms = None if lease is None else ms_of(lease, field="lease", min_ms=1)
        if self.job.lost or not await self._reporter.extend(self.job, lease_ms):
            self.job.lost = True
            self.check()

    async def _settle(self, verdict: Verdict) -> bool:
        """Send the first verdict; return False for a second one, as the broker would. The first verdict counts also
        where the handler is cancelled while it is in flight, by a time limit for example.
        """
        if self.job.settled or self.job.lost:
            return False
        self.job.settled = True
        try:
            return await self._reporter.settle(self.job, verdict)
        except Exception:
            self.job.settled = False  # not sent, or unknown: the verdict may be sent again
            raise

    def _fields(self) -> dict[str, object]:
        timer = {} if self.timer_id is None else {"timer_id": self.timer_id}
        return {"queue": self.queue, "seq": self.seq, "attempt": self.attempt, **timer}


class BlockingContext:
    """The methods of Context for code that cannot await. Raises Invalid on the loop itself, where it would deadlock."""

    __slots__ = ("_ctx", "_reporter")

    def __init__(self, ctx: Context, reporter: Reporter) -> None:
        self._ctx = ctx
        self._reporter = reporter

    def ack(self) -> bool:
        return self._reporter.wait(self._ctx.ack())

    def nack(self, reason: str = "", *, delay: Duration | None = None) -> bool:
        return self._reporter.wait(self._ctx.nack(reason, delay=delay))

    def reject(self, reason: str = "") -> bool:
        return self._reporter.wait(self._ctx.reject(reason))

    def extend(self, lease: Duration | None = None) -> None:
        self._reporter.wait(self._extend(lease))

    async def _extend(self, lease: Duration | None) -> bool:
        await self._ctx.extend(lease)
        return True


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds the fields to each record, and in front of its message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = self.extra or {}
        kwargs["extra"] = {**fields, **kwargs.get("extra", {})}
        which = fields.get("timer_id", fields["seq"])
        return f"{fields['queue']}/{which}#{fields['attempt']} {msg}", kwargs


_decode_meta: Final = msgspec.json.Decoder(dict[str, Any]).decode
