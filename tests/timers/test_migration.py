"""Timers that faststream-redis-timers scheduled, taken over: both of its envelopes, and what cannot be read."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from faststream import Context
from faststream_redis_timers import TimersBroker as OtherBroker
from redis.asyncio import Redis

from tenure.faststream import TimersBroker, TimerStreamMessage, move
from tenure.timers import Timers

PATIENCE_S = 30.0
Delivered = Annotated[TimerStreamMessage, Context("message")]


@pytest.fixture
async def other(redis: Redis) -> OtherBroker:
    other = OtherBroker(redis, logger=None)
    await other.connect()
    return other


@pytest.fixture
def topic() -> str:
    return f"moved-{os.urandom(6).hex()}"


async def handled(timers: Timers, topic: str, count: int) -> list[tuple[str, Any, str, Any]]:
    """What a handler of the new broker sees: id, body, correlation id, tenant."""
    broker, seen = TimersBroker(timers, logger=None), list[tuple[str, Any, str, Any]]()

    @broker.subscriber(topic)
    async def handle(body: Any, message: Delivered) -> None:
        seen.append((message.message_id, body, message.correlation_id, message.headers.get("x-tenant")))

    async with broker, asyncio.timeout(PATIENCE_S):
        while len(seen) < count:
            await asyncio.sleep(0.005)
    return sorted(seen)


async def test_what_the_other_library_scheduled_is_moved_and_handled(
    redis: Redis, timers: Timers, other: OtherBroker, topic: str
):
    tomorrow = datetime.now(tz=UTC) + timedelta(days=1)
    await other.publish({"id": 7}, topic=topic, timer_id="seven", headers={"x-tenant": "acme"})
    await other.publish("text", topic=topic, timer_id="nine", correlation_id="mine")
    await other.publish({"id": 8}, topic=topic, timer_id="eight", activate_at=tomorrow)
    moved = await move(redis, topic, timers=timers)
    assert (moved.count, moved.refused) == (3, {})
    assert await other.get_pending_timers(topic) == []
    waiting = await timers.get(topic, "eight")
    assert waiting is not None
    assert abs(waiting.due_ms - tomorrow.timestamp() * 1000) <= 1
    assert await handled(timers, topic, 2) == [
        ("nine", "text", "mine", None),
        ("seven", {"id": 7}, "seven", "acme"),
    ]


async def test_an_envelope_of_the_first_releases_is_read(redis: Redis, timers: Timers, topic: str):
    await redis.zadd(f"timers_timeline:{topic}", {"old": 1.0, "typed": 1.0})
    typed = b'{"b":"7b226964223a377d","ct":"application/json"}'
    await redis.hset(f"timers_payloads:{topic}", mapping={"old": b'{"b":"6869"}', "typed": typed})
    assert (await move(redis, topic, timers=timers)).count == 2
    assert [one[:2] for one in await handled(timers, topic, 2)] == [("old", b"hi"), ("typed", {"id": 7})]


async def test_what_cannot_be_read_is_refused_and_stays(redis: Redis, timers: Timers, topic: str):
    ids = {"broken": 1.0, "fine": 2.0, "x" * 300: 3.0, b"\xff": 4.0}
    await redis.zadd(f"timers_timeline:{topic}", ids)  # type: ignore[type-var]
    payloads = {"broken": b'{"b":"no hex"}', "fine": b'{"b":"6869"}', "x" * 300: b"x", b"\xff": b"x"}
    await redis.hset(f"timers_payloads:{topic}", mapping=payloads)  # type: ignore[arg-type]
    moved = await move(redis, topic, timers=timers)
    assert moved.count == 1
    assert sorted(moved.refused) == ["\\xff", "broken", "x" * 300]
    assert "not hexadecimal" in moved.refused["broken"]
    assert await redis.zcard(f"timers_timeline:{topic}") == await redis.hlen(f"timers_payloads:{topic}") == 3
    assert (await move(redis, topic, timers=timers)).refused == moved.refused


async def test_more_than_a_page_is_moved_through_a_client_that_decodes(
    redis: Redis, redis_port: int, timers: Timers, topic: str
):
    count = 1_100
    await redis.zadd(f"timers_timeline:{topic}", {f"n{n}": 4e9 for n in range(count)} | {"orphan": 4e9})
    await redis.hset(f"timers_payloads:{topic}", mapping={f"n{n}": bytes(range(128, 256)) for n in range(count)})
    async with Redis(port=redis_port, decode_responses=True) as decoding:
        assert (await move(decoding, topic, timers=timers)).count == count
    assert (await timers.stats(topic)).scheduled == count
    assert await redis.exists(f"timers_timeline:{topic}", f"timers_payloads:{topic}") == 0
