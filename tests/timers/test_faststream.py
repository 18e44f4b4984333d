"""FastStream handlers on a real Redis: the app of the README, policies, retries, leases, the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, Context, FastStream
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, StopConsume
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode

from tenure import Conflict, Fixed, Invalid
from tenure.faststream import TimersBroker, TimersRouter, TimerStreamMessage
from tenure.testing import ManualClock
from tenure.testing.fake_timers import FakeTimers
from tenure.timers import Timers

PATIENCE_S = 30.0
Delivered = Annotated[TimerStreamMessage, Context("message")]


@pytest.fixture
async def broker(redis: Redis) -> AsyncIterator[TimersBroker]:
    broker = TimersBroker(redis, key_prefix=f"t-{os.urandom(6).hex()}", logger=None)
    yield broker
    await broker.stop()


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.005)


async def until_gone(timers: Timers, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            stats = await timers.stats(topic)
            if not (stats.scheduled or stats.ready or stats.in_flight):
                return
            await asyncio.sleep(0.005)


async def test_the_app_of_the_readme_works(redis_port: int):
    broker = TimersBroker(f"redis://127.0.0.1:{redis_port}", key_prefix=f"t-{os.urandom(6).hex()}", logger=None)
    app = FastStream(broker, logger=None)
    seen: list[str] = []

    @broker.subscriber("invoices")
    async def handle_invoice(invoice_id: str) -> None:
        seen.append(invoice_id)
        app.exit()

    @app.after_startup
    async def schedule() -> None:
        await broker.publish("INV-001", topic="invoices", activate_in=timedelta(milliseconds=50))
        await broker.publish("INV-002", topic="invoices", activate_in=timedelta(days=30))

    async with asyncio.timeout(PATIENCE_S):
        await app.run()
    assert seen == ["INV-001"]


async def test_a_timer_is_handled_when_it_is_due_and_not_before(broker: TimersBroker):
    seen: list[tuple[Any, float]] = []

    @broker.subscriber("orders")
    async def handle(body: dict[str, int], tenant: str = Context("message.headers.x-tenant")) -> None:
        seen.append(((body, tenant), datetime.now(tz=UTC).timestamp()))

    await broker.start()
    due = datetime.now(tz=UTC) + timedelta(milliseconds=300)
    await broker.publish({"id": 1}, topic="orders", activate_at=due, headers={"x-tenant": "acme"})
    await until(lambda: seen)
    [(what, at)] = seen
    assert what == ({"id": 1}, "acme")
    assert at >= due.timestamp() - 0.002
    await until_gone(broker.timers, "orders")


async def test_a_failing_handler_is_retried_and_then_a_dead_letter_with_its_reason(broker: TimersBroker):
    deliveries: list[int] = []

    @broker.subscriber("orders", retries=2, backoff=Fixed("10ms"))
    async def handle(n: int, message: Delivered) -> None:
        deliveries.append(message.deliveries)
        raise ValueError("the shop is closed")

    await broker.start()
    await broker.publish(1, topic="orders", timer_id="order-1")
    await until_gone(broker.timers, "orders")
    assert deliveries == [1, 2, 3]
    [letter] = await broker.timers.peek("orders", state="dead")
    assert letter.timer_id == "order-1"
    assert letter.reason.startswith("ValueError: the shop is closed (test_faststream.py:")


@pytest.mark.parametrize(
    ("policy", "error", "dead", "handled"),
    [
        (AckPolicy.ACK, ValueError("no"), 0, 1),
        (AckPolicy.ACK_FIRST, ValueError("no"), 0, 1),
        (AckPolicy.REJECT_ON_ERROR, ValueError("no"), 1, 1),
        (AckPolicy.NACK_ON_ERROR, ValueError("no"), 1, 2),
        (AckPolicy.NACK_ON_ERROR, RejectMessage(reason="never"), 1, 1),
        (AckPolicy.NACK_ON_ERROR, AckMessage(), 0, 1),
        (AckPolicy.NACK_ON_ERROR, None, 0, 1),
    ],
)
async def test_a_policy_decides(
    broker: TimersBroker, policy: AckPolicy, error: Exception | None, dead: int, handled: int
):
    count = 0

    @broker.subscriber("orders", retries=1, backoff=Fixed("1ms"), ack_policy=policy)
    async def handle(n: int) -> None:
        nonlocal count
        count += 1
        if error is not None:
            raise error

    await broker.start()
    await broker.publish(1, topic="orders")
    await until_gone(broker.timers, "orders")
    await until(lambda: count == handled)
    letters = await broker.timers.peek("orders", state="dead")
    assert len(letters) == dead
    if isinstance(error, RejectMessage):
        assert letters[0].reason == "never"


async def test_a_handler_may_give_a_message_back_with_a_delay(broker: TimersBroker):
    seen: list[int] = []

    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL, backoff=Fixed("1h"))
    async def handle(n: int, message: Delivered) -> None:
        seen.append(message.deliveries)
        if len(seen) == 1:
            await message.nack(delay=timedelta(milliseconds=1))
        else:
            await message.ack()

    @broker.subscriber("raised", backoff=Fixed("1h"))
    async def raises(n: int, message: Delivered) -> None:
        if message.deliveries == 1:
            raise NackMessage(delay=timedelta(milliseconds=1))

    await broker.start()
    await broker.publish(1, topic="orders")
    await broker.publish(1, topic="raised")
    await until_gone(broker.timers, "orders")
    await until_gone(broker.timers, "raised")
    assert seen == [1, 2]


async def test_republishing_an_id_while_it_runs_loses_nothing(broker: TimersBroker):
    """The hole of the reference: the ack of the first deleted the second."""
    seen: list[str] = []
    gate = asyncio.Event()

    @broker.subscriber("orders")
    async def handle(body: str) -> None:
        seen.append(body)
        if body == "first":
            await gate.wait()

    await broker.start()
    await broker.publish("first", topic="orders", timer_id="one")
    await until(lambda: seen)
    await broker.publish("second", topic="orders", timer_id="one", activate_in=timedelta(milliseconds=100))
    gate.set()
    await until(lambda: len(seen) == 2)
    assert seen == ["first", "second"]
    await until_gone(broker.timers, "orders")


async def test_a_handler_longer_than_its_lease_keeps_it(broker: TimersBroker):
    seen: list[int] = []
    gate = asyncio.Event()

    @broker.subscriber("orders", lease_ttl=6)
    async def handle(n: int, message: Delivered) -> None:
        seen.append(message.deliveries)
        await gate.wait()

    await broker.start()
    await broker.publish(1, topic="orders")
    await until(lambda: seen)
    [first] = await broker.timers.peek("orders", state="in_flight")
    async with asyncio.timeout(PATIENCE_S):
        while (await broker.timers.peek("orders", state="in_flight"))[0].at_ms == first.at_ms:
            await asyncio.sleep(0.005)
    gate.set()
    await until_gone(broker.timers, "orders")
    assert seen == [1]
    assert (await broker.timers.stats("orders")).lapsed_total == 0


async def test_a_stop_gives_back_at_once_what_does_not_end(redis: Redis):
    broker = TimersBroker(redis, key_prefix=f"t-{os.urandom(6).hex()}", graceful_timeout=0.05, logger=None)
    began = asyncio.Event()

    @broker.subscriber("orders", max_workers=1)
    async def handle(n: int) -> None:
        began.set()
        await asyncio.sleep(3600)

    await broker.start()
    timers = broker.timers
    for n in range(3):
        await broker.publish(n, topic="orders")
    await began.wait()
    await broker.stop()
    stats = await timers.stats("orders")
    assert (stats.ready, stats.in_flight, stats.dead) == (3, 0, 0)
    await timers.close()


async def test_a_handler_may_stop_its_subscriber(broker: TimersBroker):
    seen: list[int] = []

    @broker.subscriber("orders", max_workers=1)
    async def handle(n: int) -> None:
        seen.append(n)
        raise StopConsume

    await broker.start()
    await broker.publish(1, topic="orders")
    await until(lambda: seen)
    async with asyncio.timeout(PATIENCE_S):
        await broker.stop()
    assert seen == [1]


async def test_what_waits_can_be_seen_and_cancelled(broker: TimersBroker):
    publisher = broker.publisher("orders")
    soon, late = timedelta(hours=1), timedelta(hours=3)
    await broker.publish("late", topic="orders", timer_id="late", activate_in=late)
    await publisher.publish("soon", timer_id="soon", activate_in=soon)
    assert await broker.get_pending_timers("orders") == ["soon", "late"]
    assert await broker.get_pending_timers("orders", datetime.now(tz=UTC) + timedelta(hours=2)) == ["soon"]
    assert await broker.has_pending("orders", "late")
    assert await publisher.cancel("soon") == "cancelled"
    assert await broker.cancel_timer("orders", "soon") == "unknown"
    with pytest.raises(Conflict):
        await broker.publish("again", topic="orders", timer_id="late", activate_in=late, on_conflict="error")
    assert await broker.cancel_all("orders") == 1
    assert not await broker.has_pending("orders", "late")


async def test_what_a_handler_returns_is_scheduled_for_now(broker: TimersBroker):
    seen: list[int] = []
    router = TimersRouter(prefix="shop:")

    @router.subscriber("second")
    async def second(n: int) -> None:
        seen.append(n)

    @router.publisher("second")
    @router.subscriber("first")
    async def first(n: int) -> int:
        return n + 1

    broker.include_router(router)
    await broker.start()
    await broker.publish(1, topic="shop:first")
    await until(lambda: seen)
    assert seen == [2]


async def test_a_cluster_will_do(cluster_ports: list[int]):
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in cluster_ports])
    broker = TimersBroker(client, key_prefix=f"t-{os.urandom(6).hex()}", logger=None)
    seen: list[int] = []

    @broker.subscriber("orders")
    async def handle(n: int) -> None:
        seen.append(n)

    async with broker:
        await broker.publish(7, topic="orders")
        await until(lambda: seen)
    await client.aclose()
    assert seen == [7]


async def test_time_can_be_in_the_tests_hand():
    clock = ManualClock()
    broker = TimersBroker(FakeTimers(clock), logger=None)
    seen: list[int] = []

    @broker.subscriber("orders")
    async def handle(n: int) -> None:
        seen.append(n)

    async with broker:
        await broker.publish(1, topic="orders", activate_in=timedelta(days=30))
        for _ in range(50):
            await asyncio.sleep(0)
        assert seen == []
        clock.advance(30 * 86_400_000)
        await until(lambda: seen)


@pytest.mark.parametrize("topic", ["", "{a}", "x" * 256])
async def test_a_topic_that_is_none_is_invalid_and_a_value_error(broker: TimersBroker, topic: str):
    for call in (
        broker.publish(1, topic=topic),
        broker.cancel_timer(topic, "one"),
        broker.has_pending(topic, "one"),
        broker.get_pending_timers(topic),
        broker.cancel_all(topic),
    ):
        with pytest.raises(ValueError, match="topic name must be") as caught:
            await call
        assert isinstance(caught.value, Invalid)
    for declare in (broker.subscriber, broker.publisher):
        with pytest.raises(ValueError, match="topic name must be"):
            declare(topic)


async def test_an_empty_topic_is_none_under_a_prefix_either(broker: TimersBroker):
    router = TimersRouter(prefix="shop:")
    with pytest.raises(ValueError, match="topic name must be"):
        router.subscriber("")
