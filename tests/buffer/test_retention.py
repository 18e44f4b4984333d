"""Retention: how long a buffer keeps its batches, the same for every collector."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenure.buffer import (
    BufferSettings,
    Collected,
    Collector,
    Consumer,
    Kept,
    Producer,
    ask_retention,
    set_retention,
    stat,
)
from tenure.buffer.manifest.keys import DELTA
from tenure.buffer.settings import RETAIN_FOR_MS_MAX
from tenure.errors import Invalid, NotFound
from tenure.testing import ManualClock
from tenure.testing.simstore import Call, Hold, SimStore
from tests.kit.buffers import QUICK, consumed, folded, produced, quick

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class Days:
    """A buffer under a clock of its own, which the store and its producers share."""

    def __init__(self, sim: SimStore) -> None:
        self.sim = sim
        self.clock = ManualClock(wall_ms=sim.clock_ms)

    def pass_(self, ms: int) -> None:
        self.sim.advance(ms)
        self.clock.advance(ms)

    async def put(self, *entries: bytes, settings: BufferSettings = QUICK) -> None:
        async with Producer(self.sim, settings=settings, clock=self.clock) as producer:
            for entry in entries:
                await (await producer.produce([entry])).durable()

    async def job(self, group: str, *, retain_for_ms: int = 0) -> None:
        """A job that reads all there is, acknowledges it, and collects before and after."""
        async with Consumer(
            self.sim, group=group, settings=quick(retain_for_ms=retain_for_ms, ack_every=1)
        ) as consumer:
            while found := await consumer.next_descriptors(100):
                await consumer.ack_through(found[-1].seq)
            await consumer._collector.idle()

    async def collect(self, settings: BufferSettings = QUICK, *, dry_run: bool = False) -> Collected:
        collector = Collector(self.sim, settings=settings)
        try:
            return await collector.run_once(dry_run=dry_run)
        finally:
            await collector.close()


@pytest.fixture
def days(sim: SimStore) -> Days:
    return Days(sim)


async def test_seven_days_hold_under_three_jobs_with_other_wishes(days: Days):
    jobs = {"week": WEEK_MS, "none": 0, "hour": HOUR_MS}
    for day in range(7):
        await days.put(b"%d" % day)
        for group, wish_ms in jobs.items():
            await days.job(group, retain_for_ms=wish_ms)
        days.pass_(DAY_MS)
    assert (await days.collect()).trimmed == 0, "the first is seven days old, and not older"
    assert await consumed(days.sim, group="replay") == [b"%d" % day for day in range(7)]
    days.pass_(3 * DAY_MS)
    await days.put(b"news")
    for group, wish_ms in [*jobs.items(), ("replay", 0)]:
        await days.job(group, retain_for_ms=wish_ms)
    await days.collect()
    assert await consumed(days.sim, group="later") == [b"3", b"4", b"5", b"6", b"news"]


async def test_a_new_buffer_keeps_for_as_long_as_its_maker_says(days: Days):
    await days.put(b"a", settings=quick(retain_for_ms=HOUR_MS))
    assert (await folded(days.sim)).retain_for_ms == (await stat(days.sim)).retain_for_ms == HOUR_MS
    await days.job("g")
    assert (await days.collect()).trimmed == 0
    days.pass_(HOUR_MS + 1)
    assert (await days.collect()).trimmed == 1


async def test_an_opener_raises_the_retention_and_never_lowers_it(days: Days):
    await days.put(b"a")
    seen = []
    for wish_ms in (0, DAY_MS, HOUR_MS, WEEK_MS, 0):
        await days.job("g", retain_for_ms=wish_ms)
        seen.append((await folded(days.sim)).retain_for_ms)
    assert seen == [0, DAY_MS, DAY_MS, WEEK_MS, WEEK_MS]
    deltas = (await folded(days.sim)).number
    assert await ask_retention(days.sim, HOUR_MS, settings=QUICK) == WEEK_MS
    assert (await folded(days.sim)).number == deltas, "what is kept already costs no commit"
    assert await ask_retention(days.sim, 2 * WEEK_MS, settings=QUICK) == WEEK_MS
    assert (await folded(days.sim)).retain_for_ms == 2 * WEEK_MS


async def test_a_command_lowers_it_and_then_the_next_collector_goes_by_that(days: Days):
    await days.put(b"a", settings=quick(retain_for_ms=WEEK_MS))
    await days.job("g")
    days.pass_(DAY_MS)
    assert await set_retention(days.sim, HOUR_MS, settings=QUICK) == WEEK_MS
    assert (await days.collect()).trimmed == 1


async def test_the_retention_is_kept_by_checkpoints_after_its_delta_is_freed(days: Days):
    small = quick(checkpoint_deltas=4, free_deltas=4, retain_for_ms=HOUR_MS)
    await days.put(*(b"%d" % number for number in range(40)), settings=small)
    assert (await days.collect(quick(checkpoint_deltas=4))).deltas > 0
    assert (await folded(days.sim)).retain_for_ms == HOUR_MS


async def test_a_retention_that_is_raised_in_the_middle_of_a_pass_holds_it_back(days: Days):
    await days.put(b"a")
    async with Consumer(days.sim, group="g", settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(1)
        await consumer.ack_through(0)
    hold, caught = Hold(), list[Call]()

    def stop_the_trim(call: Call) -> Hold | None:
        if call.kind != "put_new" or not DELTA.fullmatch(call.key) or caught:
            return None
        caught.append(call)
        return hold

    days.sim.hook = stop_the_trim
    passing = asyncio.create_task(days.collect())
    await hold.reached.wait()
    await set_retention(days.sim, WEEK_MS, settings=QUICK)
    hold.release()
    report = await passing
    assert (report.trimmed, report.objects, report.kept) == (0, 0, [Kept("retention", 1)])
    assert await consumed(days.sim, group="replay") == [b"a"]


@pytest.mark.parametrize("off_ms", [-30 * DAY_MS, 30 * DAY_MS])
async def test_a_producer_s_wrong_clock_changes_no_batch_s_retention(days: Days, off_ms: int):
    """Naive: a clock that is ahead keeps all that follows its batch, and of one that is behind a batch goes early."""
    wrong = ManualClock(wall_ms=days.sim.clock_ms + off_ms)
    settings = quick(run_entries=8, checkpoint_deltas=8, free_deltas=8, grace_ms=HOUR_MS)
    await days.put(b"-", settings=quick(retain_for_ms=DAY_MS, grace_ms=HOUR_MS))
    collector, put_ms = Collector(days.sim, settings=settings), [days.sim.clock_ms]
    for hour in range(72):
        await days.put(b"right %d" % hour, settings=settings)
        async with Producer(days.sim, settings=settings, clock=wrong) as producer:
            await (await producer.produce([b"wrong %d" % hour])).durable()
        await days.job("g")
        await collector.run_once()
        put_ms += [days.sim.clock_ms] * 2
        young_ms = [ms for ms in put_ms if ms >= days.sim.clock_ms - DAY_MS]
        stored_ms = sorted(ms for key, (_, ms) in days.sim.objects.items() if key.startswith("data/"))
        assert stored_ms[-len(young_ms) :] == young_ms
        assert len(stored_ms) < len(young_ms) + settings.run_entries, "batches go with their run at the latest"
        state = await folded(days.sim)
        assert state.next_seq - state.first_seq == len(young_ms)
        days.pass_(HOUR_MS)
        wrong.advance(HOUR_MS)
    await collector.close()


async def test_batches_of_a_clock_that_is_behind_are_kept_for_the_whole_retention(days: Days):
    """Naive: they are older than the retention from the start, and go with the first pass."""
    behind = ManualClock(wall_ms=days.sim.clock_ms - 30 * DAY_MS)
    async with Producer(days.sim, settings=quick(retain_for_ms=DAY_MS), clock=behind) as producer:
        await (await producer.produce([b"a"])).durable()
    await days.job("g")
    days.pass_(DAY_MS)
    assert (await days.collect()).trimmed == 0
    assert await consumed(days.sim, group="replay") == [b"a"]
    await days.job("replay")
    days.pass_(1)
    assert (await days.collect()).trimmed == 1


async def test_a_pass_asks_for_the_times_of_those_batches_only_that_it_has_not_listed(days: Days):
    settings = quick(retain_for_ms=DAY_MS, collect_objects_max=20)
    await days.put(*[b"%d" % number for number in range(100)], settings=settings)
    await days.job("g")
    collector, heads = Collector(days.sim, settings=settings), list[int]()

    async def run_once() -> int:
        before = days.sim.count("head", "data/")
        days.pass_(1)
        trimmed = (await collector.run_once()).trimmed
        heads.append(days.sim.count("head", "data/") - before)
        return trimmed

    assert [await run_once() for _ in range(3)] == [0, 0, 0]
    days.pass_(DAY_MS + 1)
    assert [await run_once() for _ in range(6)] == [20, 20, 20, 20, 20, 0]
    assert heads == [0] * 9, "each pass lists what it deletes, which it would without a retention, too"
    await days.put(*[b"%d" % number for number in range(3)], settings=settings)
    await days.job("g")
    assert await run_once() == 0
    assert heads[-1] <= 1
    await collector.close()


async def test_a_dry_run_raises_nothing(days: Days):
    await days.put(b"a")
    await days.collect(quick(retain_for_ms=WEEK_MS), dry_run=True)
    assert (await folded(days.sim)).retain_for_ms == 0


@pytest.mark.parametrize("wrong_ms", [-1, RETAIN_FOR_MS_MAX + 1])
async def test_a_time_that_is_none_is_refused_and_changes_nothing(days: Days, wrong_ms: int):
    await days.put(b"a", settings=quick(retain_for_ms=HOUR_MS))
    for call in (set_retention, ask_retention):
        with pytest.raises(Invalid, match="100 years"):
            await call(days.sim, wrong_ms, settings=QUICK)
    with pytest.raises(Invalid):
        quick(retain_for_ms=wrong_ms)
    assert (await folded(days.sim)).retain_for_ms == HOUR_MS


async def test_a_buffer_that_is_not_there_has_no_retention(sim: SimStore):
    with pytest.raises(NotFound) as caught:
        await set_retention(sim, HOUR_MS, settings=QUICK)
    assert caught.value.code == "no_buffer"


# Who pins


async def test_a_collector_says_who_pins(days: Days, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "tenure.buffer")
    assert (await emptied(days)).kept == []
    await days.put(b"0", b"1", b"2", b"3")
    assert (await days.collect()).kept == [Kept("group", 4, ["quick", "slow"], 0)]
    await days.job("quick")
    async with Consumer(days.sim, group="slow", settings=QUICK, clock=days.clock, collect=False) as consumer:
        await consumer.next_descriptors(2)
        await consumer.ack_through(1)
    await set_retention(days.sim, WEEK_MS, settings=QUICK)
    days.pass_(DAY_MS)
    report = await days.collect()
    assert report.kept == [Kept("retention", 2), Kept("group", 2, ["slow"], DAY_MS)]
    assert "kept: 2 for the retention; 2 for group slow, idle for 86,400 s" in caplog.messages[-1]


async def emptied(days: Days) -> Collected:
    """A buffer with two groups and nothing in it."""
    settings = quick(initial_groups=("slow", "quick"))
    async with Producer(days.sim, settings=settings, clock=days.clock):
        pass
    return await days.collect()


async def test_many_slow_groups_are_named_in_part():
    pinned = Kept("group", 1_000, [f"g{number}" for number in range(8)], 5_000)
    assert str(pinned) == "1,000 for group g0, g1, g2, g3, g4 and 3 more, idle for 5 s"
    assert str(Kept("no_group", 1)) == "1 as no group has started yet"


async def test_a_buffer_without_groups_keeps_everything_whatever_its_retention(days: Days):
    await days.put(b"a", settings=quick(retain_for_ms=HOUR_MS))
    days.pass_(WEEK_MS)
    report = await days.collect()
    assert (report.trimmed, report.kept) == (0, [Kept("no_group", 1)])
    await produced(days.sim, [b"b"])
    assert await consumed(days.sim) == [b"a", b"b"]
