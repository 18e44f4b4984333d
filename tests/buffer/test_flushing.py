"""When a producer flushes with its default settings: by size, by who waits, and by what it may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tenure.buffer import BufferSettings, Producer
from tenure.limits import MIB
from tenure.testing.simstore import Call, Hold, SimStore
from tests.buffer.virtual_time import in_virtual_time
from tests.chain.worlds.clock import MachineClock

DEFAULTS = BufferSettings()


def uploads(sim: SimStore) -> int:
    return sim.count("put_new", "data/")


async def until(done: Callable[[], bool], clock: MachineClock) -> int:
    """Wait in steps of one virtual millisecond; return how many it took."""
    began = clock.boot_ms()
    while not done():
        await asyncio.sleep(0.001)
    return clock.boot_ms() - began


def test_a_batch_that_no_caller_waits_for_is_flushed_after_a_second():
    async def main(clock: MachineClock) -> int:
        async with Producer(SimStore(), clock=clock) as producer:
            handle = await producer.produce([b"a"])
            return await until(lambda: handle.done, clock)

    assert DEFAULTS.flush_interval_ms <= in_virtual_time(main) <= DEFAULTS.flush_interval_ms + 2


@pytest.mark.parametrize(("waits_from_ms", "flushed_ms"), [(0, 100), (60, 100), (99, 100), (400, 400), (999, 999)])
def test_a_caller_that_begins_to_wait_sees_its_batch_flushed_100_ms_after_it_began(waits_from_ms: int, flushed_ms: int):
    """The batch is as old as its first entry: whoever begins to wait later waits for less, or for no timer at all."""

    async def main(clock: MachineClock) -> int:
        async with Producer(SimStore(), clock=clock) as producer:
            handle, began = await producer.produce([b"a"]), clock.boot_ms()
            await asyncio.sleep(waits_from_ms / 1000)
            await handle.durable()
            return clock.boot_ms() - began

    assert DEFAULTS.flush_awaited_ms == 100
    assert flushed_ms <= in_virtual_time(main) <= flushed_ms + 2


def test_the_shorter_of_the_two_intervals_holds_for_a_caller_that_waits():
    async def main(clock: MachineClock) -> int:
        settings = BufferSettings(flush_interval_ms=20)
        async with Producer(SimStore(), settings=settings, clock=clock) as producer:
            handle, began = await producer.produce([b"a"]), clock.boot_ms()
            await handle.durable()
            return clock.boot_ms() - began

    assert in_virtual_time(main) <= 22


def test_callers_that_wait_at_the_same_time_share_a_batch():
    """Also where the batch is old enough to be flushed at once: it is sealed in the loop's next turn."""

    async def main(clock: MachineClock) -> int:
        sim = SimStore()
        async with Producer(sim, clock=clock) as producer:
            first = await producer.produce([b"a"])
            await asyncio.sleep(0.5)

            async def late() -> None:
                await (await producer.produce([b"b"])).durable()

            await asyncio.gather(first.durable(), *(late() for _ in range(50)))
            return uploads(sim)

    assert in_virtual_time(main) == 1


def test_a_caller_of_a_sealed_batch_hastens_no_other():
    async def main(clock: MachineClock) -> tuple[int, bool]:
        sim, hold = SimStore(), Hold()
        sim.hook = lambda call: hold if call.key.startswith("data/") and not hold.reached.is_set() else None
        async with Producer(sim, clock=clock) as producer:
            sealed = await producer.produce([b"x"] * 8, b"")
            flushing = asyncio.create_task(producer.flush())
            await hold.reached.wait()
            later = await producer.produce([b"y"])
            waiting = asyncio.create_task(sealed.durable())
            await asyncio.sleep(0.9)
            so_far = uploads(sim)
            hold.release()
            await asyncio.gather(flushing, waiting)
            return so_far, later.done

    assert in_virtual_time(main) == (1, False)


def test_a_batch_of_16_mib_is_flushed_at_once_and_a_call_of_that_size_alone():
    async def main(clock: MachineClock) -> tuple[list[int], int]:
        sim, sealed = SimStore(), list[int]()
        async with Producer(sim, clock=clock) as producer:
            for calls in ([9, 9, 9], [1, 16, 1], [16, 16]):
                handles = [await producer.produce([bytes(size * MIB)]) for size in calls]
                await asyncio.sleep(0.05)
                sealed.append([handle.done for handle in handles].count(True))
                await producer.flush()
        return sealed, uploads(sim)

    assert DEFAULTS.flush_bytes == 16 * MIB
    # 9 + 9 reach it, and a third gathers; 1 is sealed before a call that is a batch by itself.
    assert in_virtual_time(main) == ([2, 2, 2], 2 + 3 + 2)


@pytest.mark.parametrize(
    "settings",
    [
        BufferSettings(inflight_bytes_max=100_000, call_bytes_max=90_000),
        BufferSettings(inflight_calls_max=10),
    ],
)
def test_callers_that_wait_for_room_never_sit_out_the_interval(settings: BufferSettings):
    """Naive: they fill the producer, nobody awaits durability, and each round of room comes with the timer."""

    async def main(clock: MachineClock) -> tuple[int, int]:
        sim, held = SimStore(latency_ms=5), list[int]()
        async with Producer(sim, settings=settings, clock=clock) as producer:
            began = clock.boot_ms()

            async def caller() -> None:
                for _ in range(20):
                    await producer.produce([bytes(3_000)])
                    held.append(producer.metrics.inflight_bytes)

            await asyncio.gather(*(caller() for _ in range(100)))
            took = clock.boot_ms() - began
        assert max(held) <= settings.inflight_bytes_max
        return took, uploads(sim)

    took_ms, batches = in_virtual_time(main)
    calls = 100 * 20
    rounds = calls / min(settings.inflight_calls_max, settings.inflight_bytes_max // 3_064)
    assert took_ms < rounds * 40, "a round is an upload and a commit, 15 ms of the store's"
    assert batches <= 4 * rounds, "what is let in together is a batch"


SMALL = BufferSettings(inflight_bytes_max=1_000, call_bytes_max=1_000)


def test_a_call_without_room_has_the_batch_flushed_that_holds_it():
    async def main(clock: MachineClock) -> int:
        async with Producer(SimStore(), settings=SMALL, clock=clock) as producer:
            await producer.produce([bytes(400)])
            began = clock.boot_ms()
            await producer.produce([bytes(700)])
            return clock.boot_ms() - began

    assert in_virtual_time(main) < 10


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_call_that_is_let_in_before_one_that_still_waits_is_flushed_at_once(gives_up: bool):
    """It holds room that the other needs, whether it came in when a batch settled or when a caller gave up."""

    async def main(clock: MachineClock) -> int:
        sim, hold = SimStore(), Hold()
        sim.hook = lambda call: hold if call.key.startswith("data/") and not hold.reached.is_set() else None
        async with Producer(sim, settings=SMALL, clock=clock) as producer:
            await producer.produce([bytes(700)])
            await hold.reached.wait()
            calls = [700, 1, 930] if gives_up else [300, 930]
            *firsts, last = (asyncio.create_task(producer.produce([bytes(size)])) for size in calls)
            await asyncio.sleep(0)
            if gives_up:
                firsts[0].cancel()
                await firsts[1]
            began = clock.boot_ms()
            hold.release()
            await last
            return clock.boot_ms() - began

    assert in_virtual_time(main) < 10


def test_a_batch_ends_at_half_of_what_may_be_in_flight():
    """So that calls gather while the one before is under way, however small their entries are."""

    async def main(clock: MachineClock) -> list[int]:
        sim, sizes = SimStore(), list[int]()

        def hook(call: Call) -> None:  # an upload begins
            if call.key.startswith("data/"):
                sizes.append(producer.metrics.calls)

        settings = BufferSettings(inflight_calls_max=1_000)
        sim.hook = hook
        async with Producer(sim, settings=settings, clock=clock) as producer:
            for _ in range(1_000):
                await producer.produce([b""])
                await asyncio.sleep(0.0001)
        return sizes

    assert in_virtual_time(main)[0] == 500


def test_one_timer_serves_a_batch_however_many_callers_wait():
    """Naive: a timer for each caller that waits, or a task."""

    async def main(clock: MachineClock) -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        async with Producer(SimStore(), clock=clock) as producer:
            before = len(loop._scheduled)  # type: ignore[attr-defined]
            handles = [await producer.produce([b"a"]) for _ in range(500)]
            gathering = len(loop._scheduled) - before  # type: ignore[attr-defined]
            waiting = [asyncio.create_task(handle.durable()) for handle in handles]
            await asyncio.sleep(0)
            live = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
            await asyncio.gather(*waiting)
            return gathering, len(live) - before

    assert in_virtual_time(main) == (1, 1)
