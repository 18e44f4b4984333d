"""What timers cost Redis: bytes beside those of faststream-redis-timers, and scripts and time to cancel them all."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from faststream_redis_timers import TimersBroker as OtherBroker
from redis.asyncio import Redis

from tenure.faststream import TimersBroker
from tenure.timers import NewTimer, Timers, TimersSettings

COUNT = 2_000
DAY = timedelta(days=1)
BODY = {"customer": "c-1024", "amount": 1999, "currency": "EUR"}


async def publish_all(broker: Any, topic: str, ids: Sequence[str], **options: Any) -> None:
    for start in range(0, len(ids), 50):
        some = ids[start : start + 50]
        await asyncio.gather(
            *(broker.publish(BODY, topic=topic, timer_id=one, activate_in=DAY, **options) for one in some)
        )


async def bytes_of(redis: Redis, pattern: str) -> int:
    keys = [key async for key in redis.scan_iter(pattern)]
    return sum([int(await redis.memory_usage(key, samples=0) or 0) for key in keys])


@pytest.mark.parametrize("ids", [[str(uuid.uuid4()) for _ in range(COUNT)], [f"order-{n}" for n in range(COUNT)]])
@pytest.mark.parametrize("options", [{}, {"correlation_id": "c" * 32, "headers": {"x-tenant": "acme"}}], ids=str)
async def test_a_waiting_timer_takes_no_more_memory_than_that_of_the_other_library(
    redis: Redis, ids: list[str], options: dict[str, Any]
):
    topic = f"memory-{os.urandom(6).hex()}"
    ours, other = TimersBroker(redis, logger=None), OtherBroker(redis, logger=None)
    await other.connect()
    await publish_all(other, topic, ids, **options)
    await publish_all(ours, topic, ids, **options)
    assert len(await ours.get_pending_timers(topic)) == COUNT
    taken, allowed = await bytes_of(redis, f"tenure:{{{topic}}}:*"), await bytes_of(redis, f"timers_*:{topic}")
    print(f"{taken / COUNT:.0f} bytes a timer, {allowed / COUNT:.0f} of the other library")
    assert taken <= allowed
    await ours.cancel_all(topic)
    await other.cancel_all(topic)
    await ours.stop()


async def test_cancelling_all_takes_a_script_per_batch_and_less_time_than_scheduling_them(redis: Redis):
    count, settings = 20_000, TimersSettings()
    async with Timers(redis, prefix=f"t-{os.urandom(6).hex()}", settings=settings) as timers:
        new = [NewTimer(payload=BODY, delay=DAY, timer_id=f"order-{n}") for n in range(count)]
        began_s = time.perf_counter()
        await timers.schedule_many("t", new)
        scheduled_s = time.perf_counter() - began_s
        before = await scripts_run(redis)
        began_s = time.perf_counter()
        assert await timers.cancel_all("t") == count
        cancelled_s = time.perf_counter() - began_s
        assert await scripts_run(redis) - before <= count // settings.batch_max + 1  # one more where it is not known
        assert (await timers.stats("t")).scheduled == 0
    print(f"{count} scheduled in {scheduled_s:.2f} s, cancelled in {cancelled_s:.2f} s")
    assert cancelled_s < 2 * scheduled_s


async def scripts_run(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))
