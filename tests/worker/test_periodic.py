"""Ticks become jobs: once each, whoever fires them, whatever the clocks say, and whatever was down meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import AsyncClient, Broker, Invalid
from tenure.client.settings import ClientSettings
from tenure.client.transport.wire import AsyncWire
from tenure.testing import ManualClock, memory_broker
from tenure.testing.app import AppTester
from tenure.testing.wire import AppWire, LossyWire
from tenure.worker.app import App
from tenure.worker.periodic import LOOK_BACK_MS, Periodic, PeriodicLoop, Tick

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOON_MS = 1_800_014_400_000  # 2027-01-15 12:00 UTC
QUEUE = {"type": "queue", "durability": "fsync"}


class SkewedTiming:
    """A worker's time: the common clock with an error of its own. Sleeping moves the clock by that much."""

    def __init__(self, clock: ManualClock, *, skew_ms: int = 0) -> None:
        self.clock = clock
        self.skew_ms = skew_ms
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return self.clock.boot_ms()

    def wall_ms(self) -> int:
        return self.clock.wall_ms() + self.skew_ms

    async def sleep_ms(self, ms: float) -> None:
        self.slept_ms.append(ms)
        self.clock.advance(int(ms) + 1)
        await asyncio.sleep(0)


class Schedules:
    """As much of an app as a loop looks at."""

    def __init__(self, *periodics: Periodic) -> None:
        self.periodics = {periodic.queue: periodic for periodic in periodics}


class Site:
    """A broker, a clock, and as many workers as a test wants."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = AppWire(broker)

    def loop(
        self,
        *periodics: Periodic,
        skew_ms: int = 0,
        wire: AsyncWire | None = None,
        attempts_max: int = 1,
        seed: int = 1,
        timing: SkewedTiming | None = None,
    ) -> PeriodicLoop:
        """A worker's loop on a client of its own."""
        settings = ClientSettings(attempts_max=attempts_max, backoff_min_ms=0)
        client = AsyncClient(wire=wire or self.wire, settings=settings)
        timing = timing or SkewedTiming(self.clock, skew_ms=skew_ms)
        return PeriodicLoop(Schedules(*periodics), client, timing, dice=random.Random(seed))

    def lossy(self, **calls: Collection[int]) -> LossyWire:
        """A wire that loses appends by their number."""
        return LossyWire(self.wire, only=lambda request: request.method == "POST", **calls)

    async def fired_before(self, periodic: Periodic) -> None:
        """The schedule has a past: a tick an hour before the clock stands."""
        await self.loop(periodic).fire_due(self.clock.wall_ms())  # begins here: fires nothing
        at = self.clock.wall_ms() - HOUR_MS
        await self.broker.produce(periodic.queue, [b"{}"], client_id=periodic.client_id, client_seq=at)
        await self.ticks(periodic)

    async def ticks(self, periodic: Periodic) -> list[int]:
        """The ticks of the jobs that can be claimed now; they are done with then."""
        claim = await self.broker.claim(periodic.queue, node="test", max_count=1_000, auto_ack=True)
        jobs = [msgspec.json.decode(job.data) for job in claim.jobs]
        return [job["ms"] for job in jobs if job]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    clock = ManualClock(wall_ms=NOON_MS)
    async with memory_broker(clock) as broker:
        await broker.put_topic("report", QUEUE)
        yield Site(broker, clock)


def hourly(**options: Any) -> Periodic:
    return Periodic.of("report", cron="0 * * * *", **options)


async def test_a_tick_becomes_a_job_that_carries_its_time(site: Site):
    periodic = Periodic.of("report", cron="0 15 * * *", timezone="Europe/Berlin")
    loop = site.loop(periodic)
    assert await loop.fire_due(site.clock.wall_ms()) == 0
    site.clock.advance(2 * HOUR_MS)
    assert await loop.fire_due(site.clock.wall_ms()) == 1
    claim = await site.broker.claim("report", node="test")
    tick = msgspec.json.decode(claim.jobs[0].data, type=Tick)
    assert (tick.at.isoformat(), tick.ms) == ("2027-01-15T15:00:00+01:00", NOON_MS + 2 * HOUR_MS)


async def test_two_workers_at_one_tick_make_one_job(site: Site):
    loops = [site.loop(hourly()) for _ in range(2)]
    await asyncio.gather(*(loop.fire_due(NOON_MS) for loop in loops))
    site.clock.advance(HOUR_MS)
    counts = await asyncio.gather(*(loop.fire_due(site.clock.wall_ms()) for loop in loops))
    assert sorted(counts) == [0, 1]
    assert await site.ticks(hourly()) == [NOON_MS + HOUR_MS]


async def test_a_fleet_with_wrong_clocks_fires_each_tick_once_and_never_before_its_time(site: Site):
    fleet = [(skew, site.loop(hourly(), skew_ms=skew)) for skew in (-90_000, -2_000, 0, 5_000, 240_000)]
    handled: list[int] = []
    for _ in range(26 * 60):
        await asyncio.gather(*(loop.fire_due(site.clock.wall_ms() + skew) for skew, loop in fleet))
        now = site.clock.wall_ms()
        handled += (ticks := await site.ticks(hourly()))
        assert all(tick <= now for tick in ticks)
        site.clock.advance(MINUTE_MS)
    # For those that are behind, noon had not come yet when they began.
    assert handled == [NOON_MS + hour * HOUR_MS for hour in range(26)]


async def test_a_schedule_that_never_fired_begins_now_and_not_last_night(site: Site):
    loop = site.loop(hourly())
    assert await loop.fire_due(NOON_MS + 30) == 0
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 1


async def test_a_schedule_new_on_a_queue_with_a_past_fires_its_latest_tick_as_one_that_was_missed(site: Site):
    """It looks like a schedule whose workers were away for longer than its mark is kept: to leave a tick out is worse
    than to fire one that names its time.
    """
    await site.broker.produce("report", [b"{}"])
    await site.ticks(hourly())
    assert await site.loop(hourly()).fire_due(NOON_MS + 30) == 1
    assert await site.ticks(hourly()) == [NOON_MS]


async def test_of_ticks_missed_while_nobody_ran_only_the_latest_fires(site: Site):
    await site.fired_before(hourly())
    site.clock.advance(5 * HOUR_MS)
    assert await site.loop(hourly()).fire_due(site.clock.wall_ms()) == 1
    assert await site.ticks(hourly()) == [NOON_MS + 5 * HOUR_MS]


async def test_with_catch_up_each_missed_tick_fires_in_order(site: Site):
    periodic = hourly(catch_up=True)
    await site.fired_before(periodic)
    site.clock.advance(5 * HOUR_MS)
    assert await site.loop(periodic).fire_due(site.clock.wall_ms()) == 6
    assert await site.ticks(periodic) == [NOON_MS + hour * HOUR_MS for hour in range(6)]


async def test_catching_up_has_a_bound(site: Site):
    periodic = hourly(catch_up=True, catch_up_max=2)
    await site.fired_before(periodic)
    site.clock.advance(5 * HOUR_MS)
    assert await site.loop(periodic).fire_due(site.clock.wall_ms()) == 2
    assert await site.ticks(periodic) == [NOON_MS + 4 * HOUR_MS, NOON_MS + 5 * HOUR_MS]


async def test_two_workers_that_catch_up_at_once_leave_nothing_out_and_double_nothing(site: Site):
    periodic = hourly(catch_up=True)
    await site.fired_before(periodic)
    site.clock.advance(20 * HOUR_MS)
    counts = await asyncio.gather(*(site.loop(periodic).fire_due(site.clock.wall_ms()) for _ in range(3)))
    assert sum(counts) == 21
    assert await site.ticks(periodic) == [NOON_MS + hour * HOUR_MS for hour in range(21)]


async def test_a_tick_older_than_the_broker_remembers_is_not_fired_again(site: Site):
    """The mark of a monthly job has expired when a worker starts three weeks later."""
    monthly = Periodic.of("report", cron="0 13 15 * *")
    early = site.loop(monthly)
    await early.fire_due(NOON_MS)
    site.clock.advance(HOUR_MS)
    assert await early.fire_due(site.clock.wall_ms()) == 1
    site.clock.advance(21 * DAY_MS)
    assert await site.loop(monthly).fire_due(site.clock.wall_ms()) == 0


async def test_while_a_mark_can_expire_no_worker_that_starts_fires_a_second_time(site: Site):
    weekly = Periodic.of("report", cron="0 13 * * FRI")
    early = site.loop(weekly)
    await early.fire_due(NOON_MS)
    site.clock.advance(HOUR_MS)
    assert await early.fire_due(site.clock.wall_ms()) == 1
    assert LOOK_BACK_MS < 7 * DAY_MS
    for _ in range(7 * 24 - 1):
        site.clock.advance(HOUR_MS)
        assert await site.loop(weekly).fire_due(site.clock.wall_ms()) == 0
    site.clock.advance(HOUR_MS)
    assert await site.loop(weekly).fire_due(site.clock.wall_ms()) == 1


async def test_a_clock_that_is_set_back_fires_nothing_twice(site: Site):
    loop = site.loop(hourly())
    await loop.fire_due(NOON_MS)
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 1
    for now in (NOON_MS - DAY_MS, NOON_MS, NOON_MS + HOUR_MS):
        assert await loop.fire_due(now) == 0
        assert await site.loop(hourly()).fire_due(now) == 0


async def test_a_tick_far_in_the_future_is_told_about(site: Site, caplog: pytest.LogCaptureFixture):
    await site.fired_before(hourly())
    ahead = site.loop(hourly(), skew_ms=30 * DAY_MS)
    assert await ahead.fire_due(NOON_MS + 30 * DAY_MS) == 1
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        assert await site.loop(hourly()).fire_due(NOON_MS) == 0
    assert "report has ticked until 2027-02-14T12:00:00+00:00" in caplog.text
    assert await site.ticks(hourly()) == []  # not handled before the broker's clock says so


async def test_a_broker_that_cannot_be_reached_is_told_about_once_and_the_tick_fires_later(
    site: Site, caplog: pytest.LogCaptureFixture
):
    loop = site.loop(hourly())
    await loop.fire_due(NOON_MS)
    site.wire.down = True
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        assert await loop.fire_due(NOON_MS + HOUR_MS) == 0
        assert loop.pause_ms(NOON_MS + HOUR_MS) <= 5_000
        assert await loop.fire_due(NOON_MS + HOUR_MS + 5_000) == 0
    assert len(caplog.records) == 1
    site.wire.down = False
    assert await loop.fire_due(NOON_MS + HOUR_MS + 10_000) == 1
    assert await loop.fire_due(NOON_MS + HOUR_MS + 15_000) == 0


async def test_a_worker_that_starts_before_the_broker_begins_when_it_started(site: Site):
    site.wire.down = True
    loop = site.loop(hourly())
    assert await loop.fire_due(NOON_MS) == 0
    assert loop.pause_ms(NOON_MS) <= 5_000
    site.wire.down = False
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 1


@pytest.mark.parametrize("attempts_max", [1, 3])
async def test_an_append_whose_answer_was_lost_is_not_made_again(site: Site, attempts_max: int):
    """Fault 26: the tick's number makes the second copy a refusal, sent by the client itself or at the next look."""
    loop = site.loop(hourly(), wire=site.lossy(lose_answer={1}), attempts_max=attempts_max)
    await loop.fire_due(NOON_MS)
    site.clock.advance(HOUR_MS)
    for _ in range(3):
        await loop.fire_due(site.clock.wall_ms())
    assert await site.ticks(hourly()) == [NOON_MS + HOUR_MS]


async def test_an_append_that_never_arrived_is_made_at_the_next_look(site: Site):
    loop = site.loop(hourly(), wire=site.lossy(lose_request={1}))
    await loop.fire_due(NOON_MS)
    site.clock.advance(HOUR_MS)
    assert await loop.fire_due(site.clock.wall_ms()) == 0
    assert await loop.fire_due(site.clock.wall_ms()) == 1


async def test_one_schedule_that_fails_does_not_hold_up_the_others(site: Site, caplog: pytest.LogCaptureFixture):
    await site.broker.put_topic("taken", {"type": "log"})
    loop = site.loop(Periodic.of("taken", every="1h"), hourly())
    await loop.fire_due(NOON_MS)
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 1
    assert [record.getMessage()[:46] for record in caplog.records] == ["a tick of taken could not be fired, it is trie"]


async def test_a_schedule_whose_queue_nobody_works_at_is_left_alone(site: Site, caplog: pytest.LogCaptureFixture):
    loop = site.loop(Periodic.of("nowhere", every="1h"))
    assert await loop.fire_due(NOON_MS) == 0
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 0
    assert loop.pause_ms(NOON_MS + HOUR_MS) == MINUTE_MS
    assert caplog.records == []
    await site.broker.put_topic("nowhere", QUEUE)
    assert await loop.fire_due(NOON_MS + HOUR_MS) == 1


async def test_the_loop_goes_on_after_what_nobody_foresaw(site: Site, caplog: pytest.LogCaptureFixture):
    loop = site.loop(hourly())
    calls = 0

    async def stumble(now_ms: int) -> int:
        nonlocal calls
        calls += 1
        raise ZeroDivisionError

    loop.fire_due = stumble  # type: ignore[method-assign]
    running = asyncio.create_task(loop.run())
    while calls < 3:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert "the schedule stumbled, it goes on" in caplog.text


async def test_a_restart_of_the_broker_between_two_workers_changes_nothing(tmp_path: Path):
    clock = ManualClock(wall_ms=NOON_MS)
    for hour in range(1, 4):
        for _ in range(2):
            broker = await Broker.open(tmp_path / "data", clock=clock)
            async with broker:
                if hour == 1:
                    await broker.put_topic("report", QUEUE)
                site = Site(broker, clock)
                loop = site.loop(hourly())
                await loop.fire_due(clock.wall_ms())
                assert broker.topic("report").head_seq == hour - 1
        async with await Broker.open(tmp_path / "data", clock=clock) as broker:
            loop = Site(broker, clock).loop(hourly())
            await loop.fire_due(clock.wall_ms())
            clock.advance(HOUR_MS)
            assert await loop.fire_due(clock.wall_ms()) == 1
    async with await Broker.open(tmp_path / "data", clock=clock) as broker:
        assert await Site(broker, clock).ticks(hourly()) == [NOON_MS + hour * HOUR_MS for hour in range(1, 4)]


async def test_the_loop_sleeps_until_the_next_tick_and_never_past_a_minute(site: Site):
    timing = SkewedTiming(site.clock)
    loop = site.loop(hourly(), timing=timing)
    running = asyncio.create_task(loop.run())
    while site.broker.topic("report").head_seq < 3:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert max(timing.slept_ms) <= MINUTE_MS
    assert len(timing.slept_ms) < 3 * 65
    late_ms = site.clock.wall_ms() - (NOON_MS + 3 * HOUR_MS)
    assert 0 <= late_ms < MINUTE_MS


async def test_workers_come_to_a_tick_at_different_moments(site: Site):
    pauses = set()
    for seed in range(20):
        loop = site.loop(Periodic.of("report", every="1s"), seed=seed)
        await loop.fire_due(NOON_MS)
        pauses.add(loop.pause_ms(NOON_MS))
    assert len(pauses) == 20
    assert all(1_000 <= pause <= 1_200 for pause in pauses)


async def test_an_app_without_schedules_needs_no_loop(site: Site):
    await asyncio.wait_for(site.loop().run(), 5)


async def test_a_periodic_handler_takes_the_tick_or_nothing():
    app = App()
    seen: list[object] = []

    @app.periodic("with-tick", every="1h")
    async def with_tick(tick: Tick) -> None:
        seen.append(tick.ms)

    @app.periodic("without", every="1h")
    def without() -> None:
        seen.append("ran")

    async with AppTester(app, ManualClock(wall_ms=NOON_MS)) as tester:
        assert await tester.run_until_idle() == 0
        tester.advance("1h")
        assert await tester.run_until_idle() == 2
        assert await tester.run_until_idle() == 0
    assert seen == [NOON_MS + HOUR_MS, "ran"]


def test_a_periodic_handler_that_takes_something_else_is_refused_when_it_is_declared():
    with pytest.raises(Invalid, match="is a Tick"):

        @App().periodic("report", every="1h")
        async def report(job: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({}, "either cron"),
        ({"cron": "* * * * *", "every": "1m"}, "either cron"),
        ({"every": "10ms"}, "every must be from 1000"),
        ({"every": "1m", "timezone": "Europe/Berlin"}, "belongs to cron"),
        ({"every": "1m", "catch_up": True, "catch_up_max": 0}, "catch_up_max"),
        ({"every": "1m", "catch_up": True, "catch_up_max": 1_001}, "catch_up_max"),
    ],
)
def test_what_is_no_schedule_is_refused_when_it_is_declared(options: dict[str, Any], about: str):
    with pytest.raises(Invalid, match=about):
        Periodic.of("report", **options)
