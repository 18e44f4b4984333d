"""Publish timers: the command, the producer that schedules it, and the publisher of one topic."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NoReturn

from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import SendableMessage
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.types import AsyncCallable, PublisherMiddleware
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from tenure.faststream.config import (
    Connection,
    TimersBrokerConfig,
    TimersPublisherConfig,
    TimersPublisherSpecConfig,
)
from tenure.faststream.envelope import pack
from tenure.faststream.message import decode_timer, parse_timer
from tenure.timers.model import Cancelled, OnConflict

__all__ = ["TimerPublishCommand", "TimersProducer", "TimersPublisher", "TimersPublisherSpecification"]

_NOW = timedelta(0)


class TimerPublishCommand(PublishCommand):
    """One timer to publish: due at ``activate_at``, or ``activate_in`` from now by the clock of Redis."""

    def __init__(
        self,
        message: SendableMessage,
        /,
        *,
        topic: str,
        timer_id: str = "",
        activate_in: timedelta = _NOW,
        activate_at: datetime | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        on_conflict: OnConflict = "replace",
    ) -> None:
        if activate_at is not None and activate_in != _NOW:
            raise ValueError("pass either activate_in or activate_at, not both")
        if activate_at is not None and activate_at.tzinfo is None:
            raise ValueError("activate_at must say its time zone: datetime.now(tz=UTC)")
        self.timer_id = timer_id or gen_cor_id()
        super().__init__(
            message,
            _publish_type=PublishType.PUBLISH,
            destination=topic,
            correlation_id=correlation_id or self.timer_id,
            headers=headers,
            reply_to=reply_to,
        )
        self.activate_in = activate_in
        self.activate_at = activate_at
        self.on_conflict = on_conflict


class TimersProducer:
    """Schedules published messages."""

    _parser: AsyncCallable = staticmethod(parse_timer)
    _decoder: AsyncCallable = staticmethod(decode_timer)
    codec: CodecProto = DefaultCodec()

    def __init__(self, connection: Connection, serializer: SerializerProto | None) -> None:
        self._connection = connection
        self.serializer = serializer

    async def publish(self, cmd: TimerPublishCommand) -> None:
        await self._connection.timers.schedule(
            cmd.destination,
            await self.encode(cmd),
            delay=max(cmd.activate_in, _NOW) if cmd.activate_at is None else None,
            at=cmd.activate_at,
            timer_id=cmd.timer_id,
            on_conflict=cmd.on_conflict,
        )

    async def encode(self, cmd: TimerPublishCommand) -> bytes:
        """Return the message in its envelope."""
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        headers: dict[str, Any] = {"correlation_id": cmd.correlation_id or ""}
        if content_type:
            headers["content-type"] = content_type
        if cmd.reply_to:
            headers["reply_to"] = cmd.reply_to
        return pack(body, headers | (cmd.headers or {}), timer_id=cmd.timer_id)

    async def request(self, cmd: TimerPublishCommand) -> NoReturn:
        raise NotImplementedError("timers have no replies")

    async def publish_batch(self, cmd: TimerPublishCommand) -> NoReturn:
        raise NotImplementedError("publish timers one at a time")


class TimersPublisherSpecification(PublisherSpecification[TimersBrokerConfig, TimersPublisherSpecConfig]):
    @property
    def full_topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return f"{self.full_topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=Message(title=f"{self.name}:Message", payload=payload), bindings=None)
        return {
            self.name: PublisherSpec(
                address=self.full_topic, description=self.config.description_, operation=operation, bindings=None
            )
        }


class TimersPublisher(PublisherUsecase):
    """A publisher for one topic; as a decorator, it publishes what the handler returns, due at once."""

    def __init__(self, config: TimersPublisherConfig, specification: TimersPublisherSpecification) -> None:
        super().__init__(config, specification)  # type: ignore[arg-type]
        self.config = config

    async def publish(
        self,
        message: SendableMessage = None,
        *,
        timer_id: str = "",
        activate_in: timedelta = _NOW,
        activate_at: datetime | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        on_conflict: OnConflict = "replace",
    ) -> str:
        """As `TimersBroker.publish`, to this topic."""
        cmd = TimerPublishCommand(
            message,
            topic=self.config.full_topic,
            timer_id=timer_id,
            activate_in=activate_in,
            activate_at=activate_at,
            correlation_id=correlation_id,
            headers=headers,
            on_conflict=on_conflict,
        )
        await self._basic_publish(cmd, producer=self.config._outer_config.producer, _extra_middlewares=())
        return cmd.timer_id

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        timer = TimerPublishCommand(
            cmd.body,
            topic=self.config.full_topic,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            reply_to=cmd.reply_to,
        )
        producer = self.config._outer_config.producer
        await self._basic_publish(timer, producer=producer, _extra_middlewares=_extra_middlewares)

    async def cancel(self, timer_id: str) -> Cancelled:
        """As `TimersBroker.cancel_timer`, in this topic."""
        return await self.config._outer_config.connection.timers.cancel(self.config.full_topic, timer_id)

    async def request(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("timers have no replies")
