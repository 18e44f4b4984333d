"""One sleeper stops every handler that runs too long, and mistakes no other cancellation for its own."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tenure.testing import ManualClock, ManualTiming
from tenure.worker.runtime.time_limit import TimeLimit


class Limited:
    """Coroutines under a limit of 100 ms on a clock in the hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.limit = TimeLimit(100, timing=self.timing)

    async def start(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self.limit.run(asyncio.Event().wait()))
        await turns()
        return task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_is_stopped_at_its_own_time_with_one_sleeper_for_all():
    limited = Limited()
    tasks = []
    for _ in range(3):
        tasks.append(await limited.start())
        limited.clock.advance(30)
        await turns()
    assert limited.timing.sleeping == 1
    for task in tasks:
        limited.clock.advance(10 if task is tasks[0] else 30)
        await turns()
        with pytest.raises(TimeoutError, match="ran longer than its time limit of 100 ms"):
            task.result()
        assert task.cancelling() == 0
    await turns()
    assert limited.timing.sleeping == 0


async def test_nothing_stays_behind_what_ended_in_time():
    limited = Limited()

    async def quick() -> None:
        await asyncio.sleep(0)

    for _ in range(10):
        await limited.limit.run(quick())
    await turns()
    assert limited.timing.sleeping == 0
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancellation_from_elsewhere_stays_one_even_where_both_come_at_once():
    limited = Limited()
    task = await limited.start()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    both = await limited.start()
    limited.clock.advance(100)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both


async def test_what_ends_in_its_own_way_after_its_time_is_not_judged_late():
    limited = Limited()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("mine") from None

    async def forgiving() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    for work, expected in ((stubborn, ValueError), (forgiving, None)):
        task = asyncio.create_task(limited.limit.run(work()))
        await turns()
        limited.clock.advance(100)
        await asyncio.wait({task})
        assert type(task.exception()) is (expected or type(None))
        assert task.cancelling() == 0
