"""A machine of a member: a disk, a clock, and a process that a service manager starts again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from tenure.chain.settings import ChainSettings
from tenure.errors import Corrupt, TenureError
from tenure.http.settings import ServerSettings
from tenure.settings import Settings
from tenure.testing.simdisk import CrashMode, SimDisk
from tests.chain.members.process import Process, describe
from tests.chain.worlds.clock import MachineClock
from tests.chain.worlds.store import WorldStore
from tests.lives.anomaly import Anomaly

__all__ = ["Machine", "Setting"]

_EXPECTED: Final = {"store_unknown", "store_refused"}
"""What the start of a process may end with where the store loses nothing: it is started again."""


class Setting(NamedTuple):
    """What the machines of a life share."""

    seed: int
    store: WorldStore
    chain: ChainSettings
    engine: Settings
    now_ms: Callable[[], int]
    say: Callable[[str], None]


class Machine:
    """One machine; it is off until it is started."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.url = f"http://{name}:4000"
        self._setting = setting
        self.random = Random(f"machine {setting.seed} {name}")
        self.disk = SimDisk(self.random.getrandbits(32))
        self.clock = MachineClock(setting.now_ms)
        #: Of this member: others of the home may have other ones.
        self.chain = setting.chain
        self._boots = 0
        self._boot()
        self.memories: list[object] = []  # it is never set back
        self.process: Process | None = None
        #: The code of the error that each process ended with.
        self.ends: list[str] = []
        self.anomaly: Anomaly | None = None
        self._life: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        self._setting.say(f"{self.name} {text}")

    @property
    def is_leading(self) -> bool:
        return self.process is not None and self.process.broker is not None

    @property
    def is_on(self) -> bool:
        return self._life is not None

    def start(self) -> None:
        """Switch the machine on, unless it is; its process starts."""
        if self._life is None:
            self._life = asyncio.get_running_loop().create_task(self._live())

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does; what it has sent may still arrive."""
        if self.process is not None:
            self.process.stop()

    def go_on(self) -> None:
        if self.process is not None and self.process.is_stopped:
            self.process.go_on()

    def kill(self, mode: CrashMode | None = None, *, loses_disk: bool = False) -> None:
        """End the process, by kill -9 (None) or a power loss, and perhaps with its disk."""
        if self._life is not None:
            self._life.cancel()
            self._life = None
        if self.process is not None:
            self.process.kill()
            self.process = None
        if loses_disk:
            self.disk = SimDisk(self.random.getrandbits(32))
        elif mode is None:
            self.disk = self.disk.kill()
        else:
            self.disk = self.disk.crash(mode)
            self._boot()

    def _boot(self) -> None:
        """Begin another boot: its clock began some time ago, and at another time than those of other machines."""
        self.clock.boot_behind_ms = self._setting.now_ms() - self.random.randrange(1_000_000)
        self._boots += 1
        self.clock.boot_id = f"boot {self._boots} of {self.name}"

    async def _live(self) -> None:
        """Run one process after the other."""
        setting = self._setting
        settings = ServerSettings(
            data=self.name, home="file:///home", advertise=self.url, chain=self.chain, engine=setting.engine
        )
        while True:
            self.process = process = Process(self, settings)
            running = asyncio.get_running_loop().create_task(process.run(), context=process.context)
            try:
                await asyncio.wait({running})
                self._judge(running)
            except Anomaly as anomaly:
                self.anomaly = anomaly
                return
            process.kill()
            self.disk = self.disk.kill()  # what is left of the process touches nothing any more
            await asyncio.sleep(self.random.uniform(0.05, 1.5))

    def _judge(self, running: asyncio.Task[None]) -> None:
        """Check that a process may have ended with this error."""
        error = None if running.cancelled() else running.exception()
        if not isinstance(error, TenureError):
            raise Anomaly("unexpected", f"the process of {self.name} ended with {error!r}")
        self.ends.append(error.code)
        self.say(f"ends: {describe(error)}")
        if isinstance(error, Corrupt):
            raise Anomaly("false_corrupt", f"the store loses nothing, and {self.name} says: {error.message}")
        if error.code not in _EXPECTED or (self.process is not None and self.process.has_settled):
            raise Anomaly("unexpected", f"the process of {self.name} ends with {error!r}")
