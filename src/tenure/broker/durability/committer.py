"""Group commit: when the log is written and synced, and which answers resolve by that.

Everything that was appended in one turn of the loop is written together at its end. A sync runs in a thread of its own:
any disk stalls at times, for seconds, and the heartbeats that arrive meanwhile must be read in time. Only where nothing
is behind the log but memory it runs on the loop. What arrives during a sync is written and waits for the next one, so
one sync serves every produce, ack and claim that waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from heapq import merge
from math import inf
from operator import itemgetter
from time import perf_counter

from tenure.broker.answer import Answer, Done
from tenure.broker.durability.sync_thread import SyncThread
from tenure.broker.engine import Engine
from tenure.core.level import Level
from tenure.errors import Indeterminate, NotLeader, TenureError
from tenure.log.interface import Sync

__all__ = ["Committer"]

logger = logging.getLogger("tenure.broker")


class Committer:
    """The way of batches from appended to written to synced, and the callers that wait for them.

    ``attend`` serves the callers that wait on changed topics. It is called after each sync, before any answer resolves,
    and at the end of a turn in which a command changed a topic and was then refused.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, attend: Callable[[], None]) -> None:
        self.engine = engine
        self.failed: TenureError | None = None
        self.after_sync: Callable[[], None] = lambda: None
        self.after_failure: Callable[[], None] = lambda: None
        self.abandon: Callable[[object], None] = lambda _: None
        self._loop = loop
        self._attend = attend
        self._thread = SyncThread(loop)
        self._write_waiters: deque[tuple[int, Done]] = deque()
        self._sync_waiters: deque[tuple[int, Done]] = deque()
        self.flush_planned = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._seal_timer: asyncio.TimerHandle | None = None
        self._beat_timer: asyncio.TimerHandle | None = None
        self._beats = engine.log.beat_wait_ms is not None
        self._finishing = False
        if self._beats:
            loop.call_soon(self.beat)

    def has_grant(self) -> bool:
        """Return whether what is not synced may be answered now."""
        until_ms = self.engine.log.granted_until_ms
        return until_ms == inf or self.engine.clock.boot_ms() < until_ms

    def reached(self, batch: int, level: int) -> bool:
        """Return whether a batch has reached a level. Raises the error of the disk where it never will.

        Without a grant, an answer that waits for a write waits for its sync.
        """
        log = self.engine.log
        if level == Level.WRITTEN and self._beats and not self.has_grant():
            level = Level.SYNCED
        if batch <= (log.written_batch if level == Level.WRITTEN else self.engine.synced_batch):
            return True
        if self.failed is not None:
            raise self.failed
        return False

    def when_reached(self, batch: int, level: int, call: Done) -> None:
        """Have ``call`` called when a batch reaches a level: without a turn of the loop in between, as a future has."""
        (self._write_waiters if level == Level.WRITTEN else self._sync_waiters).append((batch, call))
        self.plan()

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for a batch."""
        return bool(self._sync_waiters or self._write_waiters)

    def plan(self) -> None:
        """Plan the write of what was appended, or waits, at the end of this turn."""
        if not self.flush_planned:
            self.flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.flush_planned = False
        if self.engine.changed_topics and not self._finishing:
            self._attend()
        self.engine.turn_ms = self.engine.last_now_ms = 0  # the next turn has a time of its own
        if (self.failed is not None or self.engine.log.failed is not None) and self._broken():
            return
        try:
            self.engine.write()
        except TenureError as error:
            self.fail(error)
            return
        self._resolve_written()
        self._want_sync()

    def _resolve_written(self) -> None:
        """Answer those who wait for the write; without a grant, let them wait for the sync."""
        if not self._write_waiters:
            return
        if not self._beats or self.has_grant():
            _resolve(self._write_waiters, self.engine.log.written_batch)
        else:
            self._sync_waiters = deque(merge(self._sync_waiters, self._write_waiters, key=itemgetter(0)))
            self._write_waiters.clear()

    def _broken(self) -> bool:
        """Return whether the log has failed; if so, fail the waiting callers, wherever the failure was met first."""
        if self.failed is None and self.engine.log.failed is not None:
            self.fail(self.engine.log.failed)
        return self.failed is not None

    def _spread(self, batch: int) -> None:
        """Make batches up to this one visible as durable, then resolve their answers."""
        self.engine.synced(batch)
        self._attend()
        _resolve(self._sync_waiters, batch)

    def _want_sync(self) -> None:
        log = self.engine.log
        if self._syncing is not None or log.synced_batch >= log.written_batch:
            return
        wait_ms = log.sync_wait_ms
        if self._sync_waiters and not wait_ms:
            self._start_sync()
        elif self._sync_timer is None:
            delay_ms = wait_ms if self._sync_waiters else max(wait_ms, self.engine.settings.sync_interval_ms)
            self._sync_timer = self._loop.call_later(delay_ms / 1000, self._start_sync)

    def _start_sync(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None
        if self._syncing is not None or self._broken():
            return
        sync = self.engine.log.begin_sync()
        started = perf_counter()
        if sync.is_instant:
            sync.run()
            self._end_sync(sync, started)
        else:
            self._syncing = self._loop.run_in_executor(self._thread, sync.run)
            self._syncing.add_done_callback(lambda _: self._end_sync(sync, started))

    def _end_sync(self, sync: Sync, started: float) -> None:
        self._syncing = None
        try:
            batch = self.engine.log.end_sync(sync)
        except TenureError as error:
            self.fail(error)
            return
        took_ms = (perf_counter() - started) * 1000
        self._spread(batch)
        self._want_sync()
        if self._beats:
            self.beat()
        self._loop.call_soon(self._tidy, took_ms)

    def _tidy(self, took_ms: float) -> None:
        """Do what follows a sync and concerns no caller: in a turn of its own, because answers leave first."""
        self.engine.totals.syncs += 1
        self.engine.totals.sync_ms.observe(took_ms)
        self.after_sync()
        self._plan_seal()

    def _plan_seal(self) -> None:
        """Plan a sealing batch for when nothing more is appended: it is the later witness of this sync, without which
        damage of the last batches could not be told from a torn tail.
        """
        if self._seal_timer is None and not self._sync_waiters and not self._finishing and not self._beats:
            delay = self.engine.settings.sync_interval_ms / 1000
            self._seal_timer = self._loop.call_later(delay, self._seal)

    def _seal(self) -> None:
        self._seal_timer = None
        if not self._broken() and self._syncing is None and self.engine.log.witness():
            self._flush()

    def beat(self) -> None:
        """Start a sync where the log is due for one although nothing was written, else plan it.

        It carries the seal: one of its own would cost another link. While a sync is under way there is nothing to do;
        its end comes back here.
        """
        if self._beat_timer is not None:
            self._beat_timer.cancel()
            self._beat_timer = None
        wait_ms = self.engine.log.beat_wait_ms
        if wait_ms is None or self._syncing is not None or self._finishing or self._broken():
            return
        if wait_ms:
            self._beat_timer = self._loop.call_later(wait_ms / 1000, self.beat)
            return
        self.engine.log.witness()
        self._flush()
        self._start_sync()

    async def durable(self, batch: int) -> None:
        """Wait until a batch is synced."""
        await Answer(None, batch, Level.SYNCED, self)

    def fail(self, error: TenureError) -> None:
        """Fail after a write or sync error: pending answers become Indeterminate, and nothing is written any more.

        Where another process leads the log now, nothing of them happened, and they say so. A caller whose batch had
        already reached its level is answered all the same.
        """
        if self.failed is None:
            is_known = isinstance(error, (Indeterminate, NotLeader))
            self.failed = error if is_known else Indeterminate(error.message)
            logger.error("%s", self.failed.message)
        self._resolve_written()
        for waiters in (self._write_waiters, self._sync_waiters):
            while waiters:
                _call(waiters.popleft()[1], self.failed)
        self.after_failure()

    async def finish(self, last: Callable[[], None]) -> None:
        """Write and sync what is pending, finish the disk's work, and stop the thread."""
        self._finishing = True
        for timer in (self._sync_timer, self._seal_timer, self._beat_timer):
            if timer is not None:
                timer.cancel()
        self._sync_timer = self._seal_timer = self._beat_timer = None
        self._flush()
        log = self.engine.log
        while self._syncing is not None or (self.failed is None and log.synced_batch < log.written_batch):
            if self._syncing is None:
                self._start_sync()
            else:
                await asyncio.wait([self._syncing])
                await asyncio.sleep(0)
        try:
            await self.run_in_thread(last)
        finally:
            self._thread.shutdown(wait=True)

    async def run_in_thread(self, work: Callable[[], None]) -> None:
        """Run slow disk work in the thread of the syncs, in turn with them."""
        await self._loop.run_in_executor(self._thread, work)


def _resolve(waiters: deque[tuple[int, Done]], batch: int) -> None:
    while waiters and waiters[0][0] <= batch:
        _call(waiters.popleft()[1], None)


def _call(reached: Done, error: TenureError | None) -> None:
    """Answer one caller; a fault of its own must not keep the others from their answers, nor the next sync."""
    try:
        reached(error)
    except Exception:
        logger.exception("an answer could not be given")
