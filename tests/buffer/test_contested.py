"""What several writers of one manifest ask of the store: those who share it look before they create."""

from __future__ import annotations

import asyncio
import random

from tenure.buffer import BufferSettings, Producer
from tenure.buffer.manifest.format import Append, Entry, Op, State
from tenure.buffer.manifest.journal import Journal
from tenure.testing.simstore import SimStore
from tests.buffer.virtual_time import in_virtual_time
from tests.chain.worlds.clock import MachineClock
from tests.kit.buffers import QUICK


class Writer:
    """A writer of the manifest alone."""

    def __init__(self, sim: SimStore, name: str) -> None:
        self.sim = sim
        self.name = name
        self.journal = Journal(sim, settings=QUICK)
        self._ordinal = -1

    async def commit(self) -> list[str]:
        """Commit a batch; return the kinds of the requests, those of upkeep left out."""
        self._ordinal += 1
        entry = Entry(f"01{self.name}{self._ordinal:022}", 1, 1, "00000000", self.name * 26, self._ordinal, 0, 0)
        began = len(self.sim.calls)

        def decide(state: State, in_doubt: bool) -> list[Op]:
            return [Append([entry])]

        await self.journal.commit(decide)
        return [call.kind for call in self.sim.calls[began:]]


async def test_writers_that_take_turns_spend_no_create_on_a_number_that_is_taken(sim: SimStore):
    """Naive: each has the state of its own last commit, so each create fails once: three puts a batch and not two."""
    first, second = Writer(sim, "A"), Writer(sim, "B")
    for writer in (first, second):
        await writer.journal.open(create=True)
    creates = [(await writer.commit()).count("put_new") for _ in range(10) for writer in (first, second)]
    assert creates == [1, 2, 2] + [1] * 17, "each finds out once that it is not alone"
    assert (first.journal.metrics.conflicts, second.journal.metrics.conflicts) == (1, 1)


async def test_a_writer_that_is_alone_again_looks_once_more_and_then_creates(sim: SimStore):
    first, second = Writer(sim, "A"), Writer(sim, "B")
    for writer in (first, second):
        await writer.journal.open(create=True)
    for writer in (first, second, first):
        await writer.commit()
    alone = [await first.commit() for _ in range(3)]
    assert alone == [["get", "head", "put_new", "head"], ["put_new", "head"], ["put_new", "head"]]


def test_no_writer_starves_among_ten_that_commit_all_the_time():
    """Naive: a writer waits after its look, so what it creates is old, and one that looks afresh wins each time."""

    async def main(clock: MachineClock) -> list[int]:
        sim = SimStore(latency_ms=20)
        settings = BufferSettings(flush_interval_ms=100, commit_attempts_max=60)

        async def produce() -> int:
            async with Producer(sim, settings=settings, clock=clock) as producer:
                while clock.boot_ms() < 60_000:
                    await producer.produce([b"x"])
                    await asyncio.sleep(random.uniform(0, 0.1))
                return producer.metrics.commits

        return await asyncio.gather(*(produce() for _ in range(10)))

    random.seed(1)
    commits = in_virtual_time(main)
    assert min(commits) > max(commits) / 3, "each has its share"
