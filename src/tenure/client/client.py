"""`Client` and `AsyncClient`: every call of the contract, one line each for both."""

from __future__ import annotations

import ssl
from abc import abstractmethod
from typing import Any, Generic, TypeVar, Unpack, overload

from tenure.client.batching.blocking_producer import Producer
from tenure.client.batching.producer import AsyncProducer
from tenure.client.batching.settings import ProducerOptions
from tenure.client.calls import cluster as _cluster
from tenure.client.calls import inspect as _inspect
from tenure.client.calls import queues as _queues
from tenure.client.calls import records as _records
from tenure.client.calls import routers as _routers
from tenure.client.calls import streams as _streams
from tenure.client.calls import topics as _topics
from tenure.client.calls import upgrade as _upgrade
from tenure.client.calls import workers as _workers
from tenure.client.closing import AsyncClosing, Closing
from tenure.client.config import ConfigFields
from tenure.client.plan.handle import Call, Handle
from tenure.client.plan.session import Session
from tenure.client.queue import AsyncQueue, Named, Queue
from tenure.client.settings import ClientSettings
from tenure.client.streams.feed import Feeding
from tenure.client.transport.wire import AsyncWire, Wire
from tenure.endpoint import endpoint_of

__all__ = ["AsyncClient", "Calls", "Client"]

T = TypeVar("T")
W = TypeVar("W", bound=Wire | AsyncWire)


class Calls(Handle[W, Session], Generic[W]):
    """Every call of the contract, for both kinds of client.

    ``url`` and ``key`` default to TENURE_URL and TENURE_KEY; ``url`` may be several, separated by commas. ``node`` is
    the writer and the worker of calls that name none; it is generated unless given.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        node: str | None = None,
        settings: ClientSettings | None = None,
        tls: ssl.SSLContext | None = None,
        wire: W | None = None,
    ) -> None:
        session = Session(node=node, settings=settings)
        if wire is None:
            endpoint = endpoint_of(url, key)
            wire = self._make_wire(endpoint.url, endpoint.key, session, tls=tls)
            self._where = endpoint.url
        else:
            self._where = type(wire).__name__
        super().__init__(wire, session)

    @staticmethod
    @abstractmethod
    def _make_wire(url: str, key: str | None, session: Session, *, tls: ssl.SSLContext | None) -> W:
        """Return the wire over HTTP. Not called where the caller passes a wire, which then needs no HTTP library."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where} node={self.node!r}>"

    @property
    def node(self) -> str:
        """The node of calls that name none."""
        return self._context.node

    @property
    def settings(self) -> ClientSettings:
        """The limits and times of this client."""
        return self._context.settings

    put_topic = Call(_topics.put_topic)
    patch_topic = Call(_topics.patch_topic)
    topic = Call(_topics.topic)
    topics = Call(_topics.topics)
    delete_topic = Call(_topics.delete_topic)
    produce = Call(_records.produce)
    diff = Call(_records.diff)
    delete_records = Call(_records.delete_records)
    put_router = Call(_routers.put_router)
    router = Call(_routers.router)
    routers = Call(_routers.routers)
    delete_router = Call(_routers.delete_router)
    claim = Call(_queues.claim)
    ack = Call(_queues.ack)
    nack = Call(_queues.nack)
    return_jobs = Call(_queues.return_jobs)
    begin = Call(_queues.begin)
    hello = Call(_workers.hello)
    extend = Call(_queues.extend)
    detach = Call(_queues.detach)
    redrive = Call(_queues.redrive)
    jobs = Call(_inspect.jobs)
    job = Call(_inspect.job)
    leases = Call(_inspect.leases)
    health = Call(_inspect.health)
    ready = Call(_inspect.ready)
    metrics = Call(_inspect.metrics)
    cluster = Call(_cluster.cluster)
    hand_over = Call(_cluster.hand_over)
    upgrade_status = Call(_upgrade.upgrade_status)
    finalize_upgrade = Call(_upgrade.finalize_upgrade)
    work = Feeding(_streams.work)
    watch = Feeding(_streams.watch)
    events = Feeding(_streams.events)

    @overload
    def queue(self: Calls[Wire], name: str) -> Queue[Any]: ...
    @overload
    def queue(self: Calls[Wire], name: str, type: type[T]) -> Queue[T]: ...
    @overload
    def queue(self: Calls[AsyncWire], name: str) -> AsyncQueue[Any]: ...
    @overload
    def queue(self: Calls[AsyncWire], name: str, type: type[T]) -> AsyncQueue[T]: ...
    def queue(self: Calls[Any], name: str, type: Any = Any) -> Queue[Any] | AsyncQueue[Any]:
        """Return a handle of one queue, with values instead of JSON; ``type`` is what its jobs are decoded into."""
        named: Named[Any] = Named(self._context, name, type)
        return AsyncQueue(self._wire, named) if self._awaits else Queue(self._wire, named)

    @overload
    def producer(
        self: Calls[Wire], topic: str, *, config: ConfigFields | None = None, **options: Unpack[ProducerOptions]
    ) -> Producer: ...
    @overload
    def producer(
        self: Calls[AsyncWire], topic: str, *, config: ConfigFields | None = None, **options: Unpack[ProducerOptions]
    ) -> AsyncProducer: ...
    def producer(
        self: Calls[Any], topic: str, *, config: ConfigFields | None = None, **options: Unpack[ProducerOptions]
    ) -> Producer | AsyncProducer:
        """Return a producer, which gathers puts into few requests. Close it, or use ``with``, so that all are sent.

        A topic that is not there is created with ``config``, by default that of a careful queue.
        """
        if self._awaits:
            return AsyncProducer(self, topic, config=config, **options)
        return Producer(self, topic, config=config, **options)


class Client(Calls[Wire], Closing, awaits=False):
    """Talks to a server, or to the leader of several, blocking, from any number of threads. Use ``with``, or `close`.

    ``node`` is the writer and the worker of calls that name none; it is generated unless given.

    >>> import asyncio
    >>> from tenure import Client
    >>> from tenure.testing import AppWire, ThreadWire, memory_broker
    >>> def work(client):
    ...     client.produce("mail", ["hello"], config={"type": "queue"})
    ...     with client.queue("mail", str).claim() as lease:
    ...         return [job.data for job in lease]
    >>> async def main():
    ...     async with memory_broker() as broker:
    ...         wire = ThreadWire(AppWire(broker), asyncio.get_running_loop())
    ...         return await asyncio.to_thread(work, Client(wire=wire))
    >>> asyncio.run(main())
    ['hello']

    Against a server, it is ``Client("http://127.0.0.1:8080")`` in place of the wire.
    """

    @staticmethod
    def _make_wire(url: str, key: str | None, session: Session, *, tls: ssl.SSLContext | None) -> Wire:
        from tenure.client.transport.router import Router

        router = Router(url, key=key, settings=session.settings, tls=tls)
        session.has_several = router.has_several
        return router

    def close(self) -> None:
        """Close every connection."""
        self._wire.close()


class AsyncClient(Calls[AsyncWire], AsyncClosing, awaits=True):
    """Talks to a server, or to the leader of several, from an event loop. Use ``async with``, or `close`.

    ``node`` is the writer and the worker of calls that name none; it is generated unless given.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.testing import AppWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
    ...         await client.produce("mail", ["hello"], config={"type": "queue"})
    ...         claimed = await client.claim("mail")
    ...         return (await client.ack("mail", lease_id=claimed.lease_id)).count
    >>> asyncio.run(main())
    1
    """

    @staticmethod
    def _make_wire(url: str, key: str | None, session: Session, *, tls: ssl.SSLContext | None) -> AsyncWire:
        from tenure.client.transport.async_router import AsyncRouter

        router = AsyncRouter(url, key=key, settings=session.settings, tls=tls)
        session.has_several = router.has_several
        return router

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()
