"""A world: one store, some machines that want to lead its home, one virtual time and one seed.

The nemesis strikes in steps. Each draws from a random of its own, made from the seed and the step's number, so that a
world can be played again without some of its steps.
"""

from __future__ import annotations

import asyncio
import random as process_random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final
from unittest import mock

from tenure.chain.settings import ChainSettings
from tenure.testing.store_faults import Fault
from tests.chain.worlds.blocking import InlineBackground
from tests.chain.worlds.loop import VirtualLoop
from tests.chain.worlds.machine import Machine
from tests.chain.worlds.nemesis import LATER_TRAITS, TRAITS, strike
from tests.chain.worlds.ops import diverged_ops
from tests.chain.worlds.process import Setting
from tests.chain.worlds.small_parts import make_parts_small
from tests.chain.worlds.store import WorldStore
from tests.chain.worlds.witness import Witness
from tests.lives.anomaly import Anomaly

__all__ = ["STEPS", "World"]

STEPS: Final = 10
_END_S: Final = 120
_WHOLE_SHARE: Final = 0.05
_PART_BYTES: Final = 100


def _settings(random: Random, *, has_long_epochs: bool) -> ChainSettings:
    """Return times so short that a world of half a minute has everything in it."""
    return ChainSettings(
        lapse_ms=300,
        keep_ms=350,
        silence_ms=700,
        prove_ms=900,
        hint_ms=250,
        place_ms=60_000 if has_long_epochs else 300,
        epoch_links_max=25 if has_long_epochs else random.choice((3, 8)),
        reads_max=4,
        backoff_ms_max=500,
    )


class World:
    """One world; ``play`` raises the first anomaly."""

    def __init__(self, seed: int, *, traits: Iterable[str] | None = None, is_whole: bool | None = None) -> None:
        self.seed = seed
        random = Random(f"world {seed}")
        drawn = {trait for trait in TRAITS if random.random() < 0.5}
        later = Random(f"later {seed}")
        drawn |= {trait for trait in LATER_TRAITS if later.random() < 0.5}
        self.traits = drawn if traits is None else set(traits)
        if "memory" in self.traits:
            self.traits -= {"clock", "frozen"}  # a machine that is set back has one clock that is right
        self.is_whole = random.random() < _WHOLE_SHARE if is_whole is None else is_whole
        self.story: list[str] = []
        self.loop = VirtualLoop()
        self.witness = Witness()
        slow = 0.03 if "slow" in self.traits else 0.0
        self.store = WorldStore(f"store {seed}", lambda: self.loop.now_ms, slow=slow, chances=self._chances())
        self.setting = Setting(
            seed=seed,
            store=self.store,
            witness=self.witness,
            chain=_settings(random, has_long_epochs="long" in self.traits),
            now_ms=lambda: self.loop.now_ms,
            say=self.say,
            is_whole=self.is_whole,
            collects="collect" in self.traits,
            remembers="memory" in self.traits,
            gap_s=random.choice((0.1, 0.2, 0.5)),
        )
        self._machine_count = random.choice((2, 2, 3))
        self.machines: list[Machine] = []
        #: Set once every fault has ended.
        self.is_healed = False

    def _chances(self) -> dict[Fault, float]:
        chances: dict[Fault, float] = {}
        if "lossy" in self.traits:
            chances |= {"lost_request": 0.02, "lost_reply": 0.04, "duplicate": 0.02, "false_exists": 0.03}
        if "late" in self.traits:
            chances |= {"late": 0.04, "refused": 0.01}
        return chances

    def say(self, text: str) -> None:
        self.story.append(f"{self.loop.now_ms:>7} {text}")

    def tally(self) -> Counter[str]:
        """Return how much happened."""
        objects, witness = self.store.objects, self.witness
        return Counter(
            acknowledged=len(witness.acked),
            denied=len(witness.denied),
            leads=len(witness.leads),
            freed=sum(key.startswith("freed/") for key in objects),
            aside=sum(len(diverged_ops(machine.disk)) for machine in self.machines),
            requests=len(self.store.calls),
            **Counter(error for machine in self.machines for error in machine.ends),
        )

    def add_machine(self) -> Machine:
        machine = Machine(f"m{len(self.machines)}", self.setting)
        self.machines.append(machine)
        if "swallow" in self.traits and not self.is_healed:
            self.store.swallowed[machine.name] = Random(f"{self.seed} {machine.name}").choice((0, 0.01, 0.03))
        self.say(f"{machine.name} joins")
        return machine

    def play(self, steps: Sequence[int] = range(STEPS)) -> None:
        """Play the world to its end; raises Anomaly."""
        with _isolated(self.seed, has_parts="parts" in self.traits):
            try:
                self.loop.run_until_complete(self._play(steps))
            finally:
                self.loop.end()

    async def _play(self, steps: Sequence[int]) -> None:
        for _ in range(self._machine_count):
            self.add_machine().start()
        await asyncio.sleep(Random(f"start {self.seed}").choice((0, 2)))
        for number in steps:
            random = Random(f"step {self.seed} {number}")
            await asyncio.sleep(random.choice((0.1, 1, 4, 10)) * random.random())
            self._look()
            strike(self, random)
        await asyncio.sleep(1)
        await self._end()

    def _look(self) -> None:
        """Raise what somebody found meanwhile."""
        for machine in self.machines:
            if machine.anomaly is not None:
                raise machine.anomaly
        if self.loop.escaped:
            raise Anomaly("escaped", self.loop.escaped[0])

    async def _end(self) -> None:
        """End every fault, see that somebody leads and commits, then read the home with an empty disk."""
        self.say("every fault ends")
        self.is_healed = True
        self.store.heal()
        for machine in self.machines:
            machine.go_on()
            machine.start()
        before = len(self.witness.acked)
        await self._wait_for(lambda: len(self.witness.acked) > before + 3, "nobody commits anything")
        for machine in self.machines:
            machine.kill()
        reader = self.add_machine()
        reader.start()
        await self._wait_for(lambda: reader.is_leading, "a new machine does not come to lead")
        self.witness.check_end(self.witness.leads[-1])

    async def _wait_for(self, is_so: Callable[[], bool], otherwise: str) -> None:
        for _ in range(_END_S * 10):
            self._look()
            if is_so():
                return
            await asyncio.sleep(0.1)
        raise Anomaly("no_leader", f"{otherwise} within {_END_S} s without a fault")


@contextmanager
def _isolated(seed: int, *, has_parts: bool) -> Iterator[None]:
    """Make the process's randomness that of the seed, and its background loop the virtual one."""
    drawn = Random(f"secrets {seed}")
    state = process_random.getstate()
    process_random.seed(seed)
    with ExitStack() as stack:
        if has_parts:
            make_parts_small(stack, _PART_BYTES)
        for room in ("keeper", "signs", "shipped", "home_upkeep"):
            stack.enter_context(mock.patch(f"tenure.chain.{room}.background", InlineBackground))
        stack.enter_context(mock.patch("tenure.chain.member.probe", _no_probe))
        stack.enter_context(mock.patch("secrets.token_bytes", drawn.randbytes))
        stack.enter_context(mock.patch("secrets.token_hex", lambda count: drawn.randbytes(count).hex()))
        try:
            yield
        finally:
            process_random.setstate(state)


async def _no_probe(*arguments: object, **options: object) -> None:
    """Leave the probe out: it has tests of its own, and would be most of the requests of a world."""
