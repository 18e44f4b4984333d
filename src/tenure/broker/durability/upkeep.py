"""Upkeep of an open broker: trimming the log, writing checkpoints, logging the time when nothing else is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from pyroaring import BitMap

from tenure.broker.durability.checkpoints import Checkpoints
from tenure.broker.durability.committer import Committer
from tenure.broker.durability.pace import pause
from tenure.broker.durability.trim import is_all_deferred, is_based_on_oldest, trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.errors import Overloaded, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk

__all__ = ["Upkeep"]

logger = logging.getLogger("tenure.broker")


class Upkeep:
    """Housekeeping after syncs. Correctness does not depend on it; it saves time and space later."""

    def __init__(self, engine: Engine, committer: Committer, disk: Disk | None) -> None:
        self._engine = engine
        self._committer = committer
        self._disk = disk
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenure-spares")
        self._trimming = False
        self._may_defer = False
        self._hindrance = ""
        self._checkpoints = None if disk is None else Checkpoints(engine, committer, disk)
        self._finished = False
        self._finishing: asyncio.Task[None] | None = None
        self._mark_timer = self._plan_mark()
        committer.after_sync = self._after_sync

    def _after_sync(self) -> None:
        if self._finished:
            return
        if not self._trimming and trim_due(self._engine):
            self._start(self._trim)
        if self._engine.log.spares_due():
            self._start(self._prepare)
        if self._checkpoints is not None and self._checkpoints.is_due():
            self._start(self._checkpoints.make)

    def _plan_mark(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._engine.settings.time_mark_ms / 1000, self._mark)

    def _mark(self) -> None:
        """Log the time where nothing else was logged: after a reboot nothing else shows how long the log was idle."""
        self._mark_if_silent(self._engine.settings.time_mark_ms // 2)
        self._committer.plan()
        self._mark_timer = self._plan_mark()

    def _mark_if_silent(self, silent_ms: int) -> None:
        if self._engine.now() - self._engine.state.log_ms >= silent_ms:
            self._engine.mark_time()

    def _start(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run a piece of upkeep and log the error that ends it; the next sync starts it again."""
        try:
            await work()
        except Exception:
            logger.exception("upkeep ended in an error; the next sync tries again")

    async def _prepare(self) -> None:
        """Allocate the next segment in a thread of its own: neither the loop nor a sync waits for the disk."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.log.prepare_spares)

    async def _trim(self) -> None:
        """Empty and drop old segments, a step at a time, while trimming is due.

        Steps are apart by twice the time that they take, so that other work gets most of the loop; a full disk cannot
        wait.

        The space of a dropped segment is free once its drop is durable; the next segment waits for that.
        """
        self._trimming, deferred = True, BitMap()
        self._may_defer = self._checkpoints is not None and self._checkpoints.is_possible
        try:
            while not self._finished:
                started_ms, is_possible = self._engine.clock.boot_ms(), self._may_defer and not self._engine.log.crowded
                try:
                    batch = trim_step(self._engine, deferred if is_possible else None)
                except Overloaded:
                    if not await self._room_came_back():
                        raise
                    continue
                self._committer.plan()
                if not batch:
                    await self._go_on(started_ms, deferred)
                    continue
                await self._committer.durable(batch)
                if not trim_due(self._engine):
                    break
            self._hindrance = ""
        except (
            TenureError
        ) as error:  # no room even for this, or a read that the disk refuses: the next sync tries again
            if error.message != self._hindrance:
                self._hindrance = error.message
                logger.warning("the log cannot be trimmed for now: %s", error.message)
        finally:
            self._trimming = False

    async def _room_came_back(self) -> bool:
        """Wait for the sync that frees room of the log itself; return False where none does.

        A full segment keeps its unused end until then, and trimming must not end for lack of bytes that are its own.
        """
        log, batch = self._engine.log, self._engine.write()
        if not log.sync_frees_room or log.synced_batch >= batch:
            return False
        await self._committer.durable(batch)
        return True

    async def _go_on(self, started_ms: int, deferred: BitMap) -> None:
        """Pause after a step; where only large bases are left in the segment, let them be made beside the loop.

        If that fails, they are written out here: trimming must get on.
        """
        await pause(self._engine, started_ms)
        if deferred and not self._finished and is_all_deferred(self._engine, deferred):
            assert self._checkpoints is not None
            is_made = await self._checkpoints.make(list(deferred))
            self._may_defer = is_made and not is_based_on_oldest(self._engine, deferred)
            deferred.clear()

    async def finish(self, hand_to: str = "") -> None:
        """Stop, make everything durable, give up the lead to ``hand_to``, write a checkpoint, and close the log.

        A second call, also by a caller whose first call was cancelled, waits for the same end.
        """
        if self._finishing is None:
            self._finished = True
            self._finishing = asyncio.create_task(self._finish(hand_to))
        await asyncio.shield(self._finishing)

    async def _finish(self, hand_to: str) -> None:
        self._mark_timer.cancel()
        self._mark_if_silent(self._engine.settings.time_mark_ms // 60)
        if self._engine.state.lost != self._engine.losses_marked:
            self._engine.mark_losses()
        if self._checkpoints is not None:
            self._checkpoints.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._thread.shutdown(wait=True)
        if hand_to:
            self._engine.log.release_soon(hand_to)
        await self._committer.finish(partial(self._leave, hand_to))
        if self._checkpoints is not None:
            self._checkpoints.close()

    def _leave(self, hand_to: str) -> None:
        """Do the disk work of closing, in the thread. A successor need not wait for the checkpoint."""
        engine = self._engine
        engine.log.release(hand_to)
        if self._committer.failed is None and self._disk is not None and engine.state.lost == engine.losses_marked:
            with suppress(TenureError):  # only a cache: without it the next opening takes longer
                checkpoint.save(self._disk, engine.log.position(), engine.checkpoint())
        engine.log.close()
