"""Schedule timers in Redis through the put hooks: on the app's loop, or from blocking code on a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tenure.client.plan.session import default_node
from tenure.errors import Invalid
from tenure.extras import importing
from tenure.server_guard import check_server
from tenure.worker.backends.redis_payload import pack
from tenure.worker.blocking import check_no_loop
from tenure.worker.middleware import Middleware, Outgoing, Put, around_put
from tenure.worker.observing.metrics import Stats
from tenure.worker.payload import encode

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tenure.timers.model import NewTimer, OnConflict, Scheduled
    from tenure.timers.timers import Timers

__all__ = ["AppTimers", "OpenTimers"]

T = TypeVar("T")


class OpenTimers:
    """The timers of an app on the running event loop, claimed as ``node``. `close` closes connections that were made
    from an address.
    """

    def __init__(
        self, timers: Timers, *, node: str, redis: Redis | None = None, address: str = "the one given"
    ) -> None:
        self.timers = timers
        self.loop = asyncio.get_running_loop()
        self.node = node
        self.address = address
        """The address of the Redis, without credentials."""
        self._redis = redis

    @classmethod
    def at(cls, url: str, *, node: str) -> OpenTimers:
        """Open timers on the running loop. Raises Invalid where redis-py is missing or the address is not valid."""
        with importing("timers need redis-py", "redis"):
            from tenure.timers.timers import Timers
            from tenure.timers.wire import client_of

        check_server(url)
        try:
            redis = client_of(url)
        except ValueError as error:
            raise Invalid(f"not a Redis URL: {error}", field="redis") from error
        return cls(Timers(redis), node=node, redis=redis, address=urlsplit(url).netloc.rpartition("@")[2])

    async def schedule(
        self, put: Put, on_conflict: OnConflict, middlewares: Sequence[Middleware], stats: Stats
    ) -> list[Scheduled]:
        """Schedule the records of ``put`` through the put hooks."""
        done: list[Scheduled] = []

        async def store(put: Put) -> list[int]:
            new = [_new_timer(record) for record in put.records]
            done[:] = await self.timers.schedule_many(put.queue, new, on_conflict=on_conflict)
            stats.queue(put.queue).puts += len(new)
            return [scheduled.version for scheduled in done]

        await around_put(middlewares, store)(put)
        return done

    async def close(self) -> None:
        """Close the wake-up subscription, and the connections that were made here."""
        await self.timers.close()
        if self._redis is not None:
            await self._redis.aclose()


class AppTimers:
    """The timers of an app, given or opened at first use from the address of their Redis."""

    def __init__(self, url: str | None, given: Timers | None, *, node: str | None) -> None:
        if url is not None and given is not None:
            raise Invalid("give the app the address of a Redis or Timers, not both", field="timers")
        self.url = url
        self._given = given
        self._node = node
        self._open: OpenTimers | None = None
        self._thread: _LoopThread | None = None
        self._lock = threading.Lock()

    def new(self) -> OpenTimers:
        """Open timers on the running loop with connections of their own, which the caller closes."""
        node = self._node or default_node()
        if self._given is not None:
            return OpenTimers(self._given, node=node)
        if self.url is None:
            raise Invalid('the app has no Redis for its timers: App(redis="redis://127.0.0.1:6379/0")', field="redis")
        return OpenTimers.at(self.url, node=node)

    def on_loop(self) -> OpenTimers:
        """Return the app's timers on the running loop. Raises Invalid on another loop than theirs."""
        loop = asyncio.get_running_loop()
        if self._open is None or self._open.loop.is_closed():
            self._open = self.new()
        if self._open.loop is not loop:
            raise Invalid("the app belongs to another running event loop: from this one, use .blocking in a thread")
        return self._open

    def run_blocking(self, work: Callable[[OpenTimers], Awaitable[T]]) -> T:
        """Return the result of ``work``: on the app's loop where it runs in another thread, else on a
        loop in a thread.
        """
        check_no_loop("timer.blocking", instead="timer.schedule(…)")
        opened = self._open
        if opened is not None and opened.loop.is_running():
            return _run_on(opened.loop, lambda: work(opened))
        if self._given is not None:
            raise Invalid("Timers belong to their event loop, which does not run: give the app their address, redis=…")
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread(self.new)
            thread = self._thread
        return thread.run(work)

    async def close(self) -> None:
        """Close the timers; the next use opens them again."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()
        if self._thread is not None:
            await asyncio.to_thread(self.close_blocking)

    def close_blocking(self) -> None:
        """End the loop that blocking calls use."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    @asynccontextmanager
    async def through(self, timers: Timers | None) -> AsyncIterator[None]:
        """Use these timers on the running loop within the block; for tests."""
        before = self._open
        self._open = None if timers is None else OpenTimers(timers, node=self._node or default_node())
        try:
            yield
        finally:
            await self.close()
            self._open = before


class _LoopThread:
    """An event loop in a thread of its own, with timers on it, for code without a loop."""

    def __init__(self, new: Callable[[], OpenTimers]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tenure-timers", daemon=True)
        self._thread.start()
        try:
            self._opened = _run_on(self._loop, partial(_open, new))
        except BaseException:
            self._end()
            raise

    def run(self, work: Callable[[OpenTimers], Awaitable[T]]) -> T:
        return _run_on(self._loop, lambda: work(self._opened))

    def close(self) -> None:
        _run_on(self._loop, self._opened.close)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _open(new: Callable[[], OpenTimers]) -> OpenTimers:
    return new()


def _run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, called and awaited on a loop that runs in another thread."""

    async def call() -> T:
        return await work()

    return asyncio.run_coroutine_threadsafe(call(), loop).result()


def _new_timer(record: Outgoing) -> NewTimer:
    from tenure.timers.model import NewTimer

    meta = None if record.meta is None else encode(record.meta, what="meta")
    when: dict[str, Any] = {"delay": record.delay_ms} if record.deliver_at is None else {"at": record.deliver_at}
    return NewTimer(payload=pack(record.data, meta), timer_id=record.timer_id, **when)
