"""One task's flow on a clock in the test's hand: slots, rates, weights, heartbeats, loss and the end."""

from __future__ import annotations

import asyncio
import json

import pytest

from tenure.client.transport.wire import Response
from tenure.worker.app import App
from tenure.worker.backoff import Fixed
from tenure.worker.context import Context
from tenure.worker.processes.executors import LoopExecutor
from tenure.worker.verdict import AckPolicy
from tests.worker.task_flow import flowing, turns


class Log:
    """A handler that waits until it is let go, and writes down what happens."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.go = asyncio.Event()

    async def __call__(self, n: int, ctx: Context) -> None:
        self.begun.append(n)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(n)
            assert ctx.lost or ctx.remaining_ms
            raise
        self.ended.append(n)


async def test_no_more_run_than_agreed_and_no_more_are_held() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=3)(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 10)
        assert log.begun == [0, 1]
        assert flow.counts("q") == (5, 5)
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert sorted(log.ended) == list(range(10))


async def test_a_rate_spreads_the_starts_evenly() -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q", rate="10/s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 100)
        assert len(log.begun) == 1
        counts = []
        for _ in range(10):
            await flow.advance(500)
            counts.append(len(log.begun))
        assert counts == [1 + 5 * step for step in range(1, 11)]


async def test_a_slow_rate_holds_no_more_than_it_can_use() -> None:
    app, log = App(), Log()
    task = app.task("q", rate="6/m", lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 100)
        assert flow.counts("q") == (97, 3), "the rest is for others"


async def test_tasks_share_the_slots_of_a_worker_by_weight() -> None:
    app = App()
    order: list[str] = []
    both_are_there = asyncio.Event()

    async def note(name: str) -> None:
        order.append(name)
        await both_are_there.wait()
        await asyncio.sleep(0)

    @app.task("heavy", weight=3)
    async def heavy() -> None:
        await note("heavy")

    @app.task("light", weight=1)
    async def light() -> None:
        await note("light")

    async with flowing(concurrency=4) as flow:
        await flow.start(heavy, light)
        for queue in ("heavy", "light"):
            await flow.broker.produce(queue, [b"null"] * 100)
        await flow.until(lambda: flow.counts("heavy") == flow.counts("light") == (0, 100))
        both_are_there.set()
        await flow.until(lambda: len(order) == 200)
        first = order[:80]
        assert 54 <= first.count("heavy") <= 66, f"three of four: {first.count('heavy')}"
        assert order.count("light") == 100, "and nobody starves"


async def test_a_thousand_held_jobs_are_extended_in_few_requests_and_kept_for_hours() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=100, prefetch=900, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 1_000)
        assert flow.counts("q") == (0, 1_000)
        before = flow.wire.count("/extend")
        await flow.advance(120_000, step_ms=500)
        beats = flow.wire.count("/extend") - before
        assert 10 <= beats <= 14, "one at each third of a lease"
        assert flow.counts("q") == (0, 1_000)
        assert log.cancelled == []
        assert flow.stats["q"].leases_lost == 0
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))


async def test_what_the_broker_skips_is_lost_the_running_ones_cancelled_the_others_never_begun() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=2, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 3)
        assert log.begun == [0]
        await flow.broker.nack("q", node="w", seqs=[1, 2], delay_ms=3_600_000)
        await flow.advance(11_000, step_ms=100)
        assert log.cancelled == [0]
        log.go.set()
        await turns()
        assert log.ended == [2], "the second was dropped unseen"
        assert flow.stats["q"].leases_lost == 2
        queue = flow.broker.topic("q").queue
        assert queue is not None
        assert queue.delayed == 2, "nothing more was said about them"


async def test_our_own_clock_tells_that_a_lease_is_over_when_nobody_answers() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=1, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 2)
        flow.app_wire.down = True
        await flow.advance(29_500, step_ms=100)
        assert log.cancelled == []
        await flow.advance(1_000, step_ms=100)
        assert log.cancelled == [0]
        flow.app_wire.down = False
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert sorted(log.ended) == [0, 1]


async def test_after_an_outage_everything_held_is_asked_for_at_once() -> None:
    """The line broke, and somebody gave the jobs back: the next word of the broker makes that known, not the next
    beat.
    """
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=0, lease="10m")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 2)
        assert log.begun == [0, 1]
        flow.app_wire.down = True
        await flow.advance(1_000)
        await flow.broker.nack("q", node="w", seqs=[1, 2])
        flow.app_wire.down = False
        await flow.until(lambda: len(log.cancelled) == 2, ms=10_000)
        assert flow.stats["q"].leases_lost == 2
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))


@pytest.mark.parametrize(("asked", "is_cut"), [("10m", True), ("10m", False), ("1s", True), ("1s", False)])
async def test_a_handler_that_extends_its_job_keeps_it_over_a_reconnect_and_knows_what_the_broker_knows(
    asked: str, is_cut: bool
) -> None:
    """The broker is asked about everything held after a reconnect, and nobody else may get the job."""
    app, log = App(), Log()
    contexts: list[Context] = []

    @app.task("q", concurrency=1, prefetch=0, lease="30s")
    async def handler(n: int, ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.extend(asked)
        await log(n, ctx)

    async with flowing() as flow:
        await flow.start(handler)
        await flow.put("q", 1)
        if is_cut:
            await flow.client.detach("q")  # the stream ends, its jobs stay leased, and it comes back
            await flow.until(lambda: flow.wire.count("/extend") >= 2)
        for _ in range(20):
            await flow.advance(10_000, step_ms=500)
            (lease,) = flow.broker.leases("q").items
            assert contexts[0].remaining_ms <= lease.deadline - flow.clock.wall_ms()
        assert (log.begun, log.cancelled, flow.stats["q"].leases_lost) == ([0], [], 0)
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))


async def test_verdicts_wait_for_the_broker_while_their_lease_may_live() -> None:
    app, log = App(), Log()
    task = app.task("q", lease="60s", push=False)(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 5)
        await flow.until(lambda: len(log.begun) == 5)
        flow.app_wire.down = True
        log.go.set()
        await flow.advance(10_000, step_ms=100)
        flow.app_wire.down = False
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert log.begun == list(range(5)), "each was run once"
        assert flow.stats["q"].indeterminate == 0


async def test_fault_24_a_chunk_that_was_long_under_way_is_asked_for_before_it_is_begun() -> None:
    """The process was stopped: what lies in its buffers may be another's by now."""
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=5, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 1)
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        # Claimed and sent by the broker, but time passes in one jump before this side reads it.
        await flow.broker.produce("q", [b"7"])
        flow.clock.advance(20_000)
        await turns()
        assert flow.wire.count("/extend") >= 1
        await flow.until(lambda: 7 in log.ended)


async def test_fault_21_a_broker_whose_wall_clock_jumps_goes_on_being_served() -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q", lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        for jump_ms in (3_600_000, -7_200_000, 0):
            flow.clock.jump_wall(jump_ms)
            before = len(log.ended)
            await flow.put("q", 3)
            await flow.until(lambda before=before: len(log.ended) == before + 3)  # type: ignore[misc]


async def test_a_job_without_a_verdict_comes_back_when_its_lease_would_have_ended_and_is_a_try() -> None:
    """The worker says so: a lease that ends without a word is that of a worker that was lost."""
    app, seen, heard = App(), list[tuple[int, int]](), list[tuple[int, int]]()

    @app.task("q", lease="30s", policy=AckPolicy.MANUAL)
    async def manual(n: int, ctx: Context) -> None:
        seen.append((n, ctx.deliveries))
        heard.append((ctx.job.lost_count, ctx.job.tries))
        if ctx.deliveries > 1 or n:
            await ctx.ack()

    async with flowing() as flow:
        await flow.start(manual)
        await flow.put("q", 1)
        queue = flow.broker.topic("q").queue
        assert queue is not None
        assert (queue.delayed, queue.in_flight) == (1, 0)
        await flow.advance(29_000, step_ms=500)
        assert seen == [(0, 1)]
        await flow.until(lambda: seen == [(0, 1), (0, 2)], ms=3_000)
        assert heard == [(0, 0), (0, 0)], "no suspect, and every delivery a try"
        await flow.broker.produce("q", [b"1"])
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert seen == [(0, 1), (0, 2), (1, 1)]


@pytest.mark.parametrize("status", [404, 405, 406])
async def test_jobs_are_claimed_where_streams_are_refused_and_pushed_again_later(status: int) -> None:
    app, log = App(), Log()
    log.go.set()
    task = app.task("q")(log)
    async with flowing(push_again_ms=60_000) as flow:
        body = json.dumps({"error": {"code": "not_found" if status == 404 else "x", "message": "no"}}).encode()
        flow.wire.no_streams = Response(status, body)
        await flow.start(task)
        await flow.put("q", 5)
        await flow.until(lambda: len(log.ended) == 5)
        assert (flow.wire.count("/work"), flow.wire.count("/claim") > 0) == (1, True)
        flow.wire.no_streams = None
        await flow.advance(90_000, step_ms=500)
        assert flow.wire.count("/work") == 2
        await flow.put("q", 1)
        assert len(log.ended) == 6, "pushed at once"


async def test_a_drain_gives_back_what_was_not_begun_and_cancels_the_rest_in_the_end() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=2, prefetch=3)(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 10)
        await flow.drain()
        assert log.cancelled == [0, 1]
        assert flow.counts("q") == (10, 0)
        claim = await flow.broker.claim("q", node="x", max_count=10)
        assert [claim.deliveries(seq) for seq in range(1, 11)] == [2, 2, 2, 2, 2, 1, 1, 1, 1, 1]


async def test_a_reject_is_a_dead_letter_and_a_failure_waits_for_its_turn() -> None:
    """Fault 39: the broker moves it in one write; here it is asked for with the reason."""
    app = App()

    @app.task("q", retries=1, backoff=Fixed("5s"))
    async def fail(n: int) -> None:
        raise ValueError(f"no {n}")

    async with flowing() as flow:
        await flow.start(fail)
        await flow.put("q", 2)
        queue = flow.broker.topic("q").queue
        assert queue is not None
        assert queue.delayed == 2
        await flow.advance(6_000, step_ms=100)
        assert flow.broker.topic("q.dead").count == 2
        assert flow.counts("q") == (0, 0)


async def test_places_that_are_stuck_are_not_given_jobs() -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=3, prefetch=0)(log)
    executor = LoopExecutor()
    executor.stuck_count = 2
    async with flowing() as flow:
        await flow.start(task, executor=executor)
        await flow.put("q", 3)
        assert log.begun == [0]
        executor.stuck_count = 1
        executor.on_change()
        await turns()
        assert log.begun == [0, 1]


@pytest.mark.parametrize("push", [True, False])
async def test_while_no_handler_can_run_jobs_are_given_back_and_none_are_taken(push: bool) -> None:
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=2, lease="30s", push=push)(log)
    executor = LoopExecutor()
    async with flowing() as flow:
        executor.is_able = False
        await flow.start(task, executor=executor)
        await flow.put("q", 3)
        await flow.advance(2_000, step_ms=100)
        assert flow.counts("q") == (3, 0), "nothing is taken before a handler can run"
        executor.is_able = True
        executor.on_change()
        await flow.until(lambda: flow.counts("q") == (0, 3))
        assert log.begun == [0]
        executor.is_able = False
        executor.on_change()
        await flow.until(lambda: flow.counts("q") == (2, 1))
        await flow.put("q", 2)
        await flow.advance(60_000, step_ms=500)
        assert flow.counts("q") == (4, 1), "the others are for others, the running one is kept"
        assert (log.begun, log.cancelled, flow.stats["q"].leases_lost) == ([0], [], 0)
        log.go.set()
        executor.is_able = True
        executor.on_change()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        assert sorted(log.ended) == [0, 0, 1, 1, 2]


async def test_what_arrives_while_no_handler_can_run_is_given_back() -> None:
    """It was on its way when the source was paused."""
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=2)(log)
    executor = LoopExecutor()
    async with flowing() as flow:
        await flow.start(task, executor=executor)
        await flow.broker.produce("q", [b"1"])  # claimed by the stream, and not read yet
        executor.is_able = False
        await flow.until(lambda: flow.counts("q") == (1, 0))
        assert log.begun == []


async def test_a_job_whose_lease_is_over_is_not_begun_though_no_timer_has_rung_yet() -> None:
    """The process was stopped: what is first to run after that must not be a handler."""
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=1, lease="30s")(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 2)
        assert log.begun == [0]
        flow.app_wire.down = True
        beating = flow.runners[0]._beating
        assert beating is not None
        beating.cancel()  # its timers are late
        await turns()
        flow.clock.advance(40_000)
        log.go.set()
        await turns()
        assert (log.begun, log.ended) == ([0], [0])


async def test_a_drain_gives_back_what_was_asked_for_when_it_came() -> None:
    """Jobs that were long under way are extended before they begin; that question is cut by the drain. They were
    claimed, so no stream gives them back when it ends.
    """
    app, log = App(), Log()
    task = app.task("q", concurrency=1, prefetch=5, lease="30s", push=False)(log)
    async with flowing() as flow:
        await flow.start(task)
        await flow.put("q", 1)
        log.go.set()
        await flow.until(lambda: flow.counts("q") == (0, 0))
        flow.wire.holds = "/extend"
        await flow.broker.produce("q", [b"7"])
        flow.clock.advance(20_000)
        await turns()
        assert flow.wire.count("/extend") >= 1
        await flow.drain()
        assert flow.counts("q") == (1, 0)
        assert log.begun == [0]
