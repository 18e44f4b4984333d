"""A command that arrived and whose answer was lost: repeated where that is safe, and never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from redis.asyncio import Redis

from tenure.errors import Indeterminate
from tenure.timers import NewTimer, Timers
from tests.timers.conftest import SETTINGS
from tests.timers.proxy import Proxy

T = TypeVar("T")
HOUR_MS = 3_600_000


@pytest.fixture
async def proxy(redis_port: int) -> AsyncIterator[Proxy]:
    async with Proxy(redis_port) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: Proxy, timers: Timers) -> AsyncIterator[Timers]:
    """The same timers, through the proxy."""
    prefix = timers._scripts._prefix  # type: ignore[attr-defined]
    client = Redis(port=proxy.port)
    async with Timers(client, prefix=prefix, settings=SETTINGS) as through:
        yield through
    await client.aclose()


async def losing(proxy: Proxy, call: Coroutine[Any, Any, T], meanwhile: Coroutine[Any, Any, object] | None = None) -> T:
    """Make a call whose first answer is lost; do something before its second copy can be sent."""
    proxy.lose = 1
    calling = asyncio.create_task(call)
    await proxy.lost.wait()
    if meanwhile is not None:
        await meanwhile
    proxy.resume.set()
    return await calling


async def handle_all(timers: Timers) -> None:
    assert (await timers.commit("t", await timers.claim("t", max_count=10))).count == 1


async def test_a_schedule_repeated_after_a_lost_answer_counts_once(proxy: Proxy, through: Timers, timers: Timers):
    scheduled = await losing(proxy, through.schedule("t", 1, delay=HOUR_MS, timer_id="a", on_conflict="error"))
    assert scheduled.outcome == "created"
    (info,) = await timers.peek("t")
    assert (info.version, info.due_ms) == (scheduled.version, scheduled.due_ms)
    assert (await timers.stats("t")).scheduled_total == 1


async def test_a_schedule_whose_timer_was_handled_meanwhile_is_not_handled_again(
    proxy: Proxy, through: Timers, timers: Timers
):
    scheduled = await losing(proxy, through.schedule("t", 1, delay=0, timer_id="a"), handle_all(timers))
    assert scheduled.timer_id == "a"
    stats = await timers.stats("t")
    assert (stats.ready, stats.scheduled_total, stats.committed_total) == (0, 1, 1)


async def test_a_schedule_that_was_replaced_meanwhile_does_not_come_back(proxy: Proxy, through: Timers, timers: Timers):
    newer = timers.schedule("t", "newer", delay=0, timer_id="a")
    await losing(proxy, through.schedule("t", "older", delay=0, timer_id="a"), newer)
    (timer,) = await timers.claim("t", max_count=10)
    assert timer.json() == "newer"


async def test_a_schedule_that_was_cancelled_meanwhile_does_not_come_back(
    proxy: Proxy, through: Timers, timers: Timers
):
    await losing(proxy, through.schedule("t", 1, delay=0, timer_id="a"), timers.cancel("t", "a"))
    assert await timers.claim("t") == []


async def test_a_cancel_repeated_after_a_lost_answer_tells_what_it_did(proxy: Proxy, through: Timers, timers: Timers):
    await timers.schedule("t", 1, delay=HOUR_MS, timer_id="a")
    assert await losing(proxy, through.cancel("t", "a")) == "cancelled"


async def test_a_cancel_of_all_whose_answer_was_lost_is_unknown_and_names_what_was_done_before(
    proxy: Proxy, through: Timers, timers: Timers
):
    await timers.schedule_many("t", [NewTimer(payload=1, delay=HOUR_MS) for _ in range(SETTINGS.batch_max)])
    with pytest.raises(Indeterminate) as caught:
        await losing(proxy, through.cancel_all("t"))
    assert caught.value.detail["cancelled"] == 0
    assert (await timers.stats("t")).cancelled_total == SETTINGS.batch_max


async def test_a_commit_repeated_after_a_lost_answer_says_so(proxy: Proxy, through: Timers, timers: Timers):
    await timers.schedule("t", 1, delay=0, timer_id="a")
    held = await timers.claim("t")
    settled = await losing(proxy, through.commit("t", held))
    assert (settled.lost, settled.repeated) == (["a"], True)
    assert (await timers.stats("t")).committed_total == 1


async def test_a_repeated_commit_leaves_a_message_of_meanwhile_alone(proxy: Proxy, through: Timers, timers: Timers):
    await timers.schedule("t", "old", delay=0, timer_id="a")
    held = await timers.claim("t")
    newer = timers.schedule("t", "new", delay=0, timer_id="a")
    settled = await losing(proxy, through.commit("t", held), newer)
    assert (settled.superseded, settled.repeated) == (["a"], True)
    (timer,) = await timers.claim("t")
    assert timer.json() == "new"


async def test_an_extend_repeated_after_a_lost_answer_holds(proxy: Proxy, through: Timers, timers: Timers):
    await timers.schedule("t", 1, delay=0)
    held = await timers.claim("t")
    assert (await losing(proxy, through.extend("t", held))).count == 1


async def test_a_claim_whose_answer_was_lost_is_unknown_and_comes_back_with_its_lease(
    proxy: Proxy, through: Timers, timers: Timers
):
    await timers.schedule("t", 1, delay=0)
    with pytest.raises(Indeterminate):
        await losing(proxy, through.claim("t", lease_ttl_ms=50))
    assert await timers.wait("t")
    (timer,) = await timers.claim("t")
    assert timer.deliveries == 2


async def test_a_redrive_whose_answer_was_lost_is_unknown(proxy: Proxy, through: Timers, timers: Timers):
    await timers.schedule("t", 1, delay=0)
    await timers.reject("t", await timers.claim("t"))
    with pytest.raises(Indeterminate):
        await losing(proxy, through.redrive("t"))
    assert (await timers.stats("t")).redriven_total == 1
