"""`Client` and `AsyncClient`: a line per call, each a plan given to a driver."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Self

from tenure.client.calls import inspect as _inspect
from tenure.client.calls import queues as _queues
from tenure.client.calls import records as _records
from tenure.client.calls import routers as _routers
from tenure.client.calls import topics as _topics
from tenure.client.core import Core
from tenure.client.drive import Awaiting
from tenure.client.feed import AsyncFeed
from tenure.client.replies import Job
from tenure.client.settings import ClientSettings
from tenure.client.wire import AsyncWire
from tenure.client.work import Work

__all__ = ["AsyncClient"]

_URL = "http://127.0.0.1:4000"


class AsyncClient:
    """Talks to one server from an event loop. Use it as ``async with``, or `close` it.

    ``node`` is who writes and works where a call does not say; one is made up otherwise.
    """

    def __init__(
        self,
        url: str = _URL,
        *,
        key: str | None = None,
        node: str | None = None,
        settings: ClientSettings | None = None,
        tls: ssl.SSLContext | None = None,
        wire: AsyncWire | None = None,
    ) -> None:
        self._core = Core(node=node, settings=settings)
        self._wire = wire if wire is not None else _async_wire(url, key, self._core.settings, tls)

    @property
    def node(self) -> str:
        """Who this client is where a call does not say."""
        return self._core.node

    @property
    def settings(self) -> ClientSettings:
        """Its limits and times."""
        return self._core.settings

    async def close(self) -> None:
        """Let go of every connection."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    put_topic = Awaiting(_topics.put_topic)
    topic = Awaiting(_topics.topic)
    topics = Awaiting(_topics.topics)
    delete_topic = Awaiting(_topics.delete_topic)
    produce = Awaiting(_records.produce)
    diff = Awaiting(_records.diff)
    delete_records = Awaiting(_records.delete_records)
    put_router = Awaiting(_routers.put_router)
    router = Awaiting(_routers.router)
    routers = Awaiting(_routers.routers)
    delete_router = Awaiting(_routers.delete_router)
    claim = Awaiting(_queues.claim)
    ack = Awaiting(_queues.ack)
    nack = Awaiting(_queues.nack)
    extend = Awaiting(_queues.extend)
    detach = Awaiting(_queues.detach)
    redrive = Awaiting(_queues.redrive)
    jobs = Awaiting(_inspect.jobs)
    job = Awaiting(_inspect.job)
    leases = Awaiting(_inspect.leases)
    health = Awaiting(_inspect.health)
    ready = Awaiting(_inspect.ready)
    metrics = Awaiting(_inspect.metrics)

    def work(
        self, topic: str, *, node: str | None = None, max_count: int = 1, lease_ms: int | None = None
    ) -> AsyncFeed[list[Job]]:
        """Jobs pushed as they come, in lists; an empty one is a heartbeat. At most ``max_count`` are held at once, and
        given back when it ends, unless `detach` came before. It does not reconnect.
        """
        return AsyncFeed(self._wire, Work(self._core, topic, node=node, max_count=max_count, lease_ms=lease_ms))


def _async_wire(url: str, key: str | None, settings: ClientSettings, tls: ssl.SSLContext | None) -> AsyncWire:
    from tenure.client.async_wire import AiohttpWire

    return AiohttpWire(url, key=key, settings=settings, tls=tls)
