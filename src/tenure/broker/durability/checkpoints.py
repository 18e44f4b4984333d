"""Checkpoints while a broker is open: when one is due, and making it beside the loop and beside the syncs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from tenure.broker.durability.bases import begin_bases, log_bases
from tenure.broker.durability.checkpoint_fold import CheckpointFold, Made
from tenure.broker.durability.checkpoint_process import CheckpointProcess
from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.errors import TenureError
from tenure.log import checkpoint
from tenure.log.base_file import BaseFile
from tenure.log.disk import Disk, PosixDisk
from tenure.log.interface import Position

__all__ = ["Checkpoints"]

logger = logging.getLogger("tenure.broker")

T = TypeVar("T")


class Maker(Protocol):
    """A checkpoint in the making; everything but ``abort`` runs in the thread."""

    def open(self) -> None: ...

    def write(self, stop: Position, topics: Sequence[int] = ()) -> Made: ...

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
        self._turn = asyncio.Lock()
        self._making: Maker | None = None
        self._due_bytes = engine.log_bytes + engine.settings.checkpoint_bytes
        self._hindrance = ""
        self._aborted = False

    def is_due(self) -> bool:
        """Return whether a checkpoint is to be made now."""
        return self.is_possible and not self._turn.locked() and self._engine.log_bytes > self._due_bytes

    @property
    def is_possible(self) -> bool:
        """Whether checkpoints may be made while the broker is open."""
        return self._engine.settings.checkpoint_memory_bytes_max > 0 and not self._aborted

    async def make(self, bases: Iterable[int] = ()) -> bool:
        """Make a checkpoint, and log the bases of these topics from it; return whether that was done.

        Where it fails, log why and leave it until it is due again.
        """
        async with self._turn:
            self._making, size = self._maker(), 0
            try:
                size = await self._make(self._making, bases)
                self._hindrance = ""
            except (TenureError, OSError) as error:
                self._note(error)
            finally:
                await self._run(self._making.close)
                self._due_bytes = self._engine.log_bytes + self._engine.settings.checkpoint_due_bytes(size)
                self._making = None
        return size > 0

    async def _make(self, maker: Maker, bases: Iterable[int]) -> int:
        engine = self._engine
        await self._run(maker.open)
        begun = begin_bases(engine, bases)
        engine.write()
        position = engine.log.position()
        await self._committer.durable(position.batch - 1)
        made = await self._run(lambda: maker.write(position, list(begun)))
        await self._run(lambda: checkpoint.publish(self._disk, position))
        engine.log.checkpointed(position)
        if made.bases:
            file, durable = BaseFile(self._disk, position.batch), self._committer.durable
            try:
                await log_bases(engine, file, made.bases, begun=begun, durable=durable, is_over=lambda: self._aborted)
            finally:
                file.remove()
        return made.size

    def _maker(self) -> Maker:
        if isinstance(self._disk, PosixDisk):
            bytes_max = self._engine.settings.checkpoint_memory_bytes_max
            return CheckpointProcess(self._disk.root, memory_bytes_max=bytes_max)
        return CheckpointFold(self._disk)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _note(self, error: TenureError | OSError) -> None:
        message = error.message if isinstance(error, TenureError) else f"no checkpoint was made: {error.strerror}"
        if message != self._hindrance and not self._aborted:
            self._hindrance = message
            logger.warning("%s; until there is one, the next opening takes longer", message)

    def abort(self) -> None:
        """Give up the checkpoint in the making: the broker closes."""
        self._aborted = True
        if self._making is not None:
            self._making.abort()

    def close(self) -> None:
        """End the thread, which has nothing to do any more."""
        self._thread.shutdown(wait=True)
