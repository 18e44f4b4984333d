"""The producer's own promises: when it flushes, what bounds it, how it ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.buffer import Producer, StoreRefused
from tenure.buffer.writing.budget import Budget
from tenure.errors import Closed, Indeterminate, Invalid
from tenure.testing import ManualClock
from tenure.testing.simstore import Call, Hold, SimStore
from tests.kit.buffers import consumed, folded, produced, quick

LATER = 3_600_000


async def test_a_batch_is_flushed_by_bytes_by_time_and_on_request(sim: SimStore):
    async with Producer(sim, settings=quick(flush_bytes=100, flush_interval_ms=LATER)) as producer:
        full = [await producer.produce([b"x" * 60]) for _ in range(2)]
        waiting = await producer.produce([b"x" * 60])  # begins another
        await asyncio.gather(*(handle.durable() for handle in full))
        assert not waiting.done
        await producer.flush()
        assert waiting.done
    async with Producer(sim, settings=quick(flush_interval_ms=20)) as producer:
        await asyncio.wait_for((await producer.produce([b"a"])).durable(), 10)
    assert (await folded(sim)).next_seq == 3


async def test_a_batch_is_flushed_by_time_while_its_caller_never_yields(sim: SimStore):
    """Naive: the timer of a loop that never runs; 3,000 calls later nothing is durable."""
    async with Producer(sim, settings=quick(flush_interval_ms=10)) as producer:
        first = await producer.produce([b"first"])
        for _ in range(3_000):
            time.sleep(0.003)  # what the caller computes; it awaits nothing but the producer
            await producer.produce([b"x"])
            if first.done:
                break
        assert first.done


async def test_calls_share_a_batch_and_know_their_place(sim: SimStore):
    async with Producer(sim, settings=quick(flush_interval_ms=LATER)) as producer:
        handles = [await producer.produce([b"a", b"b"]) for _ in range(3)]
        await producer.flush()
        positions = [await handle.durable() for handle in handles]
    assert [(p.seq, p.start, p.count) for p in positions] == [(0, 0, 2), (0, 2, 2), (0, 4, 2)]


async def test_while_a_commit_is_in_flight_everything_ready_rides_the_next(sim: SimStore):
    async with Producer(sim, settings=quick(flush_interval_ms=LATER)) as producer:
        hold = Hold()
        sim.hook = lambda call: hold if call.key.endswith("01.json") and call.kind == "put_new" else None
        handles = [await producer.produce([b"0"])]
        flushing = [asyncio.create_task(producer.flush())]
        await hold.reached.wait()
        for number in range(1, 6):
            handles.append(await producer.produce([b"%d" % number]))
            flushing.append(asyncio.create_task(producer.flush()))
            await asyncio.sleep(0.01)
        while len([key for key in sim.objects if key.startswith("data/")]) < 6:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        hold.release()
        await asyncio.gather(*flushing)
        assert producer.metrics.commits == 2
        assert [(await handle.durable()).seq for handle in handles] == [0, 1, 2, 3, 4, 5]
    assert await consumed(sim) == [b"%d" % number for number in range(6)]


async def test_batches_are_committed_in_order_although_uploads_overtake_each_other(sim: SimStore):
    first = Hold()
    held = list[Call]()

    def hook(call: Call) -> Hold | None:
        if call.kind == "put_new" and call.key.startswith("data/") and not held:
            held.append(call)
            return first
        return None

    async with Producer(sim, settings=quick(flush_bytes=1, flush_interval_ms=LATER)) as producer:
        sim.hook = hook
        handles = [await producer.produce([b"a"])]
        await first.reached.wait()
        handles.append(await producer.produce([b"b"]))
        while not any(key.startswith("data/") for key in sim.objects):
            await asyncio.sleep(0.001)
        assert not handles[1].done
        first.release()
        assert [(await handle.durable()).seq for handle in handles] == [0, 1]
    assert await consumed(sim) == [b"a", b"b"]


async def test_produce_waits_while_the_producer_is_full_and_a_cancelled_wait_leaks_nothing(sim: SimStore):
    hold = Hold()
    settings = quick(inflight_bytes_max=1_000, call_bytes_max=1_000, flush_interval_ms=LATER)
    async with Producer(sim, settings=settings) as producer:
        sim.hook = lambda call: hold if call.key.startswith("data/") and not hold.reached.is_set() else None
        first = await producer.produce([b"x" * 900])
        waiting = [asyncio.create_task(producer.produce([b"y" * 100])) for _ in range(3)]
        await hold.reached.wait()  # a full producer flushes what it has
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        await asyncio.sleep(0)
        hold.release()
        await first.durable()
        await asyncio.gather(*waiting[1:])
        await producer.flush()
        assert producer.metrics.inflight_bytes == 0
        assert producer.metrics.calls == 3


async def test_a_cancelled_wait_for_durability_cancels_nothing(sim: SimStore):
    hold = Hold()
    async with Producer(sim, settings=quick()) as producer:
        sim.hook = lambda call: hold if call.key.startswith("data/") and not hold.reached.is_set() else None
        handle = await producer.produce([b"a"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.durable(), 0.02)
        hold.release()
        assert (await handle.durable()).seq == 0


async def test_a_deadline_bounds_the_upkeep_of_close_too(sim: SimStore):
    """Naive: the batches are durable, and close waits for a checkpoint on a store that hangs."""
    producer = await Producer.open(sim, settings=quick(checkpoint_deltas=1, upkeep_ms_max=LATER))
    hold = Hold()
    sim.hook = lambda call: hold if "checkpoint" in call.key else None
    await (await producer.produce([b"a"])).durable()
    await hold.reached.wait()
    await asyncio.wait_for(producer.close(deadline_ms=50), 60)


async def test_a_close_without_a_deadline_waits_for_upkeep_for_so_long_and_no_longer(sim: SimStore):
    producer = await Producer.open(sim, settings=quick(checkpoint_deltas=1, upkeep_ms_max=50))
    hold = Hold()
    sim.hook = lambda call: hold if "checkpoint" in call.key else None
    await (await producer.produce([b"a"])).durable()
    await hold.reached.wait()
    await asyncio.wait_for(producer.close(), 60)


async def test_a_cancelled_close_waits_for_nothing_more(sim: SimStore):
    """Neither for the batch that it waited for, nor for upkeep."""
    producer = await Producer.open(sim, settings=quick(checkpoint_deltas=1, upkeep_ms_max=LATER))
    upload, checkpoint = Hold(), Hold()
    sim.hook = lambda call: checkpoint if "checkpoint" in call.key else None
    await (await producer.produce([b"a"])).durable()
    await checkpoint.reached.wait()
    sim.hook = lambda call: upload if call.key.startswith("data/") else None
    handle = await producer.produce([b"b"])
    await upload.reached.wait()
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing], timeout=30)
    assert closing.cancelled()
    with pytest.raises(Indeterminate):
        await handle.durable()


async def test_what_a_writer_of_one_commit_kept_up_is_announced_when_it_closes(sim: SimStore):
    """Naive: upkeep rides on the writer's next commit, so of writers that commit once the tail is never sealed."""
    settings = quick(run_entries=4, checkpoint_deltas=8)
    for number in range(40):
        await produced(sim, [b"%d" % number], settings=settings)
    state = await folded(sim)
    assert len(state.tail) <= 8
    assert state.number - state.checkpoint <= 16
    assert await consumed(sim, settings=settings) == [b"%d" % number for number in range(40)]


async def test_close_flushes_and_a_deadline_bounds_it(sim: SimStore):
    producer = await Producer.open(sim, settings=quick(flush_interval_ms=LATER))
    handle = await producer.produce([b"a"])
    await producer.close()
    assert (await handle.durable()).seq == 0
    with pytest.raises(Closed):
        await producer.produce([b"b"])

    producer = await Producer.open(sim, settings=quick(flush_interval_ms=LATER))
    sim.hook = lambda call: Hold() if call.key.startswith("data/") else None
    handle = await producer.produce([b"b"])
    with pytest.raises(Indeterminate):
        await producer.close(deadline_ms=10)
    with pytest.raises(Indeterminate):
        await handle.durable()
    sim.hook = lambda call: None
    assert await consumed(sim) == [b"a"]


async def test_a_failure_that_nobody_asked_after_is_told_when_the_producer_is_closed(sim: SimStore):
    sim.hook = lambda call: "refused" if call.key.startswith("data/") else None
    producer = await Producer.open(sim, settings=quick())
    await producer.produce([b"a"])
    with pytest.raises(StoreRefused):
        await producer.close()

    async def invalid() -> None:
        async with Producer(sim, settings=quick()) as producer:
            await producer.produce([b"a"])
            await producer.produce([])

    with pytest.raises(Invalid):  # what went wrong first is what matters
        await invalid()
    async with Producer(sim, settings=quick()) as producer:
        with pytest.raises(StoreRefused):
            await (await producer.produce([b"a"])).durable()
        await producer.produce([b"b"])
        with pytest.raises(StoreRefused):
            await producer.flush()


async def test_a_list_that_its_owner_uses_again_is_in_the_batch_as_it_was(sim: SimStore):
    async with Producer(sim, settings=quick(flush_interval_ms=LATER)) as producer:
        entries = [b"a", b"b"]
        await producer.produce(entries)
        entries.clear()
        entries.append(b"c")
        await producer.produce(entries)
        entries.clear()
    assert await consumed(sim) == [b"a", b"b", b"c"]


async def test_metadata_counts_as_held_and_a_batch_holds_no_more_of_it_than_can_be_read(
    sim: SimStore, monkeypatch: pytest.MonkeyPatch
):
    """Readers of Parquet refuse a footer beyond 100 MB: what was durable would be lost."""
    monkeypatch.setattr("tenure.buffer.writing.producer.FOOTER_BYTES_MAX", 10_000)
    async with Producer(sim, settings=quick(flush_interval_ms=LATER)) as producer:
        for _ in range(10):
            await producer.produce([b""], b"m" * 3_000)
        assert producer.metrics.inflight_bytes >= 30_000
        await producer.flush()
        assert producer.metrics.batches == 5
    assert len(await consumed(sim)) == 10
    with pytest.raises(Invalid, match="metadata_bytes_max"):
        quick(metadata_bytes_max=64 << 20)


async def test_the_oldest_entry_that_is_not_durable_shows_a_store_that_is_stuck(sim: SimStore):
    hold, clock = Hold(), ManualClock()
    async with Producer(sim, settings=quick(), clock=clock) as producer:
        sim.hook = lambda call: hold if call.key.startswith("data/") and not hold.reached.is_set() else None
        handle = await producer.produce([b"a"])
        await hold.reached.wait()
        clock.advance(5_000)
        assert producer.metrics.snapshot(clock.wall_ms())["oldest_unflushed_ms"] == 5_000
        hold.release()
        await handle.durable()
        await producer.flush()
        assert producer.metrics.snapshot(clock.wall_ms())["oldest_unflushed_ms"] == 0


async def test_metrics_tell_what_it_costs(sim: SimStore):
    async with Producer(sim, settings=quick(flush_interval_ms=LATER)) as producer:
        await producer.produce([b"x" * 1_000] * 10)
        now_ms = producer.metrics.unflushed_since_ms + 250
        assert producer.metrics.snapshot(now_ms)["oldest_unflushed_ms"] == 250
        await producer.flush()
        figures = producer.metrics.snapshot(now_ms)
    assert (figures["entries"], figures["entry_bytes"], figures["batches"]) == (10, 10_000, 1)
    assert 0 < figures["compression"] < 0.5
    assert figures["requests_total"] == sum(figures["requests"].values())
    assert figures["requests_per_gb"] == figures["requests_total"] / 1e-5
    assert figures["objects_per_hour"] > 0


# The budget


async def test_a_budget_lets_in_first_come_first_served():
    budget = Budget(bytes_max=10, calls_max=2)
    await budget.acquire(6)
    order: list[int] = []

    async def enter(weight: int) -> None:
        await budget.acquire(weight)
        order.append(weight)

    tasks = [asyncio.create_task(enter(weight)) for weight in (7, 1, 2)]
    await asyncio.sleep(0)
    assert order == []  # 1 would fit, but 7 was first
    budget.release(6, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == [7, 1]
    budget.release(7, 1)
    await asyncio.gather(*tasks)
    assert (budget.bytes, budget.calls) == (3, 2)


async def test_a_wait_that_is_granted_and_cancelled_at_once_gives_back():
    budget = Budget(bytes_max=10, calls_max=10)
    await budget.acquire(10)
    task = asyncio.create_task(budget.acquire(5))
    await asyncio.sleep(0)
    budget.release(10, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (budget.bytes, budget.calls) == (0, 0)
