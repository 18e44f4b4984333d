"""A consumer is away for a day: a commit costs at the end what it cost at the start, and opening stays quick."""

from __future__ import annotations

import time

import pytest

from tenure.buffer import BufferSettings, Consumer
from tenure.buffer.manifest.format import Append, Entry, Op, State
from tenure.buffer.manifest.journal import Journal
from tenure.testing import ManualClock
from tenure.testing.simstore import SimStore
from tests.kit.buffers import folded

COMMITS_PER_DAY = 458_000  # 5.3 a second
SETTINGS = BufferSettings(backoff_ms=0, flush_interval_ms=1)


class Writer:
    """Commits batches without uploading them: the manifest alone is measured."""

    def __init__(self, store: SimStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.journal = Journal(store, settings=SETTINGS, clock=self.clock)
        self._ordinal = 0

    async def commit(self, batches: int = 1) -> None:
        entries = []
        for _ in range(batches):
            self._ordinal += 1
            now_ms = self.clock.wall_ms()
            name = f"01{self._ordinal:024}"
            entries.append(Entry(name, 1_000_000, 100, "00000000", "P" * 26, self._ordinal, now_ms, now_ms))

        def decide(state: State, in_doubt: bool) -> list[Op]:
            return [Append(entries)]

        await self.journal.commit(decide)
        self.clock.advance(188)
        await self.journal.close()  # upkeep that is under way is part of the cost

    async def cost_of(self, commits: int) -> tuple[float, float]:
        """Calls and bytes either way, per commit, over whole rounds of runs and checkpoints."""
        metrics = self.journal.metrics
        before = (sum(metrics.requests.values()), metrics.bytes_sent + metrics.bytes_received)
        for _ in range(commits):
            await self.commit()
        after = (sum(metrics.requests.values()), metrics.bytes_sent + metrics.bytes_received)
        return (after[0] - before[0]) / commits, (after[1] - before[1]) / commits


@pytest.mark.parametrize("singly", [False, pytest.param(True, marks=pytest.mark.full)], ids=["quick", "every commit"])
async def test_a_commit_costs_the_same_after_a_day_without_a_consumer(singly: bool):
    """Naive: one manifest, rewritten whole, 209 MB at the end of the day for each commit.

    The quick variant lets most of the day's batches arrive 500 to a delta; the other commits each by itself.
    """
    store = SimStore()
    writer = Writer(store)
    await writer.journal.open(create=True)
    round_ = 2 * SETTINGS.run_entries
    at_start = await writer.cost_of(round_)
    while writer.journal.state.next_seq < COMMITS_PER_DAY:
        await writer.commit(1 if singly else 500)
    for _ in range(SETTINGS.checkpoint_deltas * 4):  # back to the usual rhythm of runs and checkpoints
        await writer.commit()
    at_end = await writer.cost_of(round_)
    assert at_end[0] <= 1.2 * at_start[0], "store calls per commit"
    assert at_end[1] <= 1.2 * at_start[1], "bytes per commit"

    started = time.monotonic()
    async with Consumer(store, settings=SETTINGS, collect=False) as consumer:
        assert len(await consumer.next_descriptors(100)) == 100
    assert time.monotonic() - started < 2
    opening = [call for call in store.calls if call.kind == "list"]
    assert len(opening) < 5_000
    assert len((await folded(store)).tail) < 2 * SETTINGS.run_entries


async def test_a_consumer_reads_a_day_s_queue_with_a_run_in_memory_at_a_time():
    """The queue's entries are read run by run, so that a consumer's memory does not grow with its lag."""
    writer = Writer(SimStore())
    await writer.journal.open(create=True)
    while writer.journal.state.next_seq < 50_000:
        await writer.commit(500)
    async with Consumer(writer.store, settings=SETTINGS, collect=False) as consumer:
        seen = 0
        while found := await consumer.next_descriptors(1_000):
            assert [descriptor.seq for descriptor in found] == list(range(seen, seen + len(found)))
            seen += len(found)
            await consumer.ack_through(seen - 1)
        assert seen >= 50_000
        assert len(consumer._catalog._kept) <= 4
