"""FastStream handlers without Redis: TestTimersBroker calls them at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from faststream import BaseMiddleware, Context, Depends, FastStream, TestApp
from faststream.exceptions import RejectMessage
from faststream.specification.asyncapi import AsyncAPI
from pydantic import BaseModel, ValidationError

from tenure.faststream import (
    TestTimersBroker,
    TimersBroker,
    TimersRoute,
    TimersRoutePublisher,
    TimersRouter,
    TimerStreamMessage,
)


class Invoice(BaseModel):
    number: int


async def test_a_publish_calls_its_handler_at_once_and_is_written_down():
    broker = TimersBroker()

    @broker.subscriber("invoices")
    async def handle(invoice: Invoice) -> None: ...

    tester = TestTimersBroker(broker)
    async with tester:
        timer_id = await broker.publish({"number": 7}, topic="invoices", activate_in=timedelta(days=30))
        handle.mock.assert_called_once_with({"number": 7})
        assert not await broker.has_pending("invoices", timer_id)
        assert await broker.get_pending_timers("invoices") == []
        assert await broker.cancel_timer("invoices", timer_id) == "unknown"
        assert await broker.cancel_all("invoices") == 0
        assert await broker.ping()
    [timer] = tester.scheduled_timers
    assert (timer.topic, timer.timer_id, timer.body) == ("invoices", timer_id, {"number": 7})
    assert timedelta(days=29) < timer.activate_at - datetime.now(tz=UTC) <= timedelta(days=30)


async def test_a_payload_that_does_not_fit_fails_its_test():
    broker = TimersBroker()

    @broker.subscriber("invoices")
    async def handle(invoice: Invoice) -> None: ...

    async with TestTimersBroker(broker):
        with pytest.raises(ValidationError):
            await broker.publish({"number": "seven"}, topic="invoices")


async def test_headers_correlation_dependencies_and_middlewares_reach_the_handler():
    seen: list[Any] = []

    class Seen(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(("middleware", msg.message_id))
            return await call_next(msg)

    def tenant_of(tenant: str = Context("message.headers.x-tenant")) -> str:
        return tenant.upper()

    broker = TimersBroker(middlewares=[Seen])

    @broker.subscriber("orders")
    async def handle(
        body: dict[str, int],
        message: Annotated[TimerStreamMessage, Context()],
        tenant: Annotated[str, Depends(tenant_of)],
        correlation_id: str = Context("message.correlation_id"),
    ) -> None:
        seen.append((body, message.deliveries, tenant, correlation_id))

    async with TestTimersBroker(broker):
        await broker.publish(
            {"id": 42}, topic="orders", timer_id="t", correlation_id="trace", headers={"x-tenant": "acme"}
        )
    assert seen == [("middleware", "t"), ({"id": 42}, 1, "ACME", "trace")]


async def test_what_a_handler_returns_goes_to_its_publisher():
    broker = TimersBroker()

    @broker.publisher("second")
    @broker.subscriber("first")
    async def first(n: int) -> int:
        return n + 1

    @broker.subscriber("second")
    async def second(n: int) -> None: ...

    async with TestTimersBroker(broker):
        await broker.publish(1, topic="first")
        second.mock.assert_called_once_with(2)


async def test_routers_put_their_prefix_in_front():
    seen: list[int] = []

    async def handle(n: int) -> int:
        seen.append(n)
        return n

    route = TimersRoute(handle, "in", publishers=[TimersRoutePublisher("out")], max_workers=3)
    broker = TimersBroker(routers=[TimersRouter(prefix="shop:", handlers=[route])])
    tester = TestTimersBroker(broker)
    async with tester:
        await broker.publish(1, topic="shop:in")
    assert seen == [1]
    assert [timer.topic for timer in tester.scheduled_timers] == ["shop:in", "shop:out"]


async def test_an_app_starts_and_its_lifespan_publishes():
    broker = TimersBroker()
    app = FastStream(broker)
    publisher = broker.publisher("invoices")

    @broker.subscriber("invoices")
    async def handle(invoice_id: str) -> None: ...

    @app.after_startup
    async def schedule() -> None:
        await publisher.publish("INV-001", activate_in=timedelta(days=30))

    async with TestTimersBroker(broker), TestApp(app):
        handle.mock.assert_called_once_with("INV-001")


async def test_a_message_that_is_rejected_raises_nothing():
    broker = TimersBroker()

    @broker.subscriber("invoices")
    async def handle(n: int) -> None:
        raise RejectMessage

    async with TestTimersBroker(broker):
        await broker.publish(1, topic="invoices")


async def test_both_times_or_one_without_a_zone_are_refused():
    broker = TimersBroker()
    async with TestTimersBroker(broker):
        with pytest.raises(ValueError, match="not both"):
            await broker.publish(1, topic="a", activate_in=timedelta(1), activate_at=datetime(2030, 1, 1, tzinfo=UTC))
        with pytest.raises(ValueError, match="time zone"):
            await broker.publish(1, topic="a", activate_at=datetime(2030, 1, 1))
        with pytest.raises(NotImplementedError):
            await broker.request(1, topic="a")


def test_the_document_lists_channels_and_no_address():
    broker = TimersBroker("redis://user:secret@nowhere:6379")

    @broker.publisher("out")
    @broker.subscriber("in")
    async def handle(n: int) -> None: ...

    text = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_json()
    assert "in:Handle" in text
    assert "out:Publisher" in text
    assert "secret" not in text
    assert "nowhere" not in text
