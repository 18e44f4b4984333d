"""From the buffer into a table: in order, overlapping within a budget, and exactly once however it ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure.buffer import Batch, Consumer, Descriptor, FetchHandle, stat
from tenure.buffer.ingest.ingest import Ingest, IngestSettings
from tenure.buffer.ingest.sink import Commit, Outcome, Written
from tenure.errors import Closed, Conflict, Corrupt, Invalid, LeaseLost, Overloaded
from tests.buffer.ingesting import FEW, delta_rows, delta_sink, fill, sqlite_rows, sqlite_sink, to_table, to_tuples

ROOT = Path(__file__).parents[2]


class ListSink:
    """A table in memory with a scripted outcome for each write; after them it commits."""

    name = "list"
    schema_version = 1

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.rows: list[int] = []
        self.commits: list[Commit] = []
        self.last: int | None = None
        self.asked = 0

    async def last_committed(self, buffer: str) -> int | None:
        return self.last

    async def write(self, commit: Commit, parts: Sequence[Sequence[tuple[int, int]]]) -> Written:
        word = self.script.pop(0) if self.script else "committed"
        self.commits.append(commit)
        if word in ("committed", "taken") and (self.last is None or self.last < commit.high):
            self.rows += [number for part in parts for _, number in part]
            self.last = commit.high
        if word in ("taken", "lost"):
            return Written(Outcome.MAYBE_COMMITTED, "the answer was lost")
        return Written(Outcome(word), "as told")

    async def check_committed(self, commit: Commit) -> bool:
        self.asked += 1
        return self.last is not None and self.last >= commit.high

    async def close(self) -> None:
        pass


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/buffer"


async def frontier(url: str) -> int | None:
    return (await stat(url)).groups[0].last_acked


async def test_everything_arrives_in_order_and_is_acknowledged(url: str) -> None:
    await fill(url, batches=10)
    sink = ListSink()
    async with Consumer(url) as consumer:
        ingest = Ingest(consumer, to_tuples, sink, settings=FEW)
        assert await ingest.catch_up() == 10
        assert sink.rows == list(range(30))
        assert (ingest.committed_seq, ingest.acked_seq) == (9, 9)
        await fill(url, batches=2, first=10)
        assert await ingest.catch_up() == 2
    assert sink.rows == list(range(36))
    assert await frontier(url) == 11
    assert [commit.low for commit in sink.commits[1:]] == [commit.high + 1 for commit in sink.commits[:-1]]


async def test_a_run_goes_on_until_it_is_told_to_stop(url: str) -> None:
    await fill(url, batches=2)
    sink, stop = ListSink(), asyncio.Event()
    async with Consumer(url) as consumer:
        running = asyncio.create_task(Ingest(consumer, to_tuples, sink, settings=IngestSettings(poll_ms=1)).run(stop))
        await fill(url, batches=2, first=2)
        while len(sink.rows) < 12:
            await asyncio.sleep(0.001)
        stop.set()
        await running
    assert sink.rows == list(range(12))


async def test_a_write_that_did_not_happen_is_repeated_as_it_was(url: str) -> None:
    await fill(url, batches=5)
    sink = ListSink("not_committed", "not_committed", "committed", "not_committed")
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(15))
    assert sink.commits[0] == sink.commits[1] == sink.commits[2], "the identity is the same on replay"


@pytest.mark.parametrize("word", ["taken", "lost"])
async def test_a_write_of_unknown_outcome_is_asked_after_before_it_is_repeated(url: str, word: str) -> None:
    await fill(url, batches=4)
    sink = ListSink("committed", word)
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(12))
    assert sink.asked == 1


async def test_a_sink_that_refuses_for_good_halts_everything_and_nothing_is_acknowledged(url: str) -> None:
    await fill(url, batches=6)
    sink = ListSink("committed", "fatal")
    async with Consumer(url) as consumer:
        ingest = Ingest(consumer, to_tuples, sink, settings=FEW)
        with pytest.raises(Invalid) as refused:
            await ingest.catch_up()
        assert refused.value.code == "sink_refused"
        with pytest.raises(Closed):
            await ingest.catch_up()
    assert await frontier(url) == sink.last
    assert len(sink.rows) < 18


async def test_a_sink_that_never_takes_it_is_given_up_and_nothing_is_lost(url: str) -> None:
    await fill(url, batches=1)
    sink = ListSink(*["not_committed"] * 4)
    settings = IngestSettings(write_attempts_max=4, backoff_ms=1)
    async with Consumer(url) as consumer:
        with pytest.raises(Overloaded):
            await Ingest(consumer, to_tuples, sink, settings=settings).catch_up()
    assert await frontier(url) is None
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_tuples, sink).catch_up()
    assert sink.rows == [0, 1, 2]


async def test_a_batch_that_cannot_be_decoded_stops_the_run_at_it(url: str) -> None:
    await fill(url, batches=6)

    def decode(batch: Batch) -> list[tuple[int, int]]:
        if batch.seq == 3:
            raise ValueError("not a number")
        return to_tuples(batch)

    sink = ListSink()
    async with Consumer(url) as consumer:
        with pytest.raises(Invalid, match="batch 3 cannot be decoded"):
            await Ingest(consumer, decode, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(9)), "what came before it is in, nothing behind it is"
    assert await frontier(url) == 2


async def test_a_batch_that_is_gone_stops_the_run_at_it(url: str, tmp_path: Path) -> None:
    await fill(url, batches=4)
    sorted((tmp_path / "buffer" / "data").glob("*.parquet"))[2].unlink()
    sink = ListSink()
    async with Consumer(url) as consumer:
        with pytest.raises(Corrupt):
            await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(6))
    assert await frontier(url) == 1


async def test_a_fenced_run_stops_and_its_successor_goes_on_from_the_table(url: str) -> None:
    await fill(url, batches=4)
    sink = ListSink()
    async with Consumer(url) as old:
        stale = Ingest(old, to_tuples, sink, settings=FEW)
        await stale.catch_up()
        await fill(url, batches=2, first=4)
        async with Consumer(url) as new:
            with pytest.raises(LeaseLost):
                await stale.catch_up()
            await Ingest(new, to_tuples, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(18))


async def test_what_the_table_holds_already_is_passed_over(url: str) -> None:
    """The sink's commit was the last thing that happened: the frontier is behind the table."""
    await fill(url, batches=5)
    sink = ListSink()
    sink.last = 2
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    assert sink.rows == list(range(9, 15))
    assert await frontier(url) == 4


async def test_more_than_is_read_ahead_may_be_passed_over(url: str) -> None:
    await fill(url, batches=12)
    sink = ListSink()
    sink.last = 9
    async with Consumer(url) as consumer:
        assert await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up() == 2
    assert sink.rows == list(range(30, 36))
    assert await frontier(url) == 11


async def test_a_table_ahead_of_its_buffer_is_told_and_nothing_is_passed_over(url: str) -> None:
    """A buffer that was set back gives sequences again that the table holds already: those batches are other ones."""
    await fill(url, batches=3)
    sink = ListSink()
    sink.last = 7
    async with Consumer(url) as consumer:
        with pytest.raises(Conflict) as caught:
            await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
        assert caught.value.code == "sink_ahead"


async def test_a_table_that_was_set_back_is_told_and_not_filled_with_a_hole(url: str) -> None:
    await fill(url, batches=5)
    sink = ListSink()
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    await fill(url, batches=1, first=5)
    sink.last = 1
    async with Consumer(url) as consumer:
        with pytest.raises(Conflict) as told:
            await Ingest(consumer, to_tuples, sink, settings=FEW).catch_up()
    assert told.value.code == "sink_behind"


class SlowStore:
    """A consumer whose fetches wait until they are let go, and are counted."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._handle = consumer.fetch_handle()
        self.fetching = 0
        self.most = 0
        self.acks = 0
        self.go = asyncio.Event()

    async def next_descriptors(self, count: int) -> list[Descriptor]:
        return await self._consumer.next_descriptors(count)

    async def ack_through(self, seq: int) -> None:
        self.acks += 1
        await self._consumer.ack_through(seq)

    async def end_seq(self) -> int:
        return await self._consumer.end_seq()

    def fetch_handle(self) -> SlowStore:
        return self

    async def fetch(self, descriptor: Descriptor) -> Batch:
        self.fetching += 1
        self.most = max(self.most, self.fetching)
        await self.go.wait()
        self.fetching -= 1
        return await self._handle.fetch(descriptor)


@pytest.mark.parametrize(("bytes_max", "most"), [(1 << 30, 4), (1, 1)])
async def test_fetches_overlap_within_the_budget_of_bytes(url: str, bytes_max: int, most: int) -> None:
    await fill(url, batches=8)
    sink = ListSink()
    async with Consumer(url) as consumer:
        slow = SlowStore(consumer)
        settings = IngestSettings(read_ahead_max=4, bytes_max=bytes_max)
        running = asyncio.create_task(Ingest(slow, to_tuples, sink, settings=settings).catch_up())
        while slow.fetching < most:
            await asyncio.sleep(0)
        slow.go.set()
        assert await running == 8
        assert slow.most == most
    assert sink.rows == list(range(24))


async def test_a_run_acknowledges_now_and_then_and_once_more_when_it_is_told_to_stop(url: str) -> None:
    await fill(url, batches=8)
    sink, stop = ListSink(), asyncio.Event()
    async with Consumer(url, collect=False) as consumer:
        counted = SlowStore(consumer)
        counted.go.set()
        settings = IngestSettings(write_batches_max=1, ack_ms=3_600_000, poll_ms=1)
        running = asyncio.create_task(Ingest(counted, to_tuples, sink, settings=settings).run(stop))
        while len(sink.rows) < 24:
            await asyncio.sleep(0.001)
        stop.set()
        await running
    assert await frontier(url) == 7
    assert counted.acks == 2, "the first, and the last"


async def test_fetch_and_decode_go_on_while_the_sink_writes(url: str) -> None:
    await fill(url, batches=3)
    decoded: list[int] = []
    has_decoded = threading.Event()

    def decode(batch: Batch) -> list[tuple[int, int]]:
        decoded.append(batch.seq)
        if batch.seq == 2:
            has_decoded.set()
        return to_tuples(batch)

    class Waiting(ListSink):
        async def write(self, commit: Commit, parts: Sequence[Sequence[tuple[int, int]]]) -> Written:
            if commit.low == 0:
                assert await asyncio.to_thread(has_decoded.wait, 30), "nothing was decoded meanwhile"
            return await super().write(commit, parts)

    sink = Waiting()
    async with Consumer(url) as consumer:
        await Ingest(consumer, decode, sink, settings=IngestSettings(write_batches_max=1)).catch_up()
    assert sink.rows == list(range(9))
    assert sorted(decoded) == [0, 1, 2]


def run_killed(kind: str, url: str, table: Path, point: str, at: int) -> int:
    command = [sys.executable, "-m", "tests.buffer.ingesting", kind, url, str(table), point, str(at)]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode


@pytest.mark.parametrize("point", ["before", "inside", "after"])
@pytest.mark.parametrize("kind", ["sqlite", "delta"])
async def test_a_kill_around_the_commit_of_the_sink_leaves_everything_exactly_once(
    url: str, tmp_path: Path, kind: str, point: str
) -> None:
    """Killed with SIGKILL at the second commit, again at the next run's second, then left to finish."""
    await fill(url, batches=12)
    table = tmp_path / "table"
    for _ in range(2):
        assert run_killed(kind, url, table, point, 2) == -signal.SIGKILL
    assert run_killed(kind, url, table, "none", 0) == 0
    rows = sqlite_rows(table) if kind == "sqlite" else delta_rows(table)
    assert rows == list(range(36))
    assert await frontier(url) == 11


async def test_a_handle_is_what_a_consumer_gives(url: str, tmp_path: Path) -> None:
    """The real parts fit together without anything in between, for both tables at once."""
    await fill(url, batches=6)
    for group, make, decode in (("default", sqlite_sink, to_tuples), ("lake", delta_sink, to_table)):
        sink: Any = make(tmp_path / group)
        async with Consumer(url, group=group, collect=False) as consumer:
            assert isinstance(consumer.fetch_handle(), FetchHandle)
            await Ingest(consumer, decode, sink).catch_up()
        await sink.close()
    assert sqlite_rows(tmp_path / "default") == delta_rows(tmp_path / "lake") == list(range(18))
