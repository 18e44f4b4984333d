"""The disk is full, slow, broken or gone while a broker runs on it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tenure import Broker, Settings
from tenure.broker.durability import trim, upkeep
from tenure.broker.engine import Engine
from tenure.core.events import KINDS, Evicted
from tenure.errors import Closed, Indeterminate, Overloaded, TenureError
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import SETTINGS, Ledger, Session, check_fold, check_leases, events_of, records, survive

T = TypeVar("T")

QUEUE = {"type": "queue", "durability": "fsync", "lease_ms": 30_000}


async def soon(answer: Awaitable[T]) -> T:
    """Await with a limit, so that a caller who is never told shows as a failure instead of a hang."""
    return await asyncio.wait_for(_await(answer), 10)


async def _await(answer: Awaitable[T]) -> T:
    return await answer


@asynccontextmanager
async def opened(
    disk: SimDisk, clock: ManualClock | None = None, *, settings: Settings = SETTINGS
) -> AsyncIterator[Broker]:
    broker = await Broker.open(disk, clock=clock or ManualClock(), settings=settings)
    try:
        yield broker
    finally:
        await soon(broker.close())


def payloads(count: int, *, size: int = 10) -> list[bytes]:
    return [b'"%d%s"' % (number, b"." * size) for number in range(count)]


# Fault 11


class StutteringDisk(SimDisk):
    """Writes a few bytes at a time, as a disk may that is nearly full or on a network."""

    def pwrite(self, file: int, data: bytes, offset: int) -> int:
        return super().pwrite(file, data[: 1 + offset % 7], offset)


async def test_fault_11_short_writes_are_completed_before_anything_is_acknowledged() -> None:
    disk = StutteringDisk(1)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)
        for number in range(20):
            await broker.produce("q", payloads(2, size=number * 20))
        claim = await broker.claim("q", node="w", max_count=7)
        await broker.ack("q", node="w", lease_id=claim.lease_id)
        lost = disk.crash("lost")
    async with opened(lost) as again:
        assert again.topic("q").count == 33


async def test_fault_11_a_write_that_makes_no_progress_is_not_acknowledged() -> None:
    disk = SimDisk(1)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)
        disk.pwrite = lambda *_: 0  # type: ignore[method-assign]
        with pytest.raises(Indeterminate):
            await soon(broker.produce("q", [b"1"]))


# Fault 12


async def fill(broker: Broker, size: int = 300) -> int:
    """Produce until there is no more room; give how many records are in."""
    before = broker.topic("q").head_seq
    with pytest.raises(Overloaded) as full:
        await produce_often(broker, size=size)
    assert full.value.code == "disk_full"
    return broker.topic("q").head_seq - before


async def produce_often(broker: Broker, *, size: int) -> None:
    for _ in range(1000):
        await soon(broker.produce("q", payloads(1, size=size)))


async def turn_over(broker: Broker) -> None:
    """Produce, claim and ack for a while, so that segments come and go."""
    for _ in range(200):
        await soon(broker.produce("q", payloads(2, size=400)))
        claim = await soon(broker.claim("q", node="w", max_count=2))
        await soon(broker.ack("q", node="w", seqs=claim.seqs))


async def test_fault_12_a_full_disk_is_a_clear_error_and_acks_and_reads_go_on() -> None:
    disk = SimDisk(1, capacity_bytes=6 * SETTINGS.segment_bytes)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)
        count = await fill(broker)
        before = broker.topic("q", touch=False)
        for _ in range(5):
            with pytest.raises(Overloaded):
                broker.produce("q", payloads(1, size=300))
        assert broker.topic("q", touch=False) == before, "refused, and yet something changed"
        assert len((await broker.diff("q", limit=1000)).records) == count
        claim = await soon(broker.claim("q", node="w", max_count=2))
        assert (await soon(broker.ack("q", node="w", seqs=claim.seqs[:1]))).count == 1
        assert (await soon(broker.nack("q", node="w", seqs=claim.seqs[1:]))).count == 1
        world = disk.crash("lost")
    async with opened(world) as again:
        assert again.topic("q").count == count - 1


@pytest.mark.parametrize("each", [1, 15])
async def test_fault_12_it_recovers_by_itself_once_acks_have_made_room(each: int) -> None:
    """Fault 12: acking is enough; old segments are dropped from what was kept for that, and appends work again."""
    settings = msgspec.structs.replace(SETTINGS, segment_bytes=1 << 14)
    disk = SimDisk(1, capacity_bytes=8 * settings.segment_bytes)
    async with opened(disk, settings=settings) as broker:
        await broker.put_topic("q", QUEUE)
        for _ in range(3):
            count = await fill(broker)
            assert count > 100
            while (claim := await soon(broker.claim("q", node="w", max_count=each))).jobs:
                await soon(broker.ack("q", node="w", seqs=claim.seqs))
        await broker.produce("q", payloads(1))
    async with opened(disk.crash("lost"), settings=settings) as again:
        assert again.topic("q").count == 1


async def test_fault_12_it_recovers_when_space_returns() -> None:
    disk = SimDisk(1, capacity_bytes=4 * SETTINGS.segment_bytes)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)
        count = await fill(broker)
        disk.capacity_bytes = None
        await broker.produce("q", payloads(1))
        assert broker.topic("q").count == count + 1


def test_fault_12_an_eviction_for_which_no_room_is_left_does_not_make_an_append_look_refused() -> None:
    """Fault 12: an append that raised Overloaded must not have happened; its caller will send it again."""
    session = Session(SimDisk(1), Ledger(), ManualClock())
    session.queue(cap_records=2)
    session.produce(2)
    append_one = session.log.append_one

    def full(kind: int, topic: int, body: bytes, urgent: bool = False) -> int:
        if KINDS[kind] is Evicted:
            raise Overloaded("no room", code="disk_full")
        return append_one(kind, topic, body, urgent)

    session.log.append_one = full  # type: ignore[method-assign]
    session.produce(1)
    assert session.engine.state.topics["q"].count == 3
    session.log.append_one = append_one  # type: ignore[method-assign]
    session.produce(1)
    assert session.engine.state.topics["q"].count == 2
    check_fold(session.engine)


# Fault 13


Breaking = Callable[[SimDisk], None]


def break_sync(disk: SimDisk) -> None:
    def failing(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.sync = failing  # type: ignore[method-assign]


def break_sync_for_space(disk: SimDisk) -> None:
    def failing(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.sync = failing  # type: ignore[method-assign]


def break_write(disk: SimDisk) -> None:
    def failing(file: int, data: bytes, offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.pwrite = failing  # type: ignore[method-assign]


@pytest.mark.parametrize("breaking", [break_sync, break_sync_for_space, break_write])
@pytest.mark.parametrize("size", [10, 3000], ids=["in a sync", "in a roll"])
async def test_fault_13_a_failed_sync_tells_all_who_wait_and_turns_the_broker_read_only(
    breaking: Breaking, size: int
) -> None:
    disk, clock = SimDisk(1), ManualClock()
    async with opened(disk, clock) as broker:
        await broker.put_topic("q", QUEUE)
        await broker.produce("q", payloads(4))
        held = await broker.claim("q", node="w", max_count=2)
        breaking(disk)
        answers: list[asyncio.Future[object]] = []
        answers.append(asyncio.ensure_future(_await(broker.ack("q", node="w", seqs=held.seqs[:1]))))
        for _ in range(3):
            try:
                answers.append(asyncio.ensure_future(_await(broker.produce("q", payloads(1, size=size)))))
            except Closed:
                break
        outcomes = await soon(asyncio.gather(*answers, return_exceptions=True))
        assert all(isinstance(outcome, Indeterminate) for outcome in outcomes), outcomes
        for refused in (
            lambda: broker.produce("q", [b"1"]),
            lambda: broker.ack("q", node="w", seqs=held.seqs),
            lambda: broker.claim("q", node="w"),
            lambda: broker.put_topic("other", {}),
        ):
            with pytest.raises(Closed) as read_only:
                refused()
            assert read_only.value.code == "read_only"
        clock.jump_wall(3_600_000)
        clock.advance(5)
        assert broker.topic("q").head_seq >= 4, "reads go on, whatever the clocks do"
        assert [record.data for record in (await broker.diff("q", limit=4)).records][-1] == payloads(4)[-1]
        assert broker.jobs("q", state="in_flight").items
        assert broker.leases("q").items
    again = Session(disk.crash("lost"), Ledger(), clock)
    assert len(records(again.engine, "q")) in (3, 4), "an ack whose outcome is unknown: either is right"
    check_fold(again.engine)


async def test_fault_13_a_drop_that_cannot_be_synced_is_told_to_those_who_wait() -> None:
    """Fault 13: also where housekeeping met the failure first."""
    disk = SimDisk(1)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)

        def failing(name: str) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.unlink = failing  # type: ignore[method-assign]
        with pytest.raises((Indeterminate, Closed)):
            await turn_over(broker)
        assert broker.topic("q").head_seq > 0
    Session(disk.crash("lost"), Ledger(), ManualClock())


async def test_fault_13_a_read_only_broker_answers_no_claim_with_nothing_and_turns_away_those_who_wait() -> None:
    """Fault 13, 41: where there may be jobs that nobody can be given, "OK, empty" would be a lie."""
    disk = SimDisk(1)
    broker = await Broker.open(disk, settings=SETTINGS)
    await broker.put_topic("q", QUEUE)
    await broker.put_topic("idle", QUEUE)
    waiting = [
        asyncio.ensure_future(_await(broker.claim("idle", node="w", wait_ms=30_000))),
        asyncio.ensure_future(_await(broker.diff("idle", wait_ms=30_000))),
        asyncio.ensure_future(anext(broker.work("idle", node="v"))),
    ]
    await asyncio.sleep(0)
    break_sync(disk)
    with pytest.raises(Indeterminate):
        await soon(broker.produce("q", payloads(1)))
    for answer in await soon(asyncio.gather(*waiting, return_exceptions=True)):
        assert isinstance(answer, Closed), answer
        assert answer.code == "read_only"
    for name in ("q", "idle"):
        for wait_ms in (0, 1000):
            with pytest.raises(Closed):
                broker.claim(name, node="w", wait_ms=wait_ms)
        with pytest.raises(Closed):
            broker.work(name, node="w")
    assert broker.failed is not None
    await broker.close()


# Fault 15


class SlowDisk(SimDisk):
    """A disk whose syncs, while it is held, wait for a test to let them go.

    One on the loop's own thread cannot wait, or the test would stand still with it: it is noted in ``stalls``.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.stalls: list[str] = []
        self._free_count = 0
        self._gate = threading.Event()
        self._gate.set()
        self._passes = threading.Semaphore(0)
        self.asked = threading.Event()

    def hold(self) -> None:
        self.asked.clear()
        self._gate.clear()

    def hold_behind(self, count: int) -> None:
        """Hold, once this many more syncs of the thread have gone through."""
        self._free_count = count
        self.hold()

    def let_go(self) -> None:
        self._gate.set()

    def let_one_go(self) -> None:
        """Let the sync that waits go on, and hold the next one."""
        self._passes.release()

    def sync(self, file: int) -> None:
        self._wait("sync")
        super().sync(file)

    def sync_dir(self, name: str) -> None:
        self._wait("sync_dir")
        super().sync_dir(name)

    def _wait(self, call: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.asked.set()
            self._free_count -= 1
            if self._free_count < 0:
                self._hold_up()
        elif not self._gate.is_set():
            self.stalls.append(call)

    def _hold_up(self) -> None:
        for _ in range(3_000):
            if self._gate.is_set() or self._passes.acquire(timeout=0.01):
                return
        raise AssertionError("a test holds the disk for ever")

    async def syncing(self) -> None:
        """Wait until a sync is under way."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.asked.wait, 10)


@asynccontextmanager
async def slowed(settings: Settings = SETTINGS) -> AsyncIterator[tuple[Broker, SlowDisk, ManualClock]]:
    disk, clock = SlowDisk(), ManualClock()
    async with opened(disk, clock, settings=settings) as broker:
        try:
            yield broker, disk, clock
        finally:
            disk.let_go()


def deadline_after_restart(disk: SimDisk, clock: ManualClock) -> int:
    """The deadline of the one lease that a replay finds, in wall time."""
    session = Session(disk.crash("lost"), Ledger(), ManualClock(wall_ms=clock.wall_ms(), boot_ms=clock.boot_ms()))
    check_fold(session.engine)
    check_leases(events_of(session.engine))
    queue = session.engine.state.topics["q"].queue
    assert queue is not None
    [number] = queue.leases.numbers_after(0, 2)
    lease = queue.lease(number)
    assert lease is not None
    return lease.deadline_ms + session.engine.state.wall_offset_ms


@pytest.mark.parametrize(("wait_ms", "moved_ms"), [(2_900, 0), (3_100, 3_100), (5_000, 5_000)])
async def test_fault_15_a_claim_that_waited_long_for_its_sync_has_its_deadline_moved(
    wait_ms: int, moved_ms: int
) -> None:
    """Fault 15: by the wait, where that is more than a tenth of the lease; and the log says so."""
    async with slowed() as (broker, disk, clock):
        await broker.put_topic("q", {**QUEUE, "leases_durable": True})
        await broker.produce("q", payloads(3))
        asked_at = clock.wall_ms()
        disk.hold()
        claiming = asyncio.ensure_future(_await(broker.claim("q", node="w", max_count=2)))
        await disk.syncing()
        clock.advance(wait_ms)
        disk.let_go()
        claim = await soon(claiming)
        assert claim.deadline == asked_at + 30_000 + moved_ms
        await broker.produce("q", payloads(1))
        assert deadline_after_restart(disk, clock) == claim.deadline


async def test_fault_15_a_sync_longer_than_the_lease_does_not_expire_it_before_it_is_answered() -> None:
    """Fault 15: no false expiry. Nobody else gets the job, no delivery is burnt, and the worker has its whole lease."""
    async with slowed() as (broker, disk, clock):
        await broker.put_topic("q", {**QUEUE, "leases_durable": True, "lease_ms": 1_000})
        await broker.produce("q", payloads(1))
        asked_at = clock.wall_ms()
        disk.hold()
        claiming = asyncio.ensure_future(_await(broker.claim("q", node="w")))
        await disk.syncing()
        for _ in range(25):
            clock.advance(200)
            await asyncio.sleep(0)
            assert not (await soon(broker.claim("q", node="thief"))).jobs
        disk.let_go()
        claim = await soon(claiming)
        assert claim.deadline == asked_at + 5_000 + 1_000
        assert (await soon(broker.ack("q", node="w", seqs=claim.seqs))).count == 1


async def test_fault_15_a_worker_that_acks_while_the_disk_is_slow_is_not_expired_by_it() -> None:
    """Fault 15: the ack counts when it is carried out, however long its sync takes."""
    async with slowed() as (broker, disk, clock):
        await broker.put_topic("q", QUEUE)
        await broker.produce("q", payloads(1))
        claim = await broker.claim("q", node="w")
        disk.hold()
        acking = asyncio.ensure_future(_await(broker.ack("q", node="w", seqs=claim.seqs)))
        await disk.syncing()
        clock.advance(60_000)
        assert not (await soon(broker.claim("q", node="thief"))).jobs
        disk.let_go()
        assert (await soon(acking)).count == 1


async def test_fault_15_a_slow_disk_pushes_back_and_memory_stays_bounded() -> None:
    settings = msgspec.structs.replace(SETTINGS, segment_bytes=1 << 20, pending_bytes_max=50_000)
    async with slowed(settings) as (broker, disk, _):
        await broker.put_topic("q", QUEUE)
        disk.hold()
        answers = []
        while True:
            try:
                answer = broker.produce("q", payloads(1, size=1000))
            except Overloaded:
                break
            answers.append(asyncio.ensure_future(_await(answer)))
            await asyncio.sleep(0)
        await disk.syncing()
        assert 45 <= len(answers) <= 55
        assert not any(answer.done() for answer in answers), "acknowledged before it was durable"
        assert (await broker.diff("q")).records == [], "seen before it was durable"
        disk.let_go()
        await soon(asyncio.gather(*answers))
        assert len((await broker.diff("q", limit=1000)).records) == len(answers)
        await soon(broker.produce("q", payloads(1)))


async def test_fault_15_the_loop_does_not_wait_for_a_sync_where_the_log_goes_on_in_a_new_segment() -> None:
    """Fault 15: everybody would stand still with it, and workers whose heartbeat came in time would lose their jobs."""
    async with slowed() as (broker, disk, _):
        await broker.put_topic("q", QUEUE)
        disk.hold()
        answers = [asyncio.ensure_future(_await(broker.produce("q", payloads(1, size=900)))) for _ in range(9)]
        await disk.syncing()
        disk.let_go()
        await soon(asyncio.gather(*answers))
        assert disk.stalls == []


async def test_fault_15_the_loop_does_not_wait_for_a_sync_where_an_old_segment_goes() -> None:
    async with slowed() as (broker, disk, _):
        await broker.put_topic("q", QUEUE)
        for _ in range(12):
            await soon(broker.produce("q", payloads(1, size=900)))
        broker.delete_records("q", before_seq=1 << 40)
        disk.hold_behind(1)
        oldest = disk.names()[0]
        producing = asyncio.ensure_future(_await(broker.produce("q", payloads(1))))
        for _ in range(200):
            await asyncio.sleep(0.001)
        disk.let_go()
        await soon(producing)
        await soon(broker.synced())
        assert disk.stalls == []
    assert oldest not in disk.names(), "something was dropped"


async def test_fault_15_everybody_who_waits_is_answered_though_housekeeping_synced_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drop syncs too: whoever waited for that batch hears of it then, from no timer and no later command."""
    settings = msgspec.structs.replace(SETTINGS, sync_interval_ms=3_600_000)
    answers: list[asyncio.Future[Any]] = []
    dropped: list[int] = []
    real: Any = trim.trim_step

    def step(engine: Engine, deferred: Any = None) -> Any:
        """Take a step in a turn in which somebody has just begun to wait; after a drop, nobody sends anything more."""
        answer = broker.produce("r", payloads(1))
        answers.append(asyncio.ensure_future(answer))
        segments = len(engine.log.segments())
        more = real(engine)
        dropped.extend(range(len(engine.log.segments()), segments))
        return more

    monkeypatch.setattr(upkeep, "trim_step", step)
    async with opened(SimDisk(1), settings=settings) as broker:
        for name in ("q", "r"):
            await broker.put_topic(name, QUEUE)
        for _ in range(200):
            await soon(broker.produce("q", payloads(2, size=400)))
            if not dropped:
                await soon(broker.delete_records("q", before_seq=1 << 40))
            if dropped:
                break
        assert dropped
        await soon(asyncio.gather(*answers))


@pytest.mark.parametrize("second_ms", [0, 4_000])
async def test_fault_15_the_deadline_that_is_answered_is_durable(second_ms: int) -> None:
    """Fault 15: a power loss right after the answer gives the job to nobody else before that deadline."""
    async with slowed() as (broker, disk, clock):
        await broker.put_topic("q", {**QUEUE, "leases_durable": True, "lease_ms": 10_000})
        await broker.produce("q", payloads(1))
        disk.hold()
        claiming = asyncio.ensure_future(_await(broker.claim("q", node="w")))
        for wait_ms in (4_000, second_ms):
            await disk.syncing()
            clock.advance(wait_ms)
            disk.asked.clear()
            disk.let_one_go()
        disk.let_go()
        claim = await soon(claiming)
        left_ms = claim.deadline - clock.wall_ms()
        assert 9_000 <= left_ms <= 14_000
        world, later = disk.crash("lost"), ManualClock(wall_ms=clock.wall_ms(), boot_ms=clock.boot_ms())
    async with opened(world, later) as again:
        later.advance(left_ms)
        assert not (await soon(again.claim("q", node="thief"))).jobs
        later.advance(1)
        assert (await soon(again.claim("q", node="thief"))).jobs


async def test_fault_15_a_disk_that_stays_slow_does_not_keep_a_claim_for_ever() -> None:
    """Fault 15: every sync takes two leases. After a few of them the claim is answered, with a deadline ahead."""
    async with slowed() as (broker, disk, clock):
        await broker.put_topic("q", {**QUEUE, "leases_durable": True, "lease_ms": 1_000})
        await broker.produce("q", payloads(1))
        disk.hold()
        claiming = asyncio.ensure_future(_await(broker.claim("q", node="w")))
        syncs = 0
        while not claiming.done():
            await disk.syncing()
            for _ in range(20):
                clock.advance(100)
                await asyncio.sleep(0)
                assert not (await soon(broker.claim("q", node="thief"))).jobs
            syncs += 1
            disk.asked.clear()
            disk.let_one_go()
            await asyncio.wait([claiming, asyncio.ensure_future(disk.syncing())], return_when="FIRST_COMPLETED")
        assert syncs <= 4
        assert claiming.result().deadline - clock.wall_ms() >= 900
        disk.let_go()
        assert (await soon(broker.ack("q", node="w", seqs=[1]))).count == 1


# Fault 17


async def test_fault_17_a_directory_that_vanished_acknowledges_nothing_more(tmp_path: Path) -> None:
    home = tmp_path / "data"
    broker = await Broker.open(home, settings=SETTINGS)
    await broker.put_topic("q", QUEUE)
    await broker.produce("q", payloads(1))
    shutil.rmtree(home)
    with pytest.raises((Indeterminate, Closed)):
        await soon(broker.produce("q", payloads(1)))
    with pytest.raises(Closed):
        broker.produce("q", payloads(1))
    assert broker.topic("q").head_seq >= 1
    await soon(broker.close())


async def test_fault_17_a_directory_that_was_moved_away_acknowledges_nothing_more(tmp_path: Path) -> None:
    home = tmp_path / "data"
    broker = await Broker.open(home, settings=SETTINGS)
    await broker.put_topic("q", QUEUE)
    await broker.produce("q", payloads(1))
    home.rename(tmp_path / "elsewhere")
    with pytest.raises(Indeterminate):
        await soon(broker.produce("q", payloads(1)))
    await soon(broker.close())
    async with await Broker.open(tmp_path / "elsewhere", settings=SETTINGS) as again:
        assert again.topic("q").count in (1, 2)


def make_read_only(disk: SimDisk) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("create", "mkdir", "pwrite", "allocate", "truncate", "rename", "unlink"):
        setattr(disk, name, failing)


async def test_fault_17_a_disk_that_turns_read_only_stops_writes_and_serves_reads() -> None:
    disk = SimDisk(1)
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)
        await broker.produce("q", payloads(2))
        make_read_only(disk)
        with pytest.raises((Indeterminate, Closed)):
            await soon(broker.produce("q", payloads(1)))
        assert len((await broker.diff("q")).records) >= 2
        with pytest.raises(Closed):
            broker.produce("q", payloads(1))
    survive_as(disk, 2)


async def test_fault_17_a_read_only_disk_is_not_opened_and_says_so() -> None:
    disk = SimDisk(1)
    async with opened(disk) as broker:
        await broker.produce("q", payloads(2), config=QUEUE)
    world = disk.crash("lost")
    make_read_only(world)
    with pytest.raises(TenureError) as refused:
        await Broker.open(world, clock=ManualClock(), settings=SETTINGS)
    assert refused.value.code in ("unwritable", "read_only", "indeterminate")
    survive_as(disk, 2)


def survive_as(disk: SimDisk, count: int) -> None:
    session = Session(disk.crash("lost"), Ledger(), ManualClock())
    assert len(records(session.engine, "q")) == count
    check_fold(session.engine)


# Fault 19


async def test_fault_19_no_handles_left_sheds_the_load_and_keeps_the_log_whole() -> None:
    """Fault 19 on the simulated disk; with a real limit in tests/acceptance."""
    disk = SimDisk(1)
    create, open_ = disk.create, disk.open
    async with opened(disk) as broker:
        await broker.put_topic("q", QUEUE)

        def refused(*_: object, **__: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        disk.create = disk.open = refused  # type: ignore[method-assign]
        with pytest.raises(Overloaded):
            await produce_often(broker, size=300)
        produced = broker.topic("q").head_seq
        claim = await soon(broker.claim("q", node="w"))
        assert (await soon(broker.ack("q", node="w", seqs=claim.seqs))).count == 1
        disk.create, disk.open = create, open_  # type: ignore[method-assign]
        await soon(broker.produce("q", payloads(1)))
        assert broker.topic("q").count == produced
    survive_as(disk, produced)


def test_the_ledger_agrees_with_a_disk_that_stutters() -> None:
    session = Session(StutteringDisk(3), Ledger(), ManualClock())
    session.queue()
    session.produce(5, size=200)
    session.sync()
    survive(session.disk.crash("lost"), session.ledger, session.clock, power_lost=True)
