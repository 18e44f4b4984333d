"""Checkpoints while a broker is open: when one is due, and making it beside the loop and beside the syncs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tenure.broker.durability.checkpoint_fold import CheckpointFold
from tenure.broker.durability.checkpoint_process import CheckpointProcess
from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.errors import TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk, PosixDisk
from tenure.log.interface import Position

__all__ = ["Checkpoints"]

logger = logging.getLogger("tenure.broker")

_SHARE = 8
T = TypeVar("T")


class Maker(Protocol):
    """A checkpoint in the making; everything but ``abort`` runs in the thread."""

    def open(self) -> None: ...

    def write(self, stop: Position) -> int: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Checkpoints:
    """The checkpoints of one broker: at most one is in the making.

    They have a thread of their own, so that no sync waits for one. In a real directory the thread only waits for
    another process, which leaves the interpreter to the loop.
    """

    def __init__(self, engine: Engine, committer: Committer, disk: Disk) -> None:
        self._engine = engine
        self._committer = committer
        self._disk = disk
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenure-checkpoint")
        self._making: Maker | None = None
        self._due_bytes = engine.log_bytes + engine.settings.checkpoint_bytes
        self._hindrance = ""
        self._aborted = False

    def is_due(self) -> bool:
        """Return whether a checkpoint is to be made now."""
        return (
            self._making is None
            and self._engine.log_bytes > self._due_bytes
            and self._engine.settings.checkpoint_memory_bytes_max > 0
        )

    async def make(self) -> None:
        """Make a checkpoint; where that fails, log why and leave it until it is due again."""
        self._making = made = self._maker()
        size = 0
        try:
            await self._run(made.open)
            self._engine.write()
            position = self._engine.log.position()
            await self._committer.durable(position.batch - 1)
            size = await self._run(lambda: made.write(position))
            await self._run(lambda: checkpoint.publish(self._disk, position))
            self._hindrance = ""
        except TenureError as error:
            self._note(error)
        finally:
            await self._run(made.close)
            self._due_bytes = self._engine.log_bytes + max(self._engine.settings.checkpoint_bytes, _SHARE * size)
            self._making = None

    def _maker(self) -> Maker:
        if isinstance(self._disk, PosixDisk):
            bytes_max = self._engine.settings.checkpoint_memory_bytes_max
            return CheckpointProcess(self._disk.root, memory_bytes_max=bytes_max)
        return CheckpointFold(self._disk)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _note(self, error: TenureError) -> None:
        if error.message != self._hindrance and not self._aborted:
            self._hindrance = error.message
            logger.warning("%s; until there is one, the next opening takes longer", error.message)

    def abort(self) -> None:
        """Give up the checkpoint in the making: the broker closes."""
        self._aborted = True
        if self._making is not None:
            self._making.abort()

    def close(self) -> None:
        """End the thread, which has nothing to do any more."""
        self._thread.shutdown(wait=True)
