"""A user's app in a user's test: the same handlers, middlewares, retries and schedules, and nothing waits."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure.errors import Invalid
from tenure.testing import AppTester, ManualClock
from tenure.worker.app import App
from tenure.worker.backoff import Fixed
from tenure.worker.context import Context
from tenure.worker.middleware import CallNext, Middleware
from tenure.worker.periodic import Tick
from tenure.worker.verdict import AckPolicy, Nack, Reject


class Email(msgspec.Struct):
    to: str


def fresh() -> App:
    return App("http://127.0.0.1:1")


async def test_everything_claimable_is_handled_and_done():
    app = fresh()
    sent: list[tuple[str, int, str]] = []

    @app.task("emails", concurrency=7)
    async def send(job: Email, ctx: Context) -> None:
        sent.append((job.to, ctx.attempt, ctx.queue))

    async with AppTester(app) as tester:
        await send.put_many([Email(str(n)) for n in range(20)])
        assert await tester.run_until_idle() == 20
        assert await tester.run_until_idle() == 0
        assert await tester.jobs(send) == []
    assert sorted(sent) == sorted((str(n), 1, "emails") for n in range(20))


async def test_a_failing_job_is_retried_after_its_back_off_and_then_given_up_with_its_reason():
    app = fresh()
    attempts: list[int] = []

    @app.task("emails", retries=2, backoff=Fixed("1m"))
    async def send(job: Email, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ConnectionError("no route")

    async with AppTester(app) as tester:
        await send.put(Email("me"), tag="t", meta={"k": 1})
        for _ in range(2):
            assert await tester.run_until_idle() == 1
            (waiting,) = await tester.jobs("emails", "delayed")
            assert (waiting.data, waiting.deliver_at) == ({"to": "me"}, tester.clock.wall_ms() + 60_000)
            tester.advance("1m")
        assert await tester.run_until_idle() == 1
        (letter,) = await tester.dead("emails")
        assert await tester.jobs("emails") == []
    assert attempts == [1, 2, 3]
    assert (letter.seq, letter.data, letter.deliveries, letter.tag, letter.meta) == (1, {"to": "me"}, 3, "t", {"k": 1})
    assert letter.reason.startswith("ConnectionError: no route (test_app_tester.py:")


async def test_failures_are_counted_across_crashes_which_are_none_fault_38():
    app = fresh()

    @app.task("emails", retries=1, backoff=Fixed(0), max_deliveries=10)
    async def send(job: Email) -> None:
        raise ValueError("no")

    async with AppTester(app) as tester:
        await send.put(Email("me"))
        for _ in range(3):  # a worker takes the job and dies
            await tester.client.claim("emails", node="doomed", lease_ms=1_000)
            tester.advance("1001ms")
        await tester.run_until_idle(jobs_max=100)
        (letter,) = await tester.dead("emails")
        assert letter.deliveries == 5  # three crashes, two failures


async def test_a_payload_that_does_not_fit_is_dead_lettered_unseen_fault_39():
    app = fresh()

    @app.task("emails")
    async def send(job: Email) -> None:
        raise AssertionError("called")

    async with AppTester(app) as tester:
        await tester.client.produce("emails", [{"cc": "you"}])
        await tester.run_until_idle()
        (letter,) = await tester.dead(send)
    assert letter.reason == "payload does not fit: Object missing required field `to`"


@pytest.mark.parametrize("run", ["thread", "process"])
async def test_plain_functions_run_in_threads_and_may_put_and_settle_from_there(run: Any):
    app = fresh()
    threads: set[str] = set()

    @app.task("done")
    async def done(job: int) -> None: ...

    @app.task("crunch", run=run, policy=AckPolicy.MANUAL)
    def crunch(job: int, ctx: Context) -> None:
        threads.add(threading.current_thread().name)
        done.blocking.put(job * 2)
        ctx.blocking.extend("1m")
        assert ctx.remaining_ms <= 86_400_000
        assert not ctx.lost
        if job == 3:
            assert ctx.blocking.reject("not three")
        else:
            assert ctx.blocking.ack()
            assert not ctx.blocking.nack()

    async with AppTester(app) as tester:
        await crunch.put_many([1, 2, 3])
        assert await tester.run_until_idle() == 6
        assert [letter.reason for letter in await tester.dead("crunch")] == ["not three"]
    assert threading.current_thread().name not in threads


async def test_a_plain_function_that_returns_an_awaitable_has_failed_and_is_not_acked():
    app = fresh()

    async def later() -> None: ...

    @app.task("forgotten", retries=0)
    def forgotten() -> Any:
        return later()

    async with AppTester(app) as tester:
        await forgotten.put()
        await tester.run_until_idle()
        (letter,) = await tester.dead(forgotten)
    assert letter.reason.startswith("TypeError: a plain function returned an awaitable")


async def test_handlers_may_put_further_jobs_and_an_endless_chain_is_found():
    app = fresh()

    @app.task("countdown")
    async def countdown(job: int) -> None:
        if job:
            await countdown.put(job - 1)

    async with AppTester(app) as tester:
        await countdown.put(5)
        assert await tester.run_until_idle() == 6
        await countdown.put(1_000)
        with pytest.raises(Invalid, match="not idle after 50 jobs"):
            await tester.run_until_idle(jobs_max=50)


async def test_delayed_jobs_run_when_their_time_has_come():
    app = fresh()
    ran: list[str] = []

    @app.task("later")
    async def later(job: str) -> None:
        ran.append(job)

    async with AppTester(app) as tester:
        await later.put("in ten minutes", delay="10m")
        tester.advance("9m")
        await tester.run_until_idle()
        assert ran == []
        tester.advance("1m")
        await tester.run_until_idle()
        assert ran == ["in ten minutes"]


async def test_periodic_tasks_fire_as_the_clock_passes_their_ticks():
    clock = ManualClock(wall_ms=int(datetime(2026, 3, 1, 2, 0, tzinfo=UTC).timestamp() * 1000))
    app = fresh()
    ticks: list[str] = []

    @app.periodic("nightly", cron="0 3 * * *")
    async def nightly(tick: Tick) -> None:
        ticks.append(tick.at.isoformat())

    @app.periodic("daily", every="1d")
    async def daily() -> None:
        ticks.append("daily")

    async with AppTester(app, clock) as tester:
        assert await tester.run_until_idle() == 0
        tester.advance("1h")
        assert await tester.run_until_idle() == 1
        tester.advance("1d")
        assert await tester.run_until_idle() == 2
    assert ticks == ["2026-03-01T03:00:00+00:00", "2026-03-02T03:00:00+00:00", "daily"]


async def test_a_time_limit_passes_with_the_clock():
    app = fresh()
    started = asyncio.Event()

    @app.task("slow", time_limit="2h", retries=0)
    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    async with AppTester(app) as tester:
        await slow.put()
        running = asyncio.create_task(tester.run_until_idle())
        await started.wait()
        tester.advance("2h")
        await running
        (letter,) = await tester.dead("slow")
    assert letter.reason.startswith("TimeoutError: ran longer than its time limit of 7200000 ms")


async def test_a_job_without_a_verdict_comes_back_when_its_lease_would_have_ended():
    app = fresh()
    seen: list[int] = []

    @app.task("manual", policy=AckPolicy.MANUAL, lease="10s")
    async def manual(job: int, ctx: Context) -> None:
        seen.append(ctx.attempt)
        if ctx.attempt == 2:
            await ctx.ack()

    async with AppTester(app) as tester:
        await manual.put(1)
        assert await tester.run_until_idle() == 1
        tester.advance("10s")
        assert await tester.run_until_idle() == 1
        assert await tester.jobs("manual") == []
    assert seen == [1, 2]


async def test_a_handler_that_extends_its_job_keeps_it_as_if_heartbeats_renewed_it():
    app = fresh()

    @app.task("long", lease="10s")
    async def long(job: int, ctx: Context) -> None:
        await ctx.extend("20s")
        tester.advance("5m")
        ctx.check()

    async with AppTester(app) as tester:
        await long.put(1)
        assert await tester.run_until_idle() == 1
        assert await tester.jobs(long) == []


async def test_verdicts_that_are_raised_reach_the_broker():
    app = fresh()

    @app.task("verdicts")
    async def judge(job: str, ctx: Context) -> None:
        if job == "nack" and ctx.attempt == 1:
            raise Nack(delay="5s")
        if job == "reject":
            raise Reject("unknown")

    async with AppTester(app) as tester:
        await judge.put_many(["nack", "reject", "fine"])
        assert await tester.run_until_idle() == 3
        assert [job.data for job in await tester.jobs(judge)] == ["nack"]
        assert [(letter.data, letter.reason) for letter in await tester.dead(judge)] == [("reject", "unknown")]
        tester.advance("5s")
        assert await tester.run_until_idle() == 1


async def test_middlewares_of_the_app_run_and_the_app_is_as_before_afterwards():
    seen: list[int] = []

    class Counting(Middleware):
        async def handle(self, ctx: Context, call_next: CallNext) -> None:
            seen.append(ctx.seq)
            await call_next()

    app = App("http://127.0.0.1:1", middlewares=[Counting()])

    @app.task("emails")
    async def send(job: Email) -> None: ...

    for _ in range(2):
        async with AppTester(app) as tester:
            await send.put(Email("me"))
            await tester.run_until_idle()
            assert app.client is tester.client
    assert seen == [1, 1]
    assert app._clients._sending is None
    assert app._clients._blocking is None
