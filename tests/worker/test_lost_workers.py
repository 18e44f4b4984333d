"""A worker that is cut off, drains or meets suspects: what its jobs cost, on a broker in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tenure.client.client import AsyncClient
from tenure.client.transport.wire import Request, Response
from tenure.testing.wire import AppWire
from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.processes.executors import LoopExecutor
from tenure.worker.runtime.suspects import SuspectSlots
from tests.worker.task_flow import Flow, flowing, turns


class Log:
    """A handler that waits until it is let go, and writes down what happens."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.contexts: list[Context] = []
        self.go = asyncio.Event()

    async def __call__(self, n: int, ctx: Context) -> None:
        self.begun.append(n)
        self.contexts.append(ctx)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(n)
            raise


async def lose(flow: Flow, *, times: int, begun: bool = True) -> None:
    """Let workers die that hold all jobs of the queue, each time under another name."""
    for number in range(times):
        claim: dict[str, Any] = {"node": f"dead-{number}", "max_count": 100, "isolate": True}
        claimed = await flow.broker.claim("q", **claim, suspects=number > 0)
        seqs = list(claimed.seqs) if begun else []
        await flow.broker.end_node("q", node=f"dead-{number}", seqs=seqs, exit_code=-9)
    await turns()


async def tries_of(flow: Flow, seq: int) -> tuple[int, int, int]:
    """The deliveries, tries and losses of a job at its next delivery."""
    async with AsyncClient(wire=AppWire(flow.broker), node="x") as client:
        job = await client.job("q", seq)
    return job.deliveries, job.deliveries if job.tries is None else job.tries, job.lost


async def test_a_stream_that_is_cut_costs_no_handler_its_job() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=2, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 4)
        for _ in range(5):
            flow.app_wire.down = True
            await turns()
            flow.app_wire.down = False
            await flow.advance(12_000, step_ms=100)
        assert (log.begun, log.cancelled) == ([0, 1], [])
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert [ctx.deliveries for ctx in log.contexts] == [1] * 4
        assert flow.stats["q"].leases_lost == 0


async def test_what_is_held_is_extended_at_once_where_a_stream_is_cut_and_not_after_the_reconnect_alone() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=0, lease="10m")(log)
    async with flowing(reconnect_min_ms=60_000, reconnect_max_ms=3_600_000) as flow:
        await flow.start(task)
        await flow.put("q", 2)
        before = flow.wire.count("/extend")
        flow.app_wire.down = True
        flow.app_wire.down = False
        await turns()
        assert flow.wire.count("/extend") == before + 1, "no time has passed"
        await flow.advance(10_000, step_ms=500)
        assert log.cancelled == []


async def test_an_outage_is_not_an_extend_for_each_try_to_reconnect() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=0, lease="10m")(log)
    async with flowing(reconnect_min_ms=10, reconnect_max_ms=100) as flow:
        await flow.start(task)
        await flow.put("q", 2)
        before = flow.wire.count("/extend")
        flow.app_wire.down = True
        await flow.advance(10_000, step_ms=50)
        assert flow.wire.count("/work") >= 20
        assert flow.wire.count("/extend") == before + 1


async def test_a_broker_that_may_feed_the_stream_that_was_cut_is_told_before_the_next_one_opens() -> None:
    app, log = App(), Log()
    task = app.task("q")(log)
    async with flowing() as flow:
        await flow.start(task)
        flow.app_wire.down = True
        await turns()
        flow.app_wire.down = False
        await flow.until(lambda: flow.wire.count("/work") >= 3)
        assert [request.method for request in flow.wire.requests if "/work" in request.path] == ["GET", "DELETE", "GET"]


async def test_twenty_drains_cost_no_job_a_try() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=3)(log)
    async with flowing() as flow:
        for number in range(20):
            await flow.start(task)
            if not number:
                await flow.put("q", 5)
            await flow.drain()
        assert len(log.cancelled) == 40
        assert flow.stats["q"].returned == 5
        for seq in range(1, 6):
            deliveries, tries, lost = await tries_of(flow, seq)
            assert (deliveries, tries, lost) == (20, 0, 0)


async def test_a_broker_that_knows_no_return_gets_a_nack() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=3)(log)
    async with flowing() as flow:
        refuse(flow, "/return", 404, "not_found")
        await flow.start(task)
        await flow.put("q", 5)
        await flow.drain()
        assert flow.counts("q") == (5, 0)
        assert (await tries_of(flow, 1))[:2] == (1, 1)


def refuse(flow: Flow, verb: str, status: int, code: str) -> list[Request]:
    """Let the broker refuse a verb; returns the requests."""
    send, asked = flow.wire.send, list[Request]()

    async def refusing(request: Request) -> Response:
        if request.path.endswith(verb):
            asked.append(request)
            return Response(status, json.dumps({"error": {"code": code, "message": "no"}}).encode())
        return await send(request)

    flow.wire.send = refusing  # type: ignore[method-assign]
    return asked


async def test_a_job_that_was_lost_once_is_run_by_an_ordinary_worker_without_a_begin() -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q")(log)
    async with flowing() as flow:
        await declared(flow, task)
        await lose(flow, times=1)
        await flow.start(task)
        await flow.until(lambda: log.begun == [0], ms=120_000)
        assert flow.wire.count("/begin") == 0
        assert flow.stats["q"].suspects == 1


async def declared(flow: Flow, task: Any) -> None:
    await flow.broker.put_topic("q", task.options.queue_config())
    await flow.broker.produce("q", [b"0"])


async def test_a_job_that_was_lost_twice_is_begun_before_anything_of_it_is_looked_at() -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q")(log)
    async with flowing() as flow:
        await declared(flow, task)
        await lose(flow, times=2)
        flow.wire.holds = "/begin"
        await flow.start(task)
        await flow.until(lambda: flow.wire.count("/begin") == 1, ms=120_000)
        await flow.advance(5_000, step_ms=100)
        assert log.begun == []


async def test_a_job_whose_begin_is_refused_is_returned_and_tried_again_later() -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q")(log)
    async with flowing(begin_retry_ms=1_000) as flow:
        await declared(flow, task)
        await lose(flow, times=2)
        asked = refuse(flow, "/begin", 409, "busy")
        await flow.start(task)
        await flow.until(lambda: len(asked) == 1, ms=120_000)
        assert flow.wire.count("/return") == 1
        assert log.begun == []
        assert (await tries_of(flow, 1))[1] == 0, "that was no try"
        await flow.until(lambda: len(asked) >= 2, ms=120_000)


def slots_for_suspects(flow: Flow) -> SuspectSlots:
    slots = SuspectSlots(timing=flow.timing, settings=flow.settings)
    flow.slots = slots
    return slots


@pytest.mark.parametrize("times", [1, 2])
async def test_a_process_for_suspects_takes_only_them_and_runs_those_lost_twice_alone(times: int) -> None:
    app, log = App(), Log()
    task = app.task("q", prefetch=50)(log)
    async with flowing(suspects_max=3, concurrency=3) as flow:
        await flow.broker.put_topic("q", task.options.queue_config())
        await flow.put("q", 6)
        await lose(flow, times=times)
        await flow.put("q", 4)
        slots_for_suspects(flow)
        await flow.start(task, suspects=True)
        await flow.until(lambda: bool(log.begun))
        assert len(log.begun) == (3 if times == 1 else 1)
        assert flow.counts("q")[1] <= 3, "nothing is prefetched"
        log.go.set()
        await flow.until(lambda: len(log.begun) == 6)
        await flow.advance(2_000, step_ms=100)
        assert sorted(log.begun) == list(range(6))
        assert flow.counts("q") == (4, 0), "fresh jobs are for the others"
        assert flow.wire.count("/begin") == (0 if times == 1 else 6)
        assert flow.wire.count("/return") == 0


async def test_what_waits_in_a_process_for_suspects_behind_a_long_one_is_returned() -> None:
    app, log = App(), Log()
    task = app.task("q")(log)
    async with flowing(suspects_max=3, concurrency=3, suspects_wait_ms=30_000) as flow:
        await flow.broker.put_topic("q", task.options.queue_config())
        await flow.put("q", 3)
        await lose(flow, times=2)
        slots = slots_for_suspects(flow)
        returning = asyncio.create_task(slots.return_overdue())
        await flow.start(task, suspects=True)
        await flow.until(lambda: len(log.begun) == 1)
        assert flow.counts("q") == (0, 3)
        await flow.advance(31_000, step_ms=500)
        assert flow.counts("q") == (2, 1)
        await flow.advance(60_000, step_ms=500)
        assert flow.counts("q") == (2, 1), "no more is taken until there is room"
        log.go.set()
        await flow.until(lambda: len(log.begun) == 3)
        returning.cancel()


async def test_while_no_handler_can_run_jobs_are_returned_as_not_tried() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=2)(log)
    executor = LoopExecutor()
    async with flowing() as flow:
        await flow.start(task, executor=executor)
        await flow.put("q", 3)
        executor.is_able = False
        executor.on_change()
        await flow.until(lambda: flow.counts("q") == (2, 1))
        assert flow.stats["q"].returned >= 2, "and what the stream brought meanwhile"
        assert (await tries_of(flow, 2))[1] == 0
