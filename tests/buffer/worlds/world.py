"""`World`: one buffer, and producers that share names: restarted beside predecessors, paused, killed, refused.

Time is virtual, and the product's code runs unchanged but for three things: a batch is its entries and not Parquet,
encoding takes a drawn time, and everything random is drawn from the seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

from tenure.buffer import BufferSettings, Collector, Producer
from tenure.buffer.manifest import create, journal, keys
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.fold import invariants
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.writing import uploads
from tenure.errors import TenureError
from tenure.testing.simdisk import PowerLoss
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.buffer.worlds.witness import Witness
from tests.chain.worlds.loop import VirtualLoop

__all__ = ["World"]

T = TypeVar("T")
_NAMES: Final = ("web", "till", None)
"""The last stands for producers without a name, of which the manifest forgets those that are silent, or too many."""
_SETTINGS: Final = BufferSettings(
    flush_interval_ms=5,
    flush_bytes=200,
    call_attempts_max=4,
    delivery_timeout_ms=2_000,
    conflict_ms_max=20,
    backoff_ms_max=200,
    run_entries=8,
    checkpoint_deltas=4,
    free_deltas=4,
    grace_ms=0,
    upkeep_ms_max=100,
    producers_max=4,
    forget_producer_ms=100,
)
_ENCODING_MS_MAX: Final = 40
_PAUSE_MS_MAX: Final = 3_000
_BEGAN_MS: Final = 1_700_000_000_000


class EncodingLoop(VirtualLoop):
    """A virtual loop whose threads take a drawn time, so that a batch that was sealed first may be encoded last."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done = super().run_in_executor(executor, func, *args)
        late: asyncio.Future[T] = self.create_future()

        def finish() -> None:
            if not late.done():
                late.set_result(done.result())

        self.call_later(self._chance.uniform(0, _ENCODING_MS_MAX) / 1000, finish)
        return late


class SeededSecrets:
    """What takes the place of the module ``secrets``."""

    def __init__(self, chance: Random) -> None:
        self.randbits = chance.getrandbits
        self._chance = chance

    def token_hex(self, size: int) -> str:
        return f"{self._chance.getrandbits(8 * size):0{2 * size}x}"


class SkewedClock:
    """The clock of one process, which may be wrong."""

    boot_id = "world"

    def __init__(self, loop: VirtualLoop, skew_ms: int) -> None:
        self._loop, self._skew_ms = loop, skew_ms

    def boot_ms(self) -> int:
        return self._loop.now_ms

    def wall_ms(self) -> int:
        return _BEGAN_MS + self._loop.now_ms + self._skew_ms

    def subscribe(self, moved: Callable[[], None]) -> None:
        pass


class World:
    """One course of events, given by its seed; ``play`` raises Anomaly where something happened that must not."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"named producers {seed}")
        self._loop = EncodingLoop(self._chance)
        self.store = SimStore(now_ms=_BEGAN_MS)
        self.witness = Witness()
        self.tally: Counter[str] = Counter()
        self._pauses: dict[str, float] = {}
        self._outages: list[tuple[float, float]] = []
        self._holds: list[Hold] = []
        self._lives = 0

    def play(self) -> None:
        with _seeded(self._chance):
            try:
                self._loop.run_until_complete(self._play())
            finally:
                self._loop.end()

    async def _play(self) -> None:
        await self._journal().open(create=True)
        self._let_faults_in()
        lives = [self._live_on(name) for name in _NAMES[: self._chance.randint(1, 3)]]
        collecting = asyncio.ensure_future(self._collect())
        await asyncio.gather(*lives)
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        await self._judge()

    def _journal(self) -> Journal:
        return Journal(self.store, settings=_SETTINGS, clock=SkewedClock(self._loop, 0))

    async def _judge(self) -> None:
        """Let everything under way arrive, then hold what is in the buffer against what was answered."""
        self.store.hook = lambda call: None
        self.store.shake(0, {})
        for hold in self._holds:
            hold.release()
        self.store.deliver_late()
        await asyncio.sleep(60)
        follower = self._journal()
        invariants(await follower.open(create=False, writing=False))
        async for descriptor in Catalog(follower).walk(0, follower.state.next_seq):
            data, _ = self.store.objects[descriptor.location]
            self.witness.stored(descriptor.seq, data.decode().split("\n"))
        self.witness.judge()

    # Faults

    def _let_faults_in(self) -> None:
        chance, often = self._chance, self._chance.choice([0.0, 0.01, 0.05])
        chances: dict[Fault, float] = dict.fromkeys(
            ("lost_request", "lost_reply", "duplicate", "late", "false_exists"), often
        )
        self.store.shake(chance.getrandbits(32), chances)
        for _ in range(chance.choice([0, 0, 1, 2])):
            began_s = chance.uniform(0, 3)
            self._outages.append((began_s, began_s + chance.choice([0.3, 1.5, 4])))
        self.store.hook = self._on_call

    def _on_call(self, call: Call) -> Fault | Hold | None:
        """Hold calls of a process that stands still until it goes on, and some others for a while; fail in outages."""
        self.store.clock_ms = _BEGAN_MS + self._loop.now_ms
        if any(began_s <= self._loop.time() < ended_s for began_s, ended_s in self._outages):
            fault: Fault = self._chance.choice(("lost_request", "lost_request", "lost_reply", "late"))
            return fault
        wait_s = self._pauses.get(call.client, 0.0) - self._loop.time()
        if wait_s <= 0:
            wait_s = self._chance.uniform(0, 0.2) if self._chance.random() < 0.3 else 0.0
        if wait_s <= 0:
            return None
        hold = Hold(is_done=self._chance.random() < 0.3)
        self._holds.append(hold)
        self._loop.call_later(wait_s, hold.release)
        return hold

    # Processes

    async def _live_on(self, name: str | None) -> None:
        """Start one process of this name after the other, some while the one before still lives."""
        running: set[asyncio.Task[None]] = set()
        for _ in range(self._chance.randint(2, 5)):
            self._lives += 1
            running.add(asyncio.ensure_future(self._live(name, f"{name or 'any'}-{self._lives}")))
            await asyncio.sleep(self._chance.uniform(0, 0.4))
            if self._chance.random() < 0.3:
                await asyncio.wait(running)
        await asyncio.wait(running)
        for life in running:
            life.result()

    async def _live(self, name: str | None, client: str) -> None:
        """Produce some batches as one process, which may be paused, killed, refused or fenced."""
        skew_ms = self._chance.choice([0, 0, -5_000, 5_000, -3_600_000])
        clock = SkewedClock(self._loop, skew_ms)
        producer = Producer(self.store.client(client), name=name, settings=_SETTINGS, clock=clock)
        ending = asyncio.ensure_future(self._produce(producer, client))
        killed_after_s = self._chance.uniform(0, 2) if self._chance.random() < 0.3 else None
        await asyncio.wait([ending], timeout=killed_after_s)
        if not ending.done():
            self.tally["killed"] += 1
            producer._journal.store.inner.crash()  # type: ignore[attr-defined]
            ending.cancel()
        for error in await asyncio.gather(ending, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(
                error, (TenureError, PowerLoss, asyncio.CancelledError)
            ):
                raise error

    async def _produce(self, producer: Producer, client: str) -> None:
        await producer.start()
        self.tally["producers"] += 1
        answers = []
        try:
            for number in range(self._chance.randint(1, 8)):
                if self._chance.random() < 0.15:
                    self._pauses[client] = self._loop.time() + self._chance.uniform(0, _PAUSE_MS_MAX) / 1000
                entry = f"{client}:{number}".ljust(self._chance.choice([1, 60, 250]), ".")
                self.witness.produced(client, entry)
                handle = await producer.produce([entry.encode()])
                answers.append(asyncio.ensure_future(self._await_answer(handle, entry)))
                await asyncio.sleep(self._chance.choice([0, 0, 0.006, 0.1]))
            await asyncio.gather(*answers)
        finally:
            with suppress(TenureError):
                await producer.close(deadline_ms=20_000)

    async def _await_answer(self, handle: Any, entry: str) -> None:
        try:
            position = await handle.durable()
        except TenureError as error:
            self.tally[error.code] += 1
            self.witness.failed(entry, error)
        else:
            self.tally["acknowledged"] += 1
            self.witness.acknowledged(entry, position)

    async def _collect(self) -> None:
        """Void and delete what nobody refers to, and free deltas; nothing is trimmed, as there is no group."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.05, 1))
            with suppress(TenureError):
                clock = SkewedClock(self._loop, 0)
                collector = Collector(self.store.client("collector"), settings=_SETTINGS, clock=clock)
                await collector.run_once()
                await collector.close()


def _join_entries(calls: Any, **options: Any) -> bytes:
    return b"\n".join(entry for entries, _ in calls for entry in entries)


async def _no_probe(retrying: Any) -> None:
    pass


@contextmanager
def _seeded(chance: Random) -> Iterator[None]:
    """Draw everything random from the seed, and leave Parquet and the probe out."""
    secrets = SeededSecrets(chance)
    random.seed(chance.getrandbits(64))
    with (
        patch.object(keys, "secrets", secrets),
        patch.object(journal, "secrets", secrets),
        patch.object(create, "secrets", secrets),
        patch.object(create, "probe", _no_probe),
        patch.object(uploads, "encode_batch", _join_entries),
    ):
        yield
