"""A process on a machine: it becomes the leader, answers its callers, and ends with an error that must be justified."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tenure.chain.chain import Chain
from tenure.chain.hint import Hint
from tenure.chain.keeper import Keeper
from tenure.chain.leadership import Leadership
from tenure.chain.member import Member
from tenure.chain.settings import ChainSettings
from tenure.chain.signs import Signs
from tenure.errors import Corrupt, NotLeader, TenureError
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.patience import Patience
from tenure.objects.retrying import RetryingStore
from tenure.testing.simdisk import SimDisk
from tests.chain.worlds.bare_log import BareLog
from tests.chain.worlds.ops import diverged_ops
from tests.chain.worlds.store import MachineClient, WorldStore
from tests.chain.worlds.whole_log import WholeLog
from tests.chain.worlds.witness import Lead, Witness, fences
from tests.lives.anomaly import Anomaly

if TYPE_CHECKING:
    from tests.chain.worlds.machine import Machine

__all__ = ["Memory", "Process", "Setting"]

_MEMORIES_MAX: Final = 4
_EXPECTED: Final = {
    "chain_freed",
    "home_led",
    "left_behind",
    "overtaken",
    "store_refused",
    "store_unknown",
    "went_back",
}
"""What a process may end with where the store loses nothing: it is started again."""


class Setting(NamedTuple):
    """What the machines of a world share. ``gap_s`` is the mean time between two writes of their callers."""

    seed: int
    store: WorldStore
    witness: Witness
    chain: ChainSettings
    now_ms: Callable[[], int]
    say: Callable[[str], None]
    is_whole: bool
    collects: bool
    remembers: bool
    gap_s: float


class Memory(NamedTuple):
    """A leader as it was at a moment: right before it sent a link whose callers wait."""

    log: BareLog
    disk: SimDisk
    waiting: list[int]
    boot_ms: int
    wall_ms: int
    at_ms: int


class Process:
    """One life of the process of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._setting = machine.setting
        self._witness = machine.setting.witness
        self._random = machine.random
        self.is_leading = False
        #: Set where an operator stops the process in good order.
        self.wants_release = False

    async def run(self, memory: Memory | None) -> None:
        """Live until something ends it: a rival, the store, or its operator."""
        try:
            if memory is None:
                await self._serve()
            else:
                await self._remember(memory)
        except TenureError as error:
            self._judge(error)

    def _judge(self, error: TenureError) -> None:
        machine = self._machine
        machine.ends.append(error.code)
        self._setting.say(f"{machine.name} ends: {type(error).__name__} {error.code}: {error.message[:90]}")
        if error.code == "went_back" and not machine.was_set_back:
            raise Anomaly("false_went_back", f"{machine.name} was never set back, and says: {error.message}")
        if isinstance(error, Corrupt):
            raise Anomaly("false_corrupt", f"the store loses nothing, and {machine.name} says: {error.message}")
        if not isinstance(error, NotLeader) and error.code not in _EXPECTED:
            raise Anomaly("unexpected", f"{machine.name} ends with {error!r}")

    # Becoming the leader

    def _retrying(self) -> RetryingStore:
        store = Metered(MachineClient(self._setting.store, self._machine), StoreMetrics())
        return RetryingStore(store, self._chain, patience=Patience(self._chain.beat_ms))

    @property
    def _chain(self) -> ChainSettings:
        return self._setting.chain

    async def _serve(self) -> None:
        machine = self._machine
        about = {"settings": self._chain, "clock": machine.clock}
        member = Member(self._retrying(), machine.disk, **about, url=machine.name, is_over=lambda: False)  # type: ignore[arg-type]
        leadership, notes = await member.lead()
        self._setting.say(f"{machine.name} leads epoch {leadership.epoch} from {leadership.place.end}")
        log_type = WholeLog if self._setting.is_whole else BareLog
        log = log_type(machine.disk, leadership, notes)
        ops = await log.open()
        self._check_tail(set(ops), leadership.epoch)
        self._witness.ack(ops, leadership.epoch)
        self._witness.lead(Lead(leadership.epoch, machine.name, ops))
        machine.tail = {}
        await self._work(log)

    async def _remember(self, memory: Memory) -> None:
        """Go on where the machine was when its memory was kept: the callers of that time still wait."""
        leadership = copy.copy(memory.log.leadership)
        leadership.chain = Chain(self._retrying(), leadership.chain.log_id, self._chain)
        log = memory.log.copy(self._machine.disk, leadership)
        await self._ship(log, memory.waiting)
        await self._work(log, is_zombie=True)

    def _signs(self, leadership: Leadership) -> Signs:
        machine = self._machine
        return Signs(
            leadership.chain.store,
            settings=self._chain,
            clock=machine.clock,
            directory=leadership.fence.directory.hex(),
            say=lambda: Hint(url=machine.name, epoch=leadership.epoch),
            looks=False,
        )

    def _check_tail(self, ops: set[int], epoch: int) -> None:
        """Check what became of what was written here and not shipped: it is kept, unless another machine led since."""
        machine = self._machine
        by = fences(self._setting.store.objects)
        aside: set[int] | None = None
        for op, (written, _) in machine.tail.items():
            rivals = [each for each in by if written < each < epoch and by[each] != machine.name]
            if op in ops:
                for lead in self._witness.leads:
                    if lead.epoch in rivals and op not in lead.ops:
                        raise Anomaly("resurrected", f"{lead.name} led without operation {op}, and it came back")
                continue
            if not rivals:
                raise Anomaly("lost_tail", f"nobody overtook {machine.name}, and operation {op} did not survive")
            aside = diverged_ops(machine.disk) if aside is None else aside
            if op not in aside:
                raise Anomaly("dropped_tail", f"{machine.name} was overtaken, and operation {op} was not moved aside")

    # Leading

    async def _work(self, log: BareLog | WholeLog, *, is_zombie: bool = False) -> None:
        machine, random, leadership = self._machine, self._random, log.leadership
        self.is_leading = True
        Keeper(leadership, lambda lost: None).start()
        self._signs(leadership).start()
        if self._setting.collects:
            machine.adopt(asyncio.get_running_loop().create_task(self._keep_house(log)))
        while True:
            await asyncio.sleep(random.expovariate(1 / self._setting.gap_s))
            await machine.awake()
            if leadership.lost is not None:
                raise leadership.lost
            if self.wants_release:
                await log.release()
                return
            ops = self._witness.new_ops(random.randint(1, 3))
            outlasts = log.append(ops)
            if not is_zombie:
                machine.tail.update(dict.fromkeys(ops, (leadership.epoch, outlasts)))
            if random.random() < 0.75:  # else the callers wanted class `disk`, and have their answer
                if self._setting.remembers and isinstance(log, BareLog) and random.random() < 0.2:
                    self._keep_memory(log, ops)
                await self._ship(log, ops)

    async def _ship(self, log: BareLog | WholeLog, waiting: list[int]) -> None:
        """Ship, and answer those who wait."""
        machine = self._machine
        written = [*machine.tail, *waiting]
        try:
            await log.ship()
        except NotLeader:
            self._witness.deny(waiting)
            raise
        self._witness.ack(written, log.leadership.epoch)
        for op in written:
            machine.tail.pop(op, None)

    def _keep_memory(self, log: BareLog, waiting: list[int]) -> None:
        machine = self._machine
        disk = machine.disk.kill()
        kept = log.copy(disk, copy.copy(log.leadership))
        times = (machine.clock.boot_ms(), machine.clock.wall_ms(), self._setting.now_ms())
        memory = Memory(kept, disk, waiting, *times)
        machine.memories = [*machine.memories, memory][-_MEMORIES_MAX:]

    async def _keep_house(self, log: BareLog | WholeLog) -> None:
        """Store checkpoints and collect, as long as the process lives."""
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 0.8))
            await self._machine.awake()
            try:
                await log.keep_house()
            except (TenureError, OSError) as error:
                if isinstance(error, Corrupt):
                    log.leadership.lost = log.leadership.lost or error
