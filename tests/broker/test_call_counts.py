"""The way of a command, counted: how much of it lies in the core, and how many modules it passes.

The queue is a long one in a data directory, and each command is the first of its turn of the loop, which reads the
clocks and plans the write: the longest way that a command without a surprise takes.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

import tenure
from tenure import Broker

PACKAGE = str(Path(tenure.__file__).parent) + "/"
JOBS = 200
BUSY = 1_001

T = TypeVar("T")


def trace(call: Callable[[], T]) -> tuple[T, list[str]]:
    """Return what a call returns, and the module of every function of the package that it called."""
    modules: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            modules.append(path.removeprefix(PACKAGE))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        return call(), modules
    finally:
        sys.setprofile(before)


def assert_within(modules: list[str], *, core_percent_min: int, calls_max: int, modules_max: int) -> None:
    rooms = Counter(module.partition("/")[0] for module in modules)
    assert 100 * rooms["core"] >= core_percent_min * rooms.total(), rooms
    assert rooms.total() <= calls_max, modules
    assert len(set(modules)) <= modules_max, sorted(set(modules))


async def test_most_of_a_command_is_decided_and_folded_in_the_core(tmp_path: Path) -> None:
    async with await Broker.open(tmp_path / "data") as broker:
        await broker.put_topic("q", {"type": "queue"})
        await broker.produce("q", [b"1"] * BUSY)  # a queue that has had many jobs, not all of which are measured
        await broker.claim("q", node="w", max_count=BUSY, auto_ack=True)
        for _ in range(JOBS):
            await broker.produce("q", [b"1"])
        first = await broker.claim("q", node="w")
        await broker.ack("q", node="w", lease_id=first.lease_id)

        produced, appending = trace(lambda: broker.produce("q", [b"1"]))
        await produced
        claimed, claiming = trace(lambda: broker.claim("q", node="w"))
        seqs = (await claimed).seqs
        acked, acking = trace(lambda: broker.ack("q", node="w", seqs=list(seqs)))
        await acked

    assert_within(claiming, core_percent_min=40, calls_max=28, modules_max=20)
    assert_within(acking, core_percent_min=34, calls_max=27, modules_max=20)
    assert_within(appending, core_percent_min=18, calls_max=16, modules_max=12)


async def calls_of_a_pushed_life(path: Path, **isolation: Any) -> float:
    """How many functions of the package a job costs that is produced, pushed to a work stream and acked."""
    calls = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    async with await Broker.open(path) as broker:
        await broker.put_topic("q", {"type": "queue"})
        async with broker.work("q", node="w", max_count=100, **isolation) as stream:
            before = sys.getprofile()
            try:
                for turn in range(2 * JOBS):
                    if turn == JOBS:  # the first ones meet everything cold
                        sys.setprofile(profile)
                    await broker.produce("q", [b"1"])
                    grant = await anext(stream)
                    await broker.ack("q", node="w", seqs=list(grant.seqs))
            finally:
                sys.setprofile(before)
    return calls / JOBS


async def test_isolation_costs_a_job_that_is_pushed_three_calls_and_suspects_that_are_not_there_cost_none(
    tmp_path: Path,
) -> None:
    """Its lease names a group, which is checked. That others may ask for suspects is looked at where some wait."""
    # How long a sync is waited for differs by two calls from one life to the next.
    plain = max([await calls_of_a_pushed_life(tmp_path / f"plain{turn}") for turn in range(4)])
    isolated = max(
        [await calls_of_a_pushed_life(tmp_path / f"isolated{turn}", isolate=True, group="g") for turn in range(4)]
    )
    assert plain <= 240, plain
    assert isolated - plain <= 4.5, (plain, isolated)


async def test_a_claim_that_waits_passes_through_one_future_and_none_where_it_is_called_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    futures: list[object] = []

    class Counted(asyncio.Future[Any]):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            futures.append(self)

    loop = asyncio.get_running_loop()
    async with await Broker.open(tmp_path / "data") as broker:
        await broker.put_topic("q", {"type": "queue"})
        monkeypatch.setattr(loop, "create_future", lambda: Counted(loop=loop))
        task = asyncio.create_task(broker.claim("q", node="w", wait_ms=60_000))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        broker.produce("q", [b"1"])
        assert (await task).seqs == [1]
        awaited = len(futures)
        answer, heard = broker.claim("q", node="w", wait_ms=60_000), list[object]()
        answer.when_done(heard.append)
        broker.produce("q", [b"2"])
        while not heard:
            await asyncio.sleep(0)
        monkeypatch.undo()
    assert awaited == 1
    assert len(futures) == awaited
