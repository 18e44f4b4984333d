"""`TimersBroker`: FastStream's broker over `Timers`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, Self

from fast_depends.dependencies import Dependant
from faststream import BaseMiddleware
from faststream._internal.basic_types import LoggerProto, SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy
from faststream.specification.schema import BrokerSpec
from faststream.specification.schema.extra import Tag, TagDict
from redis.asyncio import Redis, RedisCluster

from tenure.faststream.config import Connection, TimersBrokerConfig
from tenure.faststream.message import TimerMessage
from tenure.faststream.publisher import TimerPublishCommand, TimersProducer
from tenure.faststream.registrator import TimersRegistrator
from tenure.faststream.subscriber import TimersSubscriber
from tenure.faststream.topic import full_topic
from tenure.timers.model import Cancelled, OnConflict
from tenure.timers.timers import Timers

__all__ = ["TimersBroker"]

_PAGE = 1_000
_NOW = timedelta(0)


class _LoggerStorage(DefaultLoggerStorage):
    _channel_width = 7

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._channel_width = max(self._channel_width, len(params.get("channel", "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        if logger := self._get_logger_ref():
            return logger
        logger = get_broker_logger(
            name="timers",
            default_context={"channel": "", "message_id": ""},
            message_id_ln=-1,
            fmt=f"%(asctime)s %(levelname)-8s - %(channel)-{self._channel_width}s | %(message_id)s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(logger)
        return logger


class TimersBroker(TimersRegistrator, BrokerUsecase[TimerMessage, Timers, TimersBrokerConfig]):
    """Timers for FastStream, by the address of a Redis, its client, a cluster's client, or `Timers`.

    The caller closes a given client; a client made from an address is closed with the broker. Timers scheduled under
    another ``key_prefix`` are not seen.

    >>> import asyncio
    >>> from datetime import timedelta
    >>> from tenure.testing import FakeTimers
    >>> from tenure.faststream import TimersBroker
    >>> async def main():
    ...     timers = FakeTimers()
    ...     async with TimersBroker(timers) as broker:
    ...         await broker.publish("INV-001", topic="invoices", activate_in=timedelta(days=30))
    ...     return (await timers.stats("invoices")).scheduled
    >>> asyncio.run(main())
    1
    """

    def __init__(
        self,
        client: str | Redis | RedisCluster | Timers | None = None,
        *,
        key_prefix: str = "tenure",
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[type[BaseMiddleware] | BrokerMiddleware[TimerMessage]] = (),
        graceful_timeout: float | None = 15.0,
        routers: Sequence[Registrator[TimerMessage]] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
    ) -> None:
        fd_config = FastDependsConfig(use_fastdepends=apply_types)
        connection = Connection(client, prefix=key_prefix)
        config = TimersBrokerConfig(
            connection=connection,
            ack_policy=ack_policy,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_LoggerStorage),
            fd_config=fd_config,
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            extra_context={"broker": self},
            producer=TimersProducer(connection, fd_config._serializer),
        )
        # The document is public, so it does not contain the address of the Redis.
        spec = BrokerSpec(
            url=[f"redis://timers/{key_prefix}"],
            protocol="redis",
            protocol_version="6.2",
            description=description,
            tags=tags,
            security=None,
        )
        super().__init__(config=config, specification=spec, routers=routers)

    @property
    def timers(self) -> Timers:
        """The timers of the broker: to peek, to count, to redrive dead letters."""
        return self._connection_state.timers

    @property
    def _connection_state(self) -> Connection:
        return self.config.broker_config.connection

    async def _connect(self) -> Timers:
        self.timers.report_to(lambda level, message: self.config.logger.log(message, level))
        return self.timers

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        await self.connect()
        await super().start()

    async def stop(self, *args: Any) -> None:
        await super().stop(*args)
        await self._connection_state.close()
        self._connection = None

    async def ping(self, timeout: float | None = None) -> bool:
        """Return whether Redis answers within ``timeout`` seconds and every subscriber runs; False without a client
        too.
        """
        try:
            timers = self.timers
        except IncorrectState:
            return False
        if not await timers.ping(timeout_ms=None if timeout is None else int(timeout * 1000)):
            return False
        return all(sub.is_alive for sub in self.subscribers if isinstance(sub, TimersSubscriber))

    async def publish(
        self,
        message: SendableMessage,
        topic: str,
        *,
        timer_id: str = "",
        activate_in: timedelta = _NOW,
        activate_at: datetime | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        on_conflict: OnConflict = "replace",
    ) -> str:
        """Schedule a message and return its timer id, a random one by default.

        An id that waits or runs already is replaced, kept, or refused with Conflict, by ``on_conflict``.
        """
        cmd = TimerPublishCommand(
            message,
            topic=self._full(topic),
            timer_id=timer_id,
            activate_in=activate_in,
            activate_at=activate_at,
            correlation_id=correlation_id,
            headers=headers,
            on_conflict=on_conflict,
        )
        await self._basic_publish(cmd, producer=self.config.producer)
        return cmd.timer_id

    async def cancel_timer(self, topic: str, timer_id: str) -> Cancelled:
        """Remove a timer that waits; one whose handler runs is ``in_flight`` and left alone."""
        return await self.timers.cancel(self._full(topic), timer_id)

    async def has_pending(self, topic: str, timer_id: str) -> bool:
        """Return whether a timer waits or runs."""
        return await self.timers.get(self._full(topic), timer_id) is not None

    async def get_pending_timers(self, topic: str, before: datetime | None = None) -> list[str]:
        """Return the ids that wait or run, the soonest first; with ``before``, those due by then or
        leased until then.
        """
        full, found = self._full(topic), list[tuple[int, str]]()
        for state in ("waiting", "in_flight"):
            offset = 0
            while page := await self.timers.peek(full, state=state, limit=_PAGE, offset=offset):
                found += [(info.at_ms, info.timer_id) for info in page]
                offset += len(page)
        limit_ms = None if before is None else before.timestamp() * 1000
        return [timer_id for at_ms, timer_id in sorted(found) if limit_ms is None or at_ms <= limit_ms]

    async def cancel_all(self, topic: str) -> int:
        """Remove every timer of a topic that waits, and return how many. Those whose handlers run are left alone."""
        return await self.timers.cancel_all(self._full(topic))

    async def request(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("timers have no replies")

    async def publish_batch(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("publish timers one at a time")

    def _full(self, topic: str) -> str:
        return full_topic(self.config.broker_config.prefix, topic)
