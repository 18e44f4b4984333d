"""A life: one store, some members of one home with their clients, one virtual time and one seed."""

from __future__ import annotations

import asyncio
import random as process_random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, Final
from unittest import mock

import msgspec
from msgspec.structs import replace

from tenure.broker.broker import Broker
from tenure.chain.hint import Hint
from tenure.chain.keys import hint_key
from tenure.chain.settings import ChainSettings
from tenure.chain.stored_checkpoint import CHECKPOINTS, StoredCheckpoint, segment_key
from tenure.contract.provenance import read
from tenure.core.state.snapshot import dump_state, dump_topic
from tenure.core.state.state import State
from tenure.errors import TenureError
from tenure.settings import Settings
from tenure.testing import History, check_history
from tenure.testing.store_faults import Fault
from tests.chain.members.clients import (
    DEAD,
    DELIVERIES_MAX,
    JOBS,
    LOG,
    TOPICS,
    Client,
    Container,
    Producer,
    Reader,
    Shared,
    Unknown,
    Worker,
    id_of,
)
from tests.chain.members.loop import MembersLoop
from tests.chain.members.machine import Machine, Setting
from tests.chain.members.nemesis import MEMBER_DEEDS
from tests.chain.members.store import ProcessClient
from tests.chain.worlds.blocking import InlineBackground, owner
from tests.chain.worlds.nemesis import strike
from tests.chain.worlds.small_parts import make_parts_small
from tests.chain.worlds.store import WorldStore
from tests.lives.anomaly import Anomaly

__all__ = ["STEPS", "TRAITS", "Life"]

STEPS: Final = 6
TRAITS: Final = (
    "away",
    "shadow",
    "release",
    "join",
    "collect",
    "slow",
    "lossy",
    "late",
    "ambush",
    "clock",
    "orphan",
    "restart",
    "reply",
    "container",
)
#: Those that came later are drawn by themselves, so that a seed goes on to stand for the same life otherwise.
LATER_TRAITS: Final = ("mixed", "parts", "uplink", "swallow", "dead")
_END_S: Final = 120
_PART_BYTES: Final = 400
_LARGE_PART_BYTES: Final = 100_000
_MIB: Final = 1 << 20


def _chain_settings(random: Random) -> ChainSettings:
    """Return times so short that a life of half a minute has everything in it."""
    return ChainSettings(
        lapse_ms=300,
        keep_ms=350,
        silence_ms=700,
        prove_ms=900,
        hint_ms=250,
        beat_ms=100,
        grant_ms=random.choice((300, 300, 700)),
        poll_ms=30,
        place_ms=300,
        epoch_links_max=random.choice((8, 25, 1000)),
        reads_max=4,
        backoff_ms_max=500,
    )


def _mixed_settings(settings: ChainSettings, random: Random) -> ChainSettings:
    """Return the settings of one member of a home whose members are not all set alike."""
    beat_ms = random.choice((50, 100, 100, 150))
    grant_ms = beat_ms * random.choice((2, 3, 7, 20))
    return replace(settings, beat_ms=beat_ms, grant_ms=grant_ms, poll_ms=random.choice((15, 30, 60)))


def _engine_settings(random: Random, *, collects: bool) -> Settings:
    return Settings(
        segment_bytes=random.choice((2_048, 8_192)),
        checkpoint_bytes=random.choice((500, 4_000)) if collects else 256 * _MIB,
        sync_interval_ms=20,
        suspects_wait_ms=random.choice((100, 1_000, 30_000)),
        begun_retry_ms=100,
    )


class Life:
    """One life; ``play`` raises the first anomaly."""

    def __init__(self, seed: int, *, traits: Iterable[str] | None = None) -> None:
        self.seed = seed
        random = Random(f"life {seed}")
        drawn = {trait for trait in TRAITS if random.random() < 0.5}
        later = Random(f"later {seed}")
        drawn |= {trait for trait in LATER_TRAITS if later.random() < 0.5}
        self.traits = drawn if traits is None else set(traits)
        self.story: list[str] = []
        self.loop = MembersLoop()
        slow = 0.02 if "slow" in self.traits else 0.0
        self.store = WorldStore(f"store {seed}", lambda: self.loop.now_ms, slow=slow, chances=self._chances())
        self.setting = Setting(
            seed=seed,
            store=self.store,
            chain=_chain_settings(random),
            engine=self._engine(_engine_settings(random, collects="collect" in self.traits)),
            now_ms=lambda: self.loop.now_ms,
            say=self.say,
        )
        self._machine_count = random.choice((2, 2, 3))
        self.machines: list[Machine] = []
        self.shared = Shared(self.machines, History(), lambda: self.loop.now_ms, [], [], [])
        if "uplink" in self.traits:
            self.shared = self.shared._replace(sizes=(0, 0, 0, 60_000, 700_000))
        self._clients: list[asyncio.Task[None]] = []
        #: Set once every fault has ended.
        self.is_healed = False

    def _engine(self, settings: Settings) -> Settings:
        """Return the settings of brokers whose segments hold more than one of the records."""
        if "uplink" not in self.traits:
            return settings
        checkpoint_bytes = min(settings.checkpoint_bytes * 1_000, 256 * _MIB)
        return replace(settings, segment_bytes=settings.segment_bytes * 1_024, checkpoint_bytes=checkpoint_bytes)

    def _chances(self) -> dict[Fault, float]:
        chances: dict[Fault, float] = {}
        if "lossy" in self.traits:
            chances |= {"lost_request": 0.01, "lost_reply": 0.02, "duplicate": 0.02, "false_exists": 0.02}
        if "late" in self.traits:
            chances |= {"late": 0.02, "refused": 0.005}
        return chances

    def say(self, text: str) -> None:
        self.story.append(f"{self.loop.now_ms:>7} {text}")

    def tally(self) -> Counter[str]:
        """Return how much happened."""
        history = self.shared.history
        return Counter(
            rows=len(history),
            acknowledged=len(self.shared.acked),
            requests=len(self.store.calls),
            leads=sum(line.endswith(" leads") for line in self.story),
            handovers=sum(line.endswith(" gave the lead away") for line in self.story),
            checkpoints=self.store.count("put_new", CHECKPOINTS),
            lives=1,
            virtual_s=self.loop.now_ms // 1000,
            **Counter(error for machine in self.machines for error in machine.ends),
        )

    def add_machine(self) -> Machine:
        machine = Machine(f"m{len(self.machines)}", self.setting)
        self.machines.append(machine)
        if "mixed" in self.traits:
            drawn = Random(f"settings {self.seed} {machine.name}")
            machine.chain = _mixed_settings(self.setting.chain, drawn)
        if "swallow" in self.traits and not self.is_healed:
            self.store.swallowed[machine.name] = Random(f"{self.seed} {machine.name}").choice((0, 0.01, 0.03))
        if "uplink" in self.traits and not self.is_healed:
            rates = self.store.uplinks.bytes_per_s
            rates[machine.name] = int(500_000 * 16 ** Random(f"uplink {self.seed} {machine.name}").random())
        if "clock" in self.traits:  # walls that differ by minutes: log time goes on from the links all the same
            machine.clock.wall_behind_ms = machine.random.randrange(-600_000, 600_000)
        self.say(f"{machine.name} joins")
        return machine

    def play(self, steps: Sequence[int] = range(STEPS)) -> None:
        """Play the life to its end; raises Anomaly."""
        with _isolated(self):
            try:
                self.loop.run_until_complete(self._play(steps))
            finally:
                self.loop.end()

    async def _play(self, steps: Sequence[int]) -> None:
        try:
            await self._go_through(steps)
        finally:
            for machine in self.machines:
                machine.kill()

    async def _go_through(self, steps: Sequence[int]) -> None:
        if "dead" in self.traits:
            self._bury()
        for _ in range(self._machine_count):
            self.add_machine().start()
        await self._prepare()
        self._start_clients()
        await self._befall(steps)
        await asyncio.sleep(1)
        await self._end()

    def _bury(self) -> None:
        """Leave the hints of members that died: a few, or more than anybody reads."""
        drawn = Random(f"dead {self.seed}")
        for number in range(drawn.choice((2, 5, 5, 150))):
            hint = Hint(url=f"http://dead-{number}:4000", leads=drawn.random() < 0.5, epoch=3, number=number)
            key = hint_key(f"{drawn.getrandbits(128):032x}")
            self.store.objects[key] = (msgspec.json.encode(hint), self.store.clock_ms - 3_000)

    async def _befall(self, steps: Sequence[int]) -> None:
        """Do to the machines what the seed says; a directed life has a story of its own instead."""
        for number in steps:
            random = Random(f"step {self.seed} {number}")
            await asyncio.sleep(random.choice((0.1, 1, 3)) * random.random())
            self._look()
            strike(self, random, MEMBER_DEEDS)  # type: ignore[arg-type]

    async def _prepare(self) -> None:
        """Wait for the first leader, and make the topics."""
        client = self._client("operator", Client)
        for topic, config in TOPICS.items():
            await self._repeat(client, partial(_put_topic, topic=topic, config=config))

    async def _repeat(self, client: Client, act: Callable[[Any], Any]) -> Any:
        """Call until it is answered; for what may be repeated, when nothing befalls anybody any more."""
        found: list[Any] = []

        async def attempt() -> bool:
            try:
                found.append(await client.call(act))
            except (TenureError, Unknown):
                return False
            return True

        for _ in range(_END_S * 10):
            self._look()
            if await attempt():
                return found[0]
            await asyncio.sleep(0.1)
        raise Anomaly("no_leader", f"nobody answers within {_END_S} s without a fault")

    def _client(self, name: str, kind: type[Any]) -> Any:
        return kind(name, self.shared, Random(f"client {self.seed} {name}"))

    def _start_clients(self) -> None:
        work = [
            self._client("p0", Producer).run(JOBS),
            self._client("p1", Producer).run(LOG),
            self._client("w0", Worker).run(),
            self._client("w1", Container if "container" in self.traits else Worker).run(),
            *(self._client(f"r{at}", Reader).run(at) for at in range(self._machine_count)),
        ]
        self._clients = [asyncio.get_running_loop().create_task(each) for each in work]

    def _look(self) -> None:
        """Raise what somebody found meanwhile."""
        if self.shared.anomalies:
            raise self.shared.anomalies[0]
        for machine in self.machines:
            if machine.anomaly is not None:
                raise machine.anomaly
        for task in self._clients:
            if task.done() and not task.cancelled():
                task.result()
        if self.loop.escaped:
            raise Anomaly("escaped", self.loop.escaped[0])

    async def _end(self) -> None:
        """End every fault, drain, compare the members, and read the home once more with an empty disk."""
        self.say("every fault ends")
        self.is_healed = True
        self.store.heal()
        for machine in self.machines:
            machine.go_on()
            machine.start()
        await asyncio.sleep(1)
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._look()
        await self._drain()
        await self._compare()
        self._check()
        self._check_home()
        await self._start_cold()

    async def _drain(self) -> None:
        """Deliver and ack everything that is left, and read the dead letters and the log."""
        worker = self._client("drain", Worker)
        history = self.shared.history
        for _ in range(_END_S * 10):
            self._look()
            jobs = await worker.claim(500, 60_000)
            if jobs:
                await worker.settle("ack", jobs)
            elif not (await self._repeat(worker, lambda broker: _now(broker.topic(JOBS).count))):
                break
            else:
                await asyncio.sleep(0.1)
        else:
            raise Anomaly("stuck", "jobs are left that nobody can claim")
        letters = await self._read(worker, DEAD)
        origins = [read(record.meta) for record in letters]
        tries = [(origin.tries or origin.deliveries) if origin else 0 for origin in origins]
        history.dead_letters([id_of(record.data) for record in letters], tries=tries)
        records = await self._read(worker, LOG)
        history.watched(LOG, [record.seq for record in records], [id_of(record.data) for record in records], by="drain")

    async def _read(self, client: Client, topic: str) -> list[Any]:
        """Return every record of a topic, none where there is no such topic."""

        async def act(broker: Broker) -> list[Any]:
            records: list[Any] = []
            if topic not in broker.topics().items:
                return records
            while len(page := (await broker.diff(topic, from_seq=records[-1].seq if records else 0)).records):
                records += page
            return records

        return list(await self._repeat(client, act))

    async def _compare(self) -> None:
        """Wait until every member has read to the end, and compare what they folded."""
        for _ in range(_END_S * 30):  # a read that was swallowed is given up after a minute
            self._look()
            states = self._states()
            if len(states) == len(self.machines) and len(set(states.values())) == 1:
                return
            await asyncio.sleep(0.0371)
        names = {name: len(state) for name, state in self._states().items()}
        raise Anomaly("unequal", f"members never come to one state: {names} of {len(self.machines)}")

    def _states(self) -> dict[str, bytes]:
        """Return the folded state of each member that has one."""
        states: dict[str, bytes] = {}
        for machine in self.machines:
            state = None if machine.process is None else machine.process.state
            if state is not None:
                states[machine.name] = _folded(state)
        return states

    def _check(self) -> None:
        report = check_history(self.shared.history, deliveries_max=DELIVERIES_MAX)
        if not report.ok:
            raise Anomaly("history", str(report))

    def _check_home(self) -> None:
        """Check that every segment is there which the two checkpoints need that a new member may begin at."""
        objects = self.store.objects
        for key in sorted((key for key in objects if key.startswith(CHECKPOINTS)), reverse=True)[:2]:
            head, _ = StoredCheckpoint.unpack(objects[key][0], key)
            for segment in head.segments:
                if segment_key(segment) not in objects:
                    raise Anomaly("broken_checkpoint", f"{key}, made by a {head.role}, needs {segment_key(segment)}")

    async def _start_cold(self) -> None:
        """Kill all members; one with an empty disk must serve what was there."""
        before = max(self.shared.acked, default=0)
        for machine in self.machines:
            machine.kill()
        reader = self.add_machine()
        reader.start()
        del self.machines[:-1]
        head = await self._repeat(
            self._client("cold", Client), lambda broker: _now((broker.topic(LOG).head_seq, broker.topic(JOBS).count))
        )
        if head[0] < before or head[1]:
            raise Anomaly("lost", f"a new member has the log up to {head[0]} of {before}, and {head[1]} jobs")


def _folded(state: State) -> bytes:
    """Return what a state says, without where its records lie: an index may know more of what is done."""
    topics = (dump_topic(topic, now_ms=0) for _, topic in sorted(state.by_id.items()))
    return b"".join((dump_state(state), *topics))


def _put_topic(broker: Broker, *, topic: str, config: Mapping[str, Any]) -> Awaitable[Any]:
    return broker.put_topic(topic, config)


async def _now(value: Any) -> Any:
    return value


@contextmanager
def _isolated(life: Life) -> Iterator[None]:
    """Make the process's randomness that of the seed, its background loop the virtual one, and its disks simulated."""
    drawn = Random(f"secrets {life.seed}")
    state = process_random.getstate()
    process_random.seed(life.seed)
    rooms = (
        "chain.keeper",
        "chain.shipped",
        "chain.home_upkeep",
        "chain.signs",
        "chain.open",
        "http.shared_home",
        "http.successor",
    )

    def patch(target: str, value: object) -> None:
        stack.enter_context(mock.patch(target, value))

    with ExitStack() as stack:
        if "parts" in life.traits:
            make_parts_small(stack, _PART_BYTES if "uplink" not in life.traits else _LARGE_PART_BYTES)
        for room in rooms:
            patch(f"tenure.{room}.background", InlineBackground)
        patch("tenure.chain.member.probe", _no_probe)
        patch("tenure.chain.standby.Random", lambda: Random(drawn.getrandbits(32)))
        patch("tenure.http.shared_home.open_home_store", lambda settings: ProcessClient(life.store, _process()))
        patch("tenure.http.shared_home.open_directory", lambda path: _process().machine.disk)
        patch("secrets.token_bytes", drawn.randbytes)
        patch("secrets.token_hex", lambda count: drawn.randbytes(count).hex())
        try:
            yield
        finally:
            process_random.setstate(state)


def _process() -> Any:
    return owner.get()


async def _no_probe(*arguments: object, **options: object) -> None:
    """Leave the probe out: it has tests of its own, and would be most of the requests of a life."""
