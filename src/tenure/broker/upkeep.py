"""What an open broker does for itself: sealing the log when it falls silent, trimming it, and leaving checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from tenure.broker.committer import Committer
from tenure.broker.engine import Engine
from tenure.broker.trim import trim_due, trim_step
from tenure.errors import TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.home import Position

__all__ = ["Upkeep"]

_CHECKPOINT_SHARE = 8


class Upkeep:
    """Housekeeping after syncs. None of it is needed for anything to be right; it saves time and space later."""

    def __init__(self, engine: Engine, committer: Committer, disk: Disk | None) -> None:
        self._engine = engine
        self._committer = committer
        self._disk = disk
        self._tasks: set[asyncio.Task[None]] = set()
        self._trimming = False
        self._checkpoint_due_bytes = engine.log_bytes + engine.settings.checkpoint_bytes
        self._checkpointing = False
        self._finished = False
        committer.after_sync = self._after_sync

    def _after_sync(self) -> None:
        if self._finished:
            return
        if not self._trimming and trim_due(self._engine):
            self._start(self._trim())
        if not self._checkpointing and self._disk is not None and self._engine.log_bytes > self._checkpoint_due_bytes:
            self._start(self._checkpoint())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _trim(self) -> None:
        """Empty and drop old segments, a step at a time, as long as it is worth it."""
        self._trimming = True
        try:
            while not self._finished and trim_step(self._engine):
                self._committer.plan()
                await asyncio.sleep(0)
        except TenureError:
            pass  # no room even for this: the next sync tries again
        finally:
            self._trimming = False
            self._committer.plan()  # a drop has synced, or failed: somebody may be waiting to hear of it

    async def _checkpoint(self) -> None:
        """Write the state beside the log, once the log is durable up to the same place."""
        self._checkpointing = True
        try:
            self._engine.write()
            position, payload = self._engine.log.position(), self._engine.checkpoint()
            await self._committer.durable(position.batch - 1)
            await self._save(position, payload)
            size = max(self._engine.settings.checkpoint_bytes, _CHECKPOINT_SHARE * len(payload))
            self._checkpoint_due_bytes = self._engine.log_bytes + size
        except TenureError:
            self._checkpoint_due_bytes = self._engine.log_bytes + self._engine.settings.checkpoint_bytes
        finally:
            self._checkpointing = False

    async def _save(self, position: Position, payload: bytes) -> None:
        disk = self._disk
        assert disk is not None
        await self._committer.run_in_thread(lambda: checkpoint.save(disk, position, payload))

    async def finish(self) -> None:
        """Stop, make everything durable, leave a checkpoint, and let the log go."""
        if self._finished:
            return
        self._finished = True
        if self._tasks:
            await asyncio.wait(self._tasks)
        engine = self._engine
        await self._committer.finish()
        if self._committer.failed is None and self._disk is not None:
            with suppress(TenureError):  # only a cache: without it the next opening takes longer
                checkpoint.save(self._disk, engine.log.position(), engine.checkpoint())
        engine.log.close()
