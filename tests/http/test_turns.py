"""Long work in turns: everything else on the loop goes on between them, and nobody has two turns at once."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from time import perf_counter

from tenure.http.append.long_work import Turns, finish


def clock_of(step_s: float) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield now_s
        now_s += step_s


def turns_of(steps: int) -> Turns:
    """Turns of so many steps each."""
    return Turns(1_000, clock=clock_of(1 / steps).__next__)


def work(name: str, steps: int, *, said: list[str]) -> Generator[None, None, str]:
    for _ in range(steps):
        said.append(name)
        yield
    return name


async def test_the_loop_goes_round_between_turns() -> None:
    said: list[str] = []

    async def other() -> None:
        while True:
            said.append("-")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await turns_of(10).run(work("a", 100, said=said)) == "a"
    beside.cancel()
    runs = "".join(said).split("-")
    assert sum(map(len, runs)) == 100
    assert max(map(len, runs)) <= 11


async def test_long_work_takes_turns_with_its_like_and_one_turn_at_a_time() -> None:
    said: list[str] = []
    turns = turns_of(10)
    beside = asyncio.create_task(turns.run(work("-", 1_000, said=said)))
    names = await asyncio.gather(*(turns.run(work(name, 30, said=said)) for name in "abc"))
    assert names == ["a", "b", "c"]
    assert said.count("-") <= 60
    beside.cancel()
    assert finish(work("d", 3, said=said)) == "d"


async def test_work_whose_caller_is_gone_makes_room_for_the_next() -> None:
    said: list[str] = []
    turns = turns_of(10)
    gone = asyncio.create_task(turns.run(work("a", 1_000, said=said)))
    waits = asyncio.create_task(turns.run(work("b", 10, said=said)))
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.wait_for(waits, 60) == "b"
    assert said.count("a") <= 20


async def test_long_work_rests_as_long_as_it_worked_while_others_wait_for_the_disk() -> None:
    async def passes_for(pressed: bool) -> int:
        loop, passes = asyncio.get_running_loop(), 0
        turns = Turns(5, pressed=lambda: pressed)

        def count() -> None:
            nonlocal passes
            passes += 1
            loop.call_soon(count)

        count()
        await turns.run(busy())
        return passes

    def busy() -> Generator[None, None, None]:
        for _ in range(4):
            until = perf_counter() + 0.005
            while perf_counter() < until:
                pass
            yield

    alone, beside = await passes_for(False), await passes_for(True)
    assert beside > 5 * alone  # the loop goes round freely while it rests
