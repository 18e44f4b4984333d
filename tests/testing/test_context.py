"""A context for handlers that are called by hand."""

from __future__ import annotations

import pytest

from tenure.errors import LeaseLost
from tenure.testing import ManualClock, make_context
from tenure.worker.verdict import VerdictKind


async def test_a_handler_sees_what_the_test_says_and_its_decision_is_noted():
    ctx = make_context("emails", seq=7, attempt=2, meta={"k": 1}, tag="t")
    assert (ctx.queue, ctx.seq, ctx.attempt, ctx.meta, ctx.tag, ctx.timer_id) == ("emails", 7, 2, {"k": 1}, "t", None)
    assert await ctx.nack("later", delay="5s")
    assert ctx.verdict is not None
    assert (ctx.verdict.kind, ctx.verdict.delay_ms, ctx.verdict.reason) == (VerdictKind.NACK, 5_000, "later")
    assert not await ctx.ack()  # the first verdict counts, as with a broker


def test_a_handler_in_a_thread_uses_the_blocking_calls():
    ctx = make_context()
    ctx.blocking.extend("2m")
    assert ctx.blocking.reject("no")
    assert ctx.extended_ms == [120_000]
    assert ctx.remaining_ms == 120_000
    assert ctx.verdict is not None
    assert ctx.verdict.kind is VerdictKind.REJECT


async def test_a_lease_runs_out_on_the_clock_of_the_test_or_is_lost_at_once():
    clock = ManualClock()
    ctx = make_context(lease="10s", clock=clock)
    clock.advance(10_000)
    ctx.check()
    clock.advance(1)
    with pytest.raises(LeaseLost):
        ctx.check()
    other = make_context()
    other.lose()
    assert other.lost
    with pytest.raises(LeaseLost):
        await other.extend()
