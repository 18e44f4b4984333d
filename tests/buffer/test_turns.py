"""The loop's turns, taken from a caller that never yields: counted, on a clock that the test moves."""

from __future__ import annotations

import asyncio

from tenure.buffer.writing.budget import Turns
from tenure.testing import ManualClock


class Steps:
    """Work of the loop that needs a number of turns."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self.left -= 1
        if self.left:
            asyncio.get_running_loop().call_soon(self._step)
        else:
            self.done.set_result(0)


async def test_a_loop_that_was_withheld_has_one_turn_at_each_call():
    clock, steps = ManualClock(), Steps(1_000)
    turns = Turns(clock)
    for _ in range(100):
        turns.note()
        clock.advance(3)
        await turns.take(lambda: None)
    assert 900 <= steps.left <= 901
    for _ in range(100):  # calls that withhold nothing cost no turn
        turns.note()
        await turns.take(lambda: None)
    assert steps.left >= 900
    steps.left = 1
    await steps.done


async def test_a_loop_that_was_withheld_for_long_ends_what_is_under_way_between_a_few_calls():
    """Naive: a flush of twenty turns, one at each call of 50 ms, takes a second."""
    clock, steps = ManualClock(), Steps(50)
    turns, calls = Turns(clock), 0
    while not steps.done.done():
        turns.note()
        clock.advance(50)
        await turns.take(lambda: steps.done)
        calls += 1
    assert calls < 10


async def test_a_loop_that_ran_is_owed_nothing():
    clock = ManualClock()
    turns = Turns(clock)
    turns.note()
    await asyncio.sleep(0)
    clock.advance(1_000)
    steps = Steps(3)
    await turns.take(lambda: steps.done)
    assert steps.left == 3
    await steps.done
