"""The parts of a worker process stand by themselves: none waits for another's queue, and the end waits for nobody."""

from __future__ import annotations

import asyncio

import pytest

from tenure.client.transport.wire import Request
from tenure.errors import Indeterminate
from tests.worker.serving import MemoryApp, serving
from tests.worker.task_flow import turns


def is_put(request: Request, queue: str) -> bool:
    return request.method == "POST" and request.path.partition("?")[0] == f"/v0/topics/{queue}"


async def test_a_queue_that_cannot_be_declared_keeps_no_other_from_starting() -> None:
    app, seen = MemoryApp(), list[str]()

    @app.task("new")
    async def new() -> None:
        seen.append("new")

    @app.task("old")
    async def old() -> None:
        seen.append("old")

    async with serving(app) as at:
        at.wire.refuses = lambda request: "/topics/new" in request.path
        await at.start()
        await at.broker.produce("old", [b"null"])
        await at.until(lambda: seen == ["old"])
        at.wire.refuses = lambda request: False
        await new.put()
        await at.until(lambda: seen == ["old", "new"])


async def test_a_schedule_whose_queue_does_not_answer_delays_no_other() -> None:
    app, ticks = MemoryApp(), list[str]()

    @app.periodic("stuck", every="1m")
    async def stuck() -> None:
        ticks.append("stuck")

    @app.periodic("quick", every="1m")
    async def quick() -> None:
        ticks.append("quick")

    async with serving(app) as at:
        at.wire.holds = lambda request: is_put(request, "stuck")
        await at.start()
        await at.until(lambda: ticks == ["quick"] * 3, ms=300_000)
        assert at.wire.held, "the other one was tried"


async def test_a_second_signal_does_not_wait_for_puts_that_nobody_answers() -> None:
    app, puts = MemoryApp(), list[asyncio.Task[int]]()

    @app.task("out")
    async def out() -> None: ...

    @app.task("in")
    async def put_out(n: int) -> None:
        if n:
            puts.append(asyncio.create_task(out.put()))  # nobody waits for it before the worker ends
        else:
            await out.put()

    async with serving(app) as at:
        await at.start()
        await at.broker.produce("in", [b"0"])
        await turns()
        at.wire.holds = lambda request: is_put(request, "out")
        await at.broker.produce("in", [b"1"])
        await at.until(lambda: bool(at.wire.held))
        await at.end()
        await turns()
        assert all(put.done() for put in puts)
        with pytest.raises(Indeterminate):
            puts[0].result()
