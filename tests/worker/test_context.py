"""What a handler may ask about its job, on the loop and in threads."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tenure.errors import Invalid, LeaseLost
from tenure.worker.context import Context
from tests.worker.one_task import OneTask, fresh_app


def bench() -> OneTask:
    @fresh_app().task("emails", lease="20s")
    async def send(job: int) -> None: ...

    return OneTask(send)


async def test_a_context_tells_about_its_job():
    at = bench()
    ctx = Context(at.job(tag="t", meta=b'{"k":1}', deliveries=3, ts=5), at.delivery)
    assert (ctx.queue, ctx.seq, ctx.tag, ctx.meta, ctx.ts_ms) == ("emails", 7, "t", {"k": 1}, 5)
    assert (ctx.deliveries, ctx.attempt, ctx.remaining_ms, ctx.lost) == (3, 3, 30_000, False)
    assert Context(at.job(), at.delivery).meta == {}


@pytest.mark.parametrize("how", ["the broker said so", "our clock passed the deadline"])
async def test_a_lost_lease_is_seen_and_raised_in_any_thread_fault_24(how: str):
    at = bench()
    ctx = Context(at.job(), at.delivery)
    ctx.check()
    if how == "the broker said so":
        ctx.job.lost = True
    else:
        at.clock.advance(30_001)
    assert await asyncio.to_thread(lambda: ctx.lost)
    with pytest.raises(LeaseLost, match="job 7 of 'emails'"):
        await asyncio.to_thread(ctx.check)


async def test_extending_moves_the_deadline_on_our_clock_by_the_lease_or_as_told():
    at = bench()
    ctx = Context(at.job(deadline_ms=at.timing.now_ms() + 1), at.delivery)
    await ctx.extend()
    assert ctx.remaining_ms == 20_000
    await ctx.extend("1m")
    assert ctx.remaining_ms == 60_000
    await asyncio.to_thread(ctx.blocking.extend, "2m")
    assert ctx.remaining_ms == 120_000
    assert at.broker.extended == [20_000, 60_000, 120_000]


async def test_extending_what_is_not_ours_any_more_raises_and_says_so_fault_25():
    at = bench()
    at.broker.skips = True
    ctx = Context(at.job(), at.delivery)
    with pytest.raises(LeaseLost):
        await ctx.extend()
    assert ctx.lost
    with pytest.raises(LeaseLost):
        await asyncio.to_thread(ctx.blocking.extend)
    assert at.broker.extended == [20_000]


async def test_a_lost_job_cannot_be_settled_fault_24():
    at = bench()
    ctx = Context(at.job(lost=True), at.delivery)
    assert [await ctx.ack(), await ctx.nack(), await ctx.reject()] == [False, False, False]
    assert at.settled == []


async def test_blocking_on_the_loop_itself_is_refused_because_it_would_wait_for_itself():
    at = bench()
    with pytest.raises(Invalid, match=r"ctx\.blocking is for threads"):
        Context(at.job(), at.delivery).blocking.ack()


async def test_the_logger_puts_the_job_on_every_line(caplog: pytest.LogCaptureFixture):
    at = bench()
    ctx = Context(at.job(deliveries=2), at.delivery)
    with caplog.at_level(logging.INFO, "tenure.task"):
        ctx.logger.info("sent to %s", "me", extra={"more": 1})
    (record,) = caplog.records
    assert record.getMessage() == "emails/7#2 sent to me"
    assert {name: getattr(record, name) for name in ("queue", "seq", "attempt", "more")} == {
        **{"queue": "emails", "seq": 7, "attempt": 2},
        "more": 1,
    }
