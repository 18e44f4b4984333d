"""`TestTimersBroker`: call handlers at once, whatever their time, and record what was scheduled."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from faststream._internal.testing.broker import TestBroker, change_producer

from tenure.faststream.broker import TimersBroker
from tenure.faststream.message import TimerMessage
from tenure.faststream.publisher import TimerPublishCommand, TimersProducer, TimersPublisher
from tenure.faststream.subscriber import TimersSubscriber
from tenure.timers.model import Cancelled, TimerInfo
from tenure.timers.timers import Timers

__all__ = ["ScheduledTimer", "TestTimersBroker"]


@dataclass(frozen=True, slots=True)
class ScheduledTimer:
    """One publish, as recorded in `TestTimersBroker.scheduled_timers`."""

    topic: str
    timer_id: str
    activate_at: datetime
    body: Any
    correlation_id: str = ""
    headers: dict[str, Any] | None = None


class TestTimersBroker(TestBroker[TimersBroker, TimersBroker], broker=TimersBroker):
    """A broker without Redis: a publish runs the handlers of its topic before it returns, so nothing is ever pending.

    For tests that depend on time use `tenure.testing.FakeTimers`: ``TimersBroker(FakeTimers(clock))``.

    >>> import asyncio
    >>> from tenure.faststream import TestTimersBroker, TimersBroker
    >>> broker = TimersBroker("redis://127.0.0.1:6379/0")
    >>> @broker.subscriber("invoices")
    ... async def handle(invoice_id: str) -> None:
    ...     print("invoice", invoice_id)
    >>> async def main():
    ...     async with TestTimersBroker(broker, connect_only=False) as tested:
    ...         await tested.publish("INV-001", topic="invoices")
    >>> asyncio.run(main())
    invoice INV-001
    """

    __test__ = False

    def __init__(self, broker: TimersBroker, **options: Any) -> None:
        super().__init__(broker, **options)
        self.scheduled_timers: list[ScheduledTimer] = []

    def create_publisher_fake_subscriber(
        self, broker: TimersBroker, publisher: TimersPublisher
    ) -> tuple[TimersSubscriber, bool]:
        for subscriber in broker.subscribers:
            if isinstance(subscriber, TimersSubscriber) and subscriber.full_topic == publisher.config.full_topic:
                return subscriber, True
        return broker.subscriber(publisher.config.full_topic), False

    @contextmanager
    def _patch_producer(self, broker: TimersBroker) -> Generator[None]:
        producer = _AtOnce(broker, self.scheduled_timers)
        with change_producer(broker.config.broker_config, producer):
            yield

    @contextmanager
    def _patch_broker(self, broker: TimersBroker) -> Generator[None]:
        connection = broker.config.broker_config.connection
        with connection.replace(cast("Timers", _NothingPending())), super()._patch_broker(broker):
            yield

    async def _fake_connect(self, broker: TimersBroker, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no server."""


class _NothingPending:
    """The reads of `Timers`, answered as for empty topics."""

    async def peek(self, topic: str, **_: Any) -> list[TimerInfo]:
        return []

    async def get(self, topic: str, timer_id: str) -> TimerInfo | None:
        return None

    async def cancel(self, topic: str, timer_id: str) -> Cancelled:
        return "unknown"

    async def cancel_all(self, topic: str) -> int:
        return 0


class _AtOnce(TimersProducer):
    """A producer that delivers instead of scheduling."""

    def __init__(self, broker: TimersBroker, scheduled: list[ScheduledTimer]) -> None:
        config = broker.config.broker_config
        super().__init__(config.connection, config.fd_config._serializer)
        self._broker = broker
        self._scheduled = scheduled

    async def publish(self, cmd: TimerPublishCommand) -> None:
        at = cmd.activate_at or datetime.now(tz=UTC) + cmd.activate_in
        self._scheduled.append(
            ScheduledTimer(cmd.destination, cmd.timer_id, at, cmd.body, cmd.correlation_id or "", cmd.headers)
        )
        message = TimerMessage(
            type="timer",
            channel=cmd.destination,
            timer_id=cmd.timer_id,
            data=await self.encode(cmd),
            deliveries=1,
            lease=None,
        )
        for subscriber in self._broker.subscribers:
            if isinstance(subscriber, TimersSubscriber) and subscriber.full_topic == cmd.destination:
                await subscriber.process_message(message)
