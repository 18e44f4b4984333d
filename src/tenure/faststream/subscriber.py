"""`TimersSubscriber`: the worker runtime claims the timers, FastStream handles them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import msgspec
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.message import StreamMessage
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from tenure.client.plan.session import default_node
from tenure.faststream.config import TimersBrokerConfig, TimersSubscriberConfig, TimersSubscriberSpecConfig
from tenure.faststream.message import Lease, TimerMessage, decode_timer, parse_timer
from tenure.worker.backends.redis import RedisBackend
from tenure.worker.context import Context
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.options import TaskOptions
from tenure.worker.payload import Shape
from tenure.worker.processes.executors import LoopExecutor
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.pace import Slots
from tenure.worker.runtime.runner import Runner
from tenure.worker.runtime.timing import SystemTiming
from tenure.worker.settings import WorkerSettings

__all__ = ["TimersSubscriber", "TimersSubscriberSpecification"]

_NO_LIMIT_MS = 2**40
_in_handler: ContextVar[bool] = ContextVar("in_handler", default=False)


class TimersSubscriberSpecification(SubscriberSpecification[TimersBrokerConfig, TimersSubscriberSpecConfig]):
    @property
    def full_topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.full_topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        operation = Operation(message=Message(title=f"{self.name}:Message", payload=payload), bindings=None)
        return {
            self.name: SubscriberSpec(
                address=self.full_topic, description=self.description, operation=operation, bindings=None
            )
        }


class TimersSubscriber(SubscriberUsecase[TimerMessage]):
    """The subscriber of one topic. Leases are renewed while handlers run; it does not poll."""

    _outer_config: TimersBrokerConfig

    def __init__(
        self,
        config: TimersSubscriberConfig,
        specification: TimersSubscriberSpecification,
        calls: CallsCollection[TimerMessage],
    ) -> None:
        config.parser = parse_timer
        config.decoder = decode_timer
        super().__init__(config, specification, calls)  # type: ignore[arg-type]
        self._config = config
        self._runner: Runner | None = None
        self._parts: list[asyncio.Task[None]] = []
        self._leaving: asyncio.Task[None] | None = None
        self.stats = QueueStats()

    @property
    def full_topic(self) -> str:
        """The topic with the prefixes of its routers."""
        return self._config.full_topic

    @property
    def is_alive(self) -> bool:
        """Whether every task of the runner still runs."""
        return not any(part.done() for part in self._parts)

    async def start(self) -> None:
        await super().start()
        self._post_start()
        if self.calls and self._runner is None:
            self._runner = await self._make_runner()
            self._parts = self._runner.start()

    async def stop(self) -> None:
        """Give back timers not begun, let handlers finish within the graceful timeout, then give back the rest."""
        runner, self._runner, self._parts = self._runner, None, []
        if runner is not None:
            self._leaving = asyncio.create_task(runner.drain(asyncio.Event()))
        if _in_handler.get():  # the drain waits for this handler: do not wait for the drain
            self.running = False
            return
        if self._leaving is not None:
            await self._leaving
        await super().stop()

    async def _make_runner(self) -> Runner:
        timers = self._outer_config.connection.timers
        options = msgspec.structs.replace(self._config.options, queue=self.full_topic)
        backend = RedisBackend(timers, options, link=Link(self.full_topic, "Redis of the timers"), node=default_node())
        await backend.declare()
        timeout_s = self._outer_config.graceful_timeout
        drain_ms = _NO_LIMIT_MS if timeout_s is None else int(timeout_s * 1000)
        return Runner(
            _FastStreamHandler(self, options),
            backend=backend,
            timing=SystemTiming(),
            settings=WorkerSettings(drain_ms=drain_ms),
            stats=self.stats,
            slots=Slots(0),
            executor=LoopExecutor(),
        )

    async def get_one(self, *, timeout: float = 5.0) -> NoReturn:
        raise NotImplementedError("timers are handed to handlers: decorate one with the subscriber")

    def __aiter__(self) -> NoReturn:
        raise NotImplementedError("timers are handed to handlers: decorate one with the subscriber")

    def _make_response_publisher(self, message: StreamMessage[TimerMessage]) -> Sequence[PublisherProto]:
        return ()

    def get_log_context(self, message: StreamMessage[TimerMessage] | None) -> dict[str, str]:
        if message is None:
            return {"channel": self.full_topic, "message_id": ""}
        return {"channel": message.raw_message["channel"], "message_id": message.message_id}


class _FastStreamHandler(Handler[bytes]):
    """The handler that the runtime calls for each timer. FastStream decodes and settles it."""

    kind = "Subscriber"

    def __init__(self, subscriber: TimersSubscriber, options: TaskOptions) -> None:
        async def consume(payload: bytes, ctx: Context) -> None:
            message = TimerMessage(
                type="timer",
                channel=ctx.queue,
                timer_id=ctx.timer_id or "",
                data=payload,
                deliveries=ctx.deliveries,
                lease=Lease(ctx, options),
            )
            _in_handler.set(True)  # each timer runs in a task, and so in a context, of its own
            await subscriber.consume(message)

        super().__init__(consume, Shape(arity=2, payload=Any, is_async=True), options)
        self.decode = bytes
