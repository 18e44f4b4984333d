"""`Settler`: send verdicts to the backend in batches, and retry them while the lease may live.

The client's `Acker` makes the batches; this module handles missing answers. A verdict whose request could not be made
is sent again. A verdict whose outcome is unknown is sent again as well, because the lease fences it; if the repeat then
finds the lease ended, our own first copy may have ended it: that is counted and logged as indeterminate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tenure.backoff import backoff_ms
from tenure.errors import Closed, Indeterminate, LeaseLost, Overloaded, TenureError
from tenure.worker.backends.backend import Backend
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.options import HELD_MAX
from tenure.worker.runtime.begin import is_unsupported
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing, within
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import Verdict, VerdictKind

__all__ = ["Settler"]

log = logging.getLogger("tenure.worker")


class _Entry(msgspec.Struct, eq=False):
    """One verdict without an answer. ``waiter`` is the future of the caller, if it waits."""

    job: HeldJob
    verdict: Verdict
    waiter: asyncio.Future[bool] | None = None
    unknown: bool = False


class Settler:
    """The verdicts of one queue. ``on_settled`` is called with each job that is done with, whatever the outcome."""

    def __init__(
        self,
        backend: Backend,
        queue: str,
        *,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        on_settled: Callable[[HeldJob], None],
    ) -> None:
        # A reconnecting stream may bring another depth of jobs before those held are settled.
        self._acker = backend.acker(
            batch_max=settings.batch_max, pending_max=4 * HELD_MAX, requests_max=settings.nacks_max
        )
        self._queue = queue
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._open: set[_Entry] = set()
        self._closed = False
        self._emptied = asyncio.Event()
        self._again: list[_Entry] = []
        self._retrying: asyncio.Task[None] | None = None

    # In

    def put(self, job: HeldJob, verdict: Verdict) -> None:
        """Send a verdict without waiting for the answer."""
        self._enter(_Entry(job, verdict))

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        """Send a verdict now; True once the broker has taken it, False where the lease was lost. Raises Indeterminate
        where the outcome is unknown. The verdict is sent even if the caller is cancelled.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._enter(_Entry(job, verdict, waiter))
        return await waiter

    def _enter(self, entry: _Entry) -> None:
        entry.job.settled = True
        self._open.add(entry)
        self._send(entry)

    def _send(self, entry: _Entry) -> None:
        job, verdict = entry.job, entry.verdict
        try:
            if verdict.kind is VerdictKind.ACK:
                answer = self._acker.settle(job.seq, job.lease_id)
            else:
                dead = verdict.kind is VerdictKind.REJECT
                answer = self._acker.release(
                    job.seq,
                    job.lease_id,
                    delay_ms=verdict.delay_ms,
                    reason=verdict.reason,
                    dead=dead,
                    returned=verdict.returned,
                )
        except TenureError as error:  # the worker has ended before this handler did
            self._give_up(entry, error)
            return
        answer.add_done_callback(partial(self._answered, entry))

    # Out

    def _answered(self, entry: _Entry, answer: asyncio.Future[Any]) -> None:
        if entry not in self._open:
            return  # given up by close
        self._stats.settlements = self._acker.sent_count
        error = None if answer.cancelled() else answer.exception()
        if error is None:
            self._stats.returned += entry.verdict.returned
            self._finish(entry, not answer.cancelled())
        elif isinstance(error, LeaseLost) and not entry.unknown:
            self._stats.leases_lost += 1
            log.info("job %d of %s was not ours any more: its verdict counts for nothing", entry.job.seq, self._queue)
            self._finish(entry, False)
        elif isinstance(error, Overloaded | Indeterminate | Closed) and self._may_try_again(entry):
            entry.unknown = entry.unknown or isinstance(error, Indeterminate)
            self._try_again(entry)
        elif entry.verdict.returned and is_unsupported(error):
            # Such a broker counts every delivery as a try; this one has no reason, so it is no failure of the job.
            entry.verdict = msgspec.structs.replace(entry.verdict, returned=False)
            self._send(entry)
        else:
            self._give_up(entry, error)

    def _finish(self, entry: _Entry, taken: bool) -> None:
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_result(taken)
        self._end(entry)

    def _give_up(self, entry: _Entry, error: BaseException) -> None:
        unknown = entry.unknown or isinstance(error, Indeterminate)
        if unknown and not isinstance(error, Indeterminate):
            error = Indeterminate(f"the outcome is unknown: {error}")
        if unknown:
            self._stats.indeterminate += 1
        what = "may or may not have arrived" if unknown else "could not be sent; the job comes back after its lease"
        log.warning("the %s of job %d of %s %s: %s", entry.verdict.kind.value, entry.job.seq, self._queue, what, error)
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_exception(error)
        self._end(entry)

    def _end(self, entry: _Entry) -> None:
        self._open.discard(entry)
        if not self._open:
            self._emptied.set()
        self._on_settled(entry.job)

    # Retry

    def _may_try_again(self, entry: _Entry) -> bool:
        return not self._closed and self._timing.now_ms() < entry.job.deadline_ms

    def _try_again(self, entry: _Entry) -> None:
        self._again.append(entry)
        if self._retrying is None:
            self._retrying = self._loop.create_task(self._retry())

    async def _retry(self) -> None:
        """Send again after a wait. The client waits between its own attempts; this wait stops an immediate refusal from
        looping.
        """
        longest_ms = self._settings.settle_retry_ms
        await self._timing.sleep_ms(backoff_ms(1, min_ms=longest_ms, max_ms=longest_ms))
        self._retrying = None
        again, self._again = self._again, []
        for entry in again:
            if self._may_try_again(entry):
                self._send(entry)
            else:
                self._give_up(entry, LeaseLost("the lease ended first"))

    # The end

    async def _until_empty(self) -> None:
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    async def close(self, flush_ms: int) -> None:
        """Wait ``flush_ms`` for the last answers; then fail open verdicts and their waiters as unknown or unsent."""
        if self._open:
            try:
                await within(self._timing, flush_ms, self._until_empty())
            except TimeoutError:
                log.warning("%d verdicts of %s were not answered in time", len(self._open), self._queue)
        self._closed = True
        if self._retrying is not None:
            self._retrying.cancel()
        again, self._again = self._again, []
        for entry in again:
            self._give_up(entry, Closed("the worker ended before it could be sent again"))
        await self._acker.close(deadline_ms=0)
        await asyncio.sleep(0)  # callbacks of those answers run in the next turn of the loop
        for entry in list(self._open):
            self._give_up(entry, Indeterminate("the worker ended before it was answered"))
