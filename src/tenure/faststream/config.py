"""The connection that the parts of a broker share, and the configs that FastStream requires."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy
from redis.asyncio import Redis, RedisCluster

from tenure.faststream.topic import full_topic
from tenure.timers.timers import Timers
from tenure.timers.wire import client_of
from tenure.worker.options import TaskOptions

__all__ = [
    "Connection",
    "TimersBrokerConfig",
    "TimersPublisherConfig",
    "TimersPublisherSpecConfig",
    "TimersSubscriberConfig",
    "TimersSubscriberSpecConfig",
]


class Connection:
    """The timers of a broker: given, on a given client, or on a client made from an address and closed here."""

    def __init__(self, client: str | Redis | RedisCluster | Timers | None, *, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._timers: Timers | None = None
        self._own: Redis | None = None

    @property
    def timers(self) -> Timers:
        """The timers, opened at first use."""
        if self._timers is None:
            self._timers = self._open()
        return self._timers

    def _open(self) -> Timers:
        match self._client:
            case None:
                raise IncorrectState("TimersBroker has no Redis: TimersBroker('redis://127.0.0.1:6379/0')")
            case Timers():
                return self._client
            case str():
                self._own = client_of(self._client)
                return Timers(self._own, prefix=self._prefix)
            case client:
                return Timers(client, prefix=self._prefix)

    @contextmanager
    def replace(self, timers: Timers) -> Generator[None]:
        """Use these timers within the block; for tests."""
        before, self._timers = self._timers, timers
        try:
            yield
        finally:
            self._timers = before

    async def close(self) -> None:
        """Close what was opened here; a given client stays open."""
        timers, self._timers = self._timers, None
        if timers is not None:
            await timers.close()
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()


@dataclass(kw_only=True)
class TimersBrokerConfig(BrokerConfig):
    connection: Connection

    async def connect(self) -> None:
        """Do nothing: the connection opens at first use, and reconnects."""

    async def disconnect(self) -> None:
        await self.connection.close()


@dataclass(kw_only=True)
class TimersSubscriberConfig(SubscriberUsecaseConfig):
    _outer_config: TimersBrokerConfig
    topic: str
    options: TaskOptions

    @property
    def full_topic(self) -> str:
        return full_topic(self._outer_config.prefix, self.topic)

    @property
    def ack_policy(self) -> AckPolicy:
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class TimersSubscriberSpecConfig(SubscriberSpecificationConfig):
    topic: str


@dataclass(kw_only=True)
class TimersPublisherConfig(PublisherUsecaseConfig):
    _outer_config: TimersBrokerConfig
    topic: str

    @property
    def full_topic(self) -> str:
        return full_topic(self._outer_config.prefix, self.topic)


@dataclass(kw_only=True)
class TimersPublisherSpecConfig(PublisherSpecificationConfig):
    topic: str
