"""A machine of a world: a directory, a clock, and a process that a service manager starts again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from tenure.testing.simdisk import CrashMode, SimDisk
from tests.chain.worlds.blocking import owner
from tests.chain.worlds.clock import MachineClock
from tests.chain.worlds.process import Memory, Process, Setting
from tests.lives.anomaly import Anomaly

__all__ = ["Machine"]


class Machine:
    """One machine; it is off until it is started."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.setting = setting
        self.random = Random(f"machine {setting.seed} {name}")
        self.disk = SimDisk(self.random.getrandbits(32))
        self.clock = MachineClock(setting.now_ms)
        #: Moments that the machine can be set back to.
        self.memories: list[Memory] = []
        #: Operations that were written here and not shipped: their epoch, and whether they outlast a power loss.
        self.tail: dict[int, tuple[int, bool]] = {}
        #: Whether the machine was ever set back: then a process may find its own later links.
        self.was_set_back = False
        self.process: Process | None = None
        #: The code of the error that each process ended with.
        self.ends: list[str] = []
        self.anomaly: Anomaly | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._running = asyncio.Event()

    @property
    def is_leading(self) -> bool:
        return self.process is not None and self.process.is_leading

    @property
    def is_on(self) -> bool:
        return bool(self._tasks)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task of the process, which ends with it."""
        self._tasks.append(task)

    async def awake(self) -> None:
        """Wait while the process is stopped."""
        await self._running.wait()

    def start(self) -> None:
        """Switch the machine on, unless it is; its process starts."""
        if not self.is_on:
            self._begin(None)

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does; what it has sent may still arrive."""
        self._running.clear()

    def go_on(self) -> None:
        self._running.set()

    def kill(self, mode: CrashMode | None = None, *, loses_disk: bool = False) -> None:
        """End the process, by kill -9 (None) or a power loss, and perhaps with its disk."""
        self._end()
        if loses_disk:
            self.disk, self.tail, self.memories = SimDisk(self.random.getrandbits(32)), {}, []
        elif mode is None:
            self.disk = self.disk.kill()
        else:
            self.disk = self.disk.crash(mode)
            self.tail = {op: at for op, at in self.tail.items() if at[1]}

    def set_back(self, memory: Memory, *, wall_too: bool) -> None:
        """Put the machine back to a moment, as a restored snapshot does: its memory, its disk and its boot clock."""
        self._end()
        self.was_set_back = True
        self.disk, self.tail = memory.disk.kill(), {}
        self.clock.boot_behind_ms += self.clock.boot_ms() - memory.boot_ms
        if wall_too:
            self.clock.wall_behind_ms += self.clock.wall_ms() - memory.wall_ms
        self._begin(memory)

    def set_disk_back(self, memory: Memory) -> None:
        """Put an old copy of the directory in its place, as an operator does who restores a backup of it."""
        self._end()
        self.disk, self.tail = memory.disk.kill(), {}
        self._begin(None)

    def _begin(self, memory: Memory | None) -> None:
        self.go_on()
        token = owner.set(self)
        self._tasks = [asyncio.get_running_loop().create_task(self._guard(self._live(memory)))]
        owner.reset(token)

    def _end(self) -> None:
        self._cancel(self._tasks)
        self._tasks, self.process = [], None

    def _cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()

    async def _guard(self, life: Coroutine[Any, Any, None]) -> None:
        try:
            await life
        except Anomaly as anomaly:
            self.anomaly = anomaly

    async def _live(self, memory: Memory | None) -> None:
        """Run one process after the other; the first one may go on from a memory."""
        while True:
            self.process = Process(self)
            await self.process.run(memory)
            memory = None
            self._cancel(self._tasks[1:])
            del self._tasks[1:]
            self.disk = self.disk.kill()  # what is left of the process touches nothing any more
            await asyncio.sleep(self.random.uniform(0.05, 1.5))
            await self.awake()
