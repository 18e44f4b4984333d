"""`Client` and `AsyncClient`: a line per call, each a plan given to a driver."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from tenure.client.blocking_producer import Producer
from tenure.client.calls import inspect as _inspect
from tenure.client.calls import queues as _queues
from tenure.client.calls import records as _records
from tenure.client.calls import routers as _routers
from tenure.client.calls import topics as _topics
from tenure.client.core import Core
from tenure.client.drive import Awaiting, Blocking
from tenure.client.feed import AsyncFeed, Feed
from tenure.client.gather_settings import ProducerOptions
from tenure.client.producer import AsyncProducer
from tenure.client.queue import AsyncQueue, Queue
from tenure.client.replies import Gap, Job, Lifecycle
from tenure.client.settings import ClientSettings
from tenure.client.watch import Events, Watch, WatchEvent, watch_options
from tenure.client.wire import AsyncWire, Wire
from tenure.client.work import Work

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")
_URL = "http://127.0.0.1:4000"


class _Known:
    """What both clients can be asked without waiting."""

    _core: Core

    @property
    def node(self) -> str:
        """Who this client is where a call does not say."""
        return self._core.node

    @property
    def settings(self) -> ClientSettings:
        """Its limits and times."""
        return self._core.settings


class Client(_Known):
    """Talks to one server, blocking, from any number of threads. Use it as ``with``, or `close` it.

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
        wire: Wire | None = None,
    ) -> None:
        self._core = Core(node=node, settings=settings)
        self._wire = wire if wire is not None else _wire(url, key, self._core.settings, tls=tls)

    def close(self) -> None:
        """Let go of every connection."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    put_topic = Blocking(_topics.put_topic)
    topic = Blocking(_topics.topic)
    topics = Blocking(_topics.topics)
    delete_topic = Blocking(_topics.delete_topic)
    produce = Blocking(_records.produce)
    diff = Blocking(_records.diff)
    delete_records = Blocking(_records.delete_records)
    put_router = Blocking(_routers.put_router)
    router = Blocking(_routers.router)
    routers = Blocking(_routers.routers)
    delete_router = Blocking(_routers.delete_router)
    claim = Blocking(_queues.claim)
    ack = Blocking(_queues.ack)
    nack = Blocking(_queues.nack)
    extend = Blocking(_queues.extend)
    detach = Blocking(_queues.detach)
    redrive = Blocking(_queues.redrive)
    jobs = Blocking(_inspect.jobs)
    job = Blocking(_inspect.job)
    leases = Blocking(_inspect.leases)
    health = Blocking(_inspect.health)
    ready = Blocking(_inspect.ready)
    metrics = Blocking(_inspect.metrics)

    def work(
        self, topic: str, *, node: str | None = None, max_count: int = 1, lease_ms: int | None = None
    ) -> Feed[list[Job]]:
        """Jobs pushed as they come, in lists; an empty one is a heartbeat. At most ``max_count`` are held at once, and
        given back when it ends, unless `detach` came before. It does not reconnect.
        """
        return Feed(self._wire, Work(self._core, topic, node=node, max_count=max_count, lease_ms=lease_ms))

    def watch(
        self,
        topics: str | Iterable[str] | Mapping[str, int | None],
        *,
        node: str | Sequence[str] | None = None,
        limit: int = 256,
        include_tags: bool = False,
        include_meta: bool = True,
        include_data: bool = True,
        strong: bool = False,
    ) -> Feed[WatchEvent]:
        """Records of topics as they come, from their start, or above the seq that a mapping gives (None: only new
        ones). Resumes by itself; a loss is a `Tombstone`, and it ends once every topic was deleted.
        """
        options = watch_options(
            node=node,
            limit=limit,
            include_tags=include_tags,
            include_meta=include_meta,
            include_data=include_data,
            strong=strong,
        )
        return Feed(self._wire, Watch(self._core, topics, options=options))

    def events(self, topic: str, *, last_event_id: str | None = None) -> Feed[Lifecycle | Gap]:
        """What happens to a topic's jobs, from now on. Resumes by itself; a loss is a `Gap`."""
        return Feed(self._wire, Events(self._core, topic, last_event_id=last_event_id))

    @overload
    def queue(self, name: str) -> Queue[Any]: ...
    @overload
    def queue(self, name: str, type: type[T]) -> Queue[T]: ...
    def queue(self, name: str, type: Any = Any) -> Queue[Any]:
        """One queue, with values instead of JSON; ``type`` is what its jobs are decoded into."""
        return Queue(self._wire, self._core, name, type)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Puts gathered into few requests; close it, or use it as ``with``, so that what is waiting is sent."""
        return Producer(self, topic, **options)


class AsyncClient(_Known):
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
        self._wire = wire if wire is not None else _async_wire(url, key, self._core.settings, tls=tls)

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

    def watch(
        self,
        topics: str | Iterable[str] | Mapping[str, int | None],
        *,
        node: str | Sequence[str] | None = None,
        limit: int = 256,
        include_tags: bool = False,
        include_meta: bool = True,
        include_data: bool = True,
        strong: bool = False,
    ) -> AsyncFeed[WatchEvent]:
        """Records of topics as they come, from their start, or above the seq that a mapping gives (None: only new
        ones). Resumes by itself; a loss is a `Tombstone`, and it ends once every topic was deleted.
        """
        options = watch_options(
            node=node,
            limit=limit,
            include_tags=include_tags,
            include_meta=include_meta,
            include_data=include_data,
            strong=strong,
        )
        return AsyncFeed(self._wire, Watch(self._core, topics, options=options))

    def events(self, topic: str, *, last_event_id: str | None = None) -> AsyncFeed[Lifecycle | Gap]:
        """What happens to a topic's jobs, from now on. Resumes by itself; a loss is a `Gap`."""
        return AsyncFeed(self._wire, Events(self._core, topic, last_event_id=last_event_id))

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...
    @overload
    def queue(self, name: str, type: type[T]) -> AsyncQueue[T]: ...
    def queue(self, name: str, type: Any = Any) -> AsyncQueue[Any]:
        """One queue, with values instead of JSON; ``type`` is what its jobs are decoded into."""
        return AsyncQueue(self._wire, self._core, name, type)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Puts gathered into few requests; close it, or use it as ``async with``, so that what is waiting is sent."""
        return AsyncProducer(self, topic, **options)


def _wire(url: str, key: str | None, settings: ClientSettings, *, tls: ssl.SSLContext | None) -> Wire:
    from tenure.client.blocking_wire import Urllib3Wire

    return Urllib3Wire(url, key=key, settings=settings, tls=tls)


def _async_wire(url: str, key: str | None, settings: ClientSettings, *, tls: ssl.SSLContext | None) -> AsyncWire:
    from tenure.client.async_wire import AiohttpWire

    return AiohttpWire(url, key=key, settings=settings, tls=tls)
