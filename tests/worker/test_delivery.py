"""One job from payload to verdict: every policy on the one path, retries counted by failures, time limits, loss."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tenure.errors import Indeterminate, LeaseLost, Overloaded
from tenure.worker.backoff import Fixed
from tenure.worker.context import Context
from tenure.worker.middleware import CallNext, Middleware
from tenure.worker.runtime.job import HeldJob
from tenure.worker.task import Task
from tenure.worker.verdict import ACKED, Ack, AckPolicy, Nack, Reject, Verdict, VerdictKind
from tests.worker.one_task import OneTask, fresh_app, gone

ACK_FIRST, ACK, MANUAL = AckPolicy.ACK_FIRST, AckPolicy.ACK, AckPolicy.MANUAL
REJECT_ON_ERROR, NACK_ON_ERROR = AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR

RETURNS, RAISES, CANCELLED = None, ValueError("no"), asyncio.CancelledError()


class Passing(Middleware):
    """Does nothing, and so takes a job off the quick path."""


def task_that(raises: BaseException | None, **knobs: Any) -> Task[Any]:
    async def handler(payload: Any) -> None:
        if raises is not None:
            raise raises

    return fresh_app().task("emails", **{"backoff": Fixed(7), **knobs})(handler)


def kind(verdict: Verdict | None) -> str | None:
    return None if verdict is None else verdict.kind.value


TABLE: dict[str, tuple[BaseException | None, list[str | None]]] = {
    # the handler …        ACK_FIRST, ACK, REJECT_ON_ERROR, NACK_ON_ERROR, MANUAL
    "returns": (RETURNS, [None, "ack", "ack", "ack", None]),
    "raises": (RAISES, [None, "ack", "reject", "nack", None]),
    "exits": (SystemExit(1), [None, "ack", "reject", "nack", None]),
    "interrupts": (KeyboardInterrupt(), [None, "ack", "reject", "nack", None]),
    "raises something odd": (BaseException("odd"), [None, "ack", "reject", "nack", None]),
    "raises Ack": (Ack(), [None, "ack", "ack", "ack", "ack"]),
    "raises Nack": (Nack("later", delay="1s"), [None, "nack", "nack", "nack", "nack"]),
    "raises Reject": (Reject("never"), [None, "reject", "reject", "reject", "reject"]),
    "is cancelled": (CANCELLED, [None, None, None, None, None]),
}


@pytest.mark.parametrize("middlewares", [(), (Passing(),)], ids=["quick", "wrapped"])
@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize(("column", "policy"), list(enumerate(AckPolicy)), ids=str)
async def test_every_cell_of_the_policy_table(
    row: str, column: int, policy: AckPolicy, middlewares: tuple[Middleware, ...]
):
    raises, expected = TABLE[row]
    bench = OneTask(task_that(raises, policy=policy), *middlewares)
    assert kind(await bench.handle()) == expected[column]
    assert bench.settled == ([ACKED] if policy is ACK_FIRST else [])


async def test_ack_first_settles_before_the_handler_runs_and_does_not_run_a_lost_job():
    ran: list[int] = []

    @fresh_app().task("emails", policy=ACK_FIRST)
    async def handler(payload: int) -> None:
        ran.append(payload)
        assert bench.settled == [ACKED]

    bench = OneTask(handler)
    await bench.handle(b"1")
    bench.taken = False
    assert await bench.handle(b"2") is None
    assert ran == [1]


async def test_ack_first_does_not_run_what_it_could_not_surely_ack(monkeypatch: pytest.MonkeyPatch):
    async def lost_answer(job: HeldJob, verdict: Verdict) -> bool:
        raise Indeterminate("no answer")

    bench = OneTask(task_that(AssertionError("called"), policy=ACK_FIRST))
    monkeypatch.setattr(bench.delivery, "_settle", lost_answer)
    assert await bench.handle() is None


async def test_a_verdict_that_could_not_be_sent_may_be_sent_again(monkeypatch: pytest.MonkeyPatch):
    async def refused(job: HeldJob, verdict: Verdict) -> bool:
        raise Overloaded("later")

    @fresh_app().task("emails", policy=MANUAL)
    async def handler(payload: Any, ctx: Context) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(bench.delivery, "_settle", refused)
            with pytest.raises(Overloaded):
                await ctx.ack()
        assert await ctx.ack()

    bench = OneTask(handler)
    assert await bench.handle() is None
    assert bench.settled == [ACKED]


async def test_a_payload_that_does_not_fit_is_rejected_with_the_reason_and_the_handler_is_never_called():
    class Email(msgspec.Struct):
        to: str

    @fresh_app().task("emails", policy=ACK_FIRST)
    async def handler(job: Email) -> None:
        raise AssertionError("called")

    verdict = await OneTask(handler).handle(b"{}")
    assert verdict == Verdict(VerdictKind.REJECT, None, "payload does not fit: Object missing required field `to`")


async def test_a_failure_says_where_in_the_users_code_it_was():
    verdict = await OneTask(task_that(ValueError("no"))).handle()
    assert verdict is not None
    assert verdict.delay_ms == 7
    assert (verdict.reason or "").startswith("ValueError: no (test_delivery.py:")


# Retries are counted by failures


@pytest.mark.parametrize(("deliveries", "expected"), [(1, "nack"), (2, "nack")])
async def test_while_deliveries_cannot_exceed_the_retries_nobody_is_asked(deliveries: int, expected: str):
    bench = OneTask(task_that(RAISES, retries=2))
    assert kind(await bench.handle(deliveries=deliveries)) == expected
    assert bench.broker.asked == 0


async def test_the_failure_after_the_last_retry_rejects():
    bench = OneTask(task_that(RAISES, retries=2))
    bench.broker.delivery("nack", "ValueError: no")
    bench.broker.delivery("nack", "ValueError: no")
    assert kind(await bench.handle(deliveries=3)) == "reject"
    assert bench.broker.asked == 1


async def test_crashes_drains_and_lost_connections_are_not_failures():
    bench = OneTask(task_that(RAISES, retries=2))
    bench.broker.delivery("expired")
    bench.broker.delivery("disconnect")
    bench.broker.delivery("nack")
    bench.broker.delivery("nack", "ValueError: no")
    assert kind(await bench.handle(deliveries=5)) == "nack"
    bench.broker.delivery("nack", "ValueError: no")
    assert kind(await bench.handle(deliveries=6)) == "reject"


async def test_deliveries_that_the_broker_forgot_count_as_failures():
    bench = OneTask(task_that(RAISES, retries=40))
    for _ in range(32):
        bench.broker.delivery("nack", "ValueError: no")
    assert kind(await bench.handle(deliveries=41)) == "reject"


async def test_deliveries_that_were_no_tries_are_no_failures_however_many_there_were():
    bench = OneTask(task_that(RAISES, retries=2))
    for end in ("returned", "lost", "expired"):
        for _ in range(10):
            bench.broker.delivery(end)
    assert kind(await bench.handle(deliveries=31, tries=1)) == "nack"
    assert bench.broker.asked == 0, "one try is within the retries"
    bench.broker.delivery("nack", "ValueError: no")
    bench.broker.delivery("nack", "ValueError: no")
    assert kind(await bench.handle(deliveries=33, tries=3)) == "reject"


async def test_tries_that_the_broker_forgot_count_as_failures_and_returns_do_not():
    bench = OneTask(task_that(RAISES, retries=40))
    for _ in range(32):
        bench.broker.delivery("returned")
    assert kind(await bench.handle(deliveries=100, tries=41)) == "reject"
    bench = OneTask(task_that(RAISES, retries=40))
    for _ in range(32):
        bench.broker.delivery("expired")
    assert kind(await bench.handle(deliveries=41, tries=0)) == "nack", "each was a try of a plain claim, and no failure"


async def test_without_retries_the_first_failure_rejects():
    bench = OneTask(task_that(RAISES, retries=0))
    assert kind(await bench.handle(deliveries=1)) == "reject"


async def test_a_job_that_is_gone_gets_no_verdict_and_one_whose_past_cannot_be_read_is_given_back():
    bench = OneTask(task_that(RAISES, retries=0))
    bench.broker.fails = gone()
    assert await bench.handle() is None
    bench.broker.fails = Overloaded("no connection", code="unreachable")
    assert kind(await bench.handle()) == "nack"


# Time limits


async def test_a_handler_that_runs_too_long_is_stopped_and_fails():
    stopped = asyncio.Event()

    @fresh_app().task("emails", time_limit="5s")
    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    bench = OneTask(handler)
    handling = asyncio.create_task(bench.handle(b"null"))
    while not bench.timing.sleeping:
        await asyncio.sleep(0)
    bench.clock.advance(4_999)
    await asyncio.sleep(0)
    assert not stopped.is_set()
    bench.clock.advance(1)
    verdict = await handling
    assert stopped.is_set()
    assert verdict is not None
    assert verdict.kind is VerdictKind.NACK
    assert (verdict.reason or "").startswith("TimeoutError: ran longer than its time limit of 5000 ms")


@pytest.mark.parametrize(("raises", "expected"), [(None, "ack"), (ValueError(), "nack"), (Reject("x"), "reject")])
async def test_within_its_time_limit_a_handler_is_judged_as_ever(raises: BaseException | None, expected: str):
    bench = OneTask(task_that(raises, time_limit="5s"))
    assert kind(await bench.handle()) == expected
    bench.clock.advance(10_000)
    assert bench.timing.sleeping == 0


async def test_cancelling_cancels_the_handler_through_limit_and_middlewares_and_gives_no_verdict():
    seen: list[str] = []

    class Watching(Middleware):
        async def handle(self, ctx: Context, call_next: CallNext) -> None:
            try:
                await call_next()
            except asyncio.CancelledError:
                seen.append("middleware")
                raise

        def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
            raise AssertionError("told")

    started = asyncio.Event()

    @fresh_app().task("emails", time_limit="5s")
    async def handler() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("handler")
            raise

    handling = asyncio.create_task(OneTask(handler, Watching()).handle(b"null"))
    await started.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert seen == ["handler", "middleware"]


# Leases


async def test_a_job_whose_lease_is_lost_gets_no_verdict_fault_24():
    @fresh_app().task("emails")
    async def handler(payload: Any, ctx: Context) -> None:
        ctx.check()
        bench.clock.advance(30_001)
        ctx.check()

    bench = OneTask(handler)
    assert await bench.handle() is None


async def test_a_handler_that_returns_after_its_job_was_lost_acks_nothing():
    @fresh_app().task("emails")
    async def handler(payload: Any, ctx: Context) -> None:
        ctx.job.lost = True

    assert await OneTask(handler).handle() is None


# Manual verdicts


@pytest.mark.parametrize("policy", [MANUAL, NACK_ON_ERROR])
async def test_a_verdict_through_the_context_is_sent_at_once_and_no_second_follows(policy: AckPolicy):
    answers: list[bool] = []

    @fresh_app().task("emails", policy=policy)
    async def handler(payload: int, ctx: Context) -> None:
        match payload:
            case 1:
                answers.append(await ctx.ack())
            case 2:
                answers.append(await ctx.nack("busy", delay="3s"))
            case _:
                answers.append(await ctx.reject("bad"))
        answers.append(await ctx.ack())
        raise ValueError("after the verdict")

    bench = OneTask(handler)
    assert [await bench.handle(data) for data in (b"1", b"2", b"3")] == [None, None, None]
    assert answers == [True, False] * 3
    assert bench.settled == [
        ACKED,
        Verdict(VerdictKind.NACK, 3_000, "busy"),
        Verdict(VerdictKind.REJECT, None, "bad"),
    ]


async def test_a_time_limit_that_falls_into_a_verdict_on_its_way_sends_no_other_beside_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """The first verdict counts: whoever sends it goes on with it, and a nack might arrive before it."""
    sent: list[Verdict] = []

    async def unanswered(job: HeldJob, verdict: Verdict) -> bool:
        sent.append(verdict)
        return await asyncio.Event().wait()

    @fresh_app().task("emails", time_limit="5s")
    async def handler(payload: Any, ctx: Context) -> None:
        await ctx.ack()

    bench = OneTask(handler)
    monkeypatch.setattr(bench.delivery, "_settle", unanswered)
    job = bench.job()
    handling = asyncio.create_task(bench.delivery.handle(job))
    while not (sent and bench.timing.sleeping):
        await asyncio.sleep(0)
    bench.clock.advance(5_000)
    assert await handling is None
    assert (sent, job.settled) == ([ACKED], True)


async def test_lease_lost_raised_by_the_handler_of_a_job_that_is_ours_is_a_failure_like_any_other():
    assert kind(await OneTask(task_that(LeaseLost("another one's"))).handle()) == "nack"


# Middlewares


async def test_middlewares_wrap_the_handler_in_order_and_are_told_the_verdict():
    story: list[str] = []

    class Named(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def handle(self, ctx: Context, call_next: CallNext) -> None:
            story.append(f"{self.name} in")
            try:
                await call_next()
            except Reject as reject:
                story.append(f"{self.name} saw {reject.reason}")
                raise

        def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
            story.append(f"{self.name} told {kind(verdict)} of {ctx.seq}")

    bench = OneTask(task_that(Reject("never")), Named("outer"), Named("inner"))
    await bench.handle()
    assert story == [
        *("outer in", "inner in", "inner saw never", "outer saw never"),
        *("outer told reject of 7", "inner told reject of 7"),
    ]


async def test_a_middleware_that_raises_decides_as_if_the_handler_had():
    class Refusing(Middleware):
        async def handle(self, ctx: Context, call_next: CallNext) -> None:
            raise Reject("not on Sundays")

    verdict = await OneTask(task_that(AssertionError("called")), Refusing()).handle()
    assert verdict == Verdict(VerdictKind.REJECT, None, "not on Sundays")


async def test_a_middleware_that_fails_when_it_is_told_costs_nobody_the_verdict(caplog: pytest.LogCaptureFixture):
    class Clumsy(Middleware):
        def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
            raise RuntimeError("oops")

    assert await OneTask(task_that(None), Clumsy()).handle() == ACKED
    assert "Clumsy failed in its verdict hook" in caplog.text


async def test_a_misfit_is_told_to_middlewares_too():
    told: list[str | None] = []

    class Told(Middleware):
        def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
            told.append(kind(verdict))

    await OneTask(task_that(None), Told()).handle(b"{")
    assert told == ["reject"]
