"""`App`: the tasks and timers of a program by queue, what they put through, and what they ask of their queues."""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, Unpack, overload

import msgspec

from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.core.names import check_topic_name
from tenure.errors import Invalid
from tenure.worker.context import Context
from tenure.worker.declare import declare
from tenure.worker.durations import Duration, ms_of
from tenure.worker.handler import Handler
from tenure.worker.metrics import Stats
from tenure.worker.middleware import Middleware, Put
from tenure.worker.options import Knobs, TaskKnobs
from tenure.worker.periodic import Periodic, Tick
from tenure.worker.scheduling import AppTimers, OpenTimers
from tenure.worker.sending import AsyncSending, BlockingSending
from tenure.worker.task import Task, TaskOf
from tenure.worker.timer import TimerOf

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.timers.model import Cancelled, OnConflict, Scheduled
    from tenure.timers.timers import Timers

__all__ = ["App", "TaskDecorator", "TimerDecorator"]

T = TypeVar("T")
R = TypeVar("R")

TASKS_MAX: Final = 1_000


class TaskDecorator(Protocol):
    """What ``@app.task(…)`` is: from a handler of one of three shapes to its Task."""

    @overload
    def __call__(self, handler: Callable[[], R], /) -> TaskOf[None, [], R]: ...

    @overload
    def __call__(self, handler: Callable[[T], R], /) -> TaskOf[T, [T], R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Context], R], /) -> TaskOf[T, [T, Context], R]: ...


class TimerDecorator(Protocol):
    """What ``@app.timer(…)`` is: from a handler of one of three shapes to its TimerTask."""

    @overload
    def __call__(self, handler: Callable[[], R], /) -> TimerOf[None, [], R]: ...

    @overload
    def __call__(self, handler: Callable[[T], R], /) -> TimerOf[T, [T], R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Context], R], /) -> TimerOf[T, [T, Context], R]: ...


class App:
    """Tasks and timers, and the broker and the Redis they work with; ``redis`` is its address, or ``timers`` are given.

    Nothing is opened until it is needed. Close an app with ``async with app``, ``await app.close()`` or, where there is
    no loop, ``with app``. It belongs to one running event loop at a time; other threads use ``task.blocking``.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:4000",
        *,
        key: str | None = None,
        node: str | None = None,
        tls: ssl.SSLContext | None = None,
        client_settings: ClientSettings | None = None,
        redis: str | None = None,
        timers: Timers | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.url = url
        self.middlewares: list[Middleware] = list(middlewares)
        self.stats = Stats()
        """What this process counts, by queue; a worker shows it on its metrics page."""
        self._key = key
        self._node = node
        self._tls = tls
        self._settings = client_settings
        self._handlers: dict[str, Handler[Any]] = {}
        self._periodics: dict[str, Periodic] = {}
        self._sending: AsyncSending | None = None
        self._blocking: BlockingSending | None = None
        self._blocking_lock = threading.Lock()
        self._timers = AppTimers(redis, timers, node=node)

    @property
    def handlers(self) -> MappingProxyType[str, Handler[Any]]:
        """The tasks by queue and the timers by topic: no two of them have one name."""
        return MappingProxyType(self._handlers)

    @property
    def tasks(self) -> MappingProxyType[str, Task[Any]]:
        """The tasks by queue."""
        return MappingProxyType({name: task for name, task in self._handlers.items() if isinstance(task, Task)})

    @property
    def periodics(self) -> MappingProxyType[str, Periodic]:
        """The schedules by queue."""
        return MappingProxyType(self._periodics)

    def task(self, queue: str, **knobs: Unpack[TaskKnobs]) -> TaskDecorator:
        """Decorate the function that handles the jobs of ``queue``: ``()``, ``(payload)`` or ``(payload, ctx)``.

        Raises Invalid where a knob or the function cannot be meant, and where the queue has a task already.
        """
        check_topic_name(queue)  # here, or ``@app.task`` without its parentheses would go unnoticed

        def decorate(handler: Callable[..., Any], /) -> TaskOf[Any, Any, Any]:
            task = TaskOf[Any, Any, Any](self, queue, handler, knobs, names=sys._getframe(1).f_locals)
            self._add(task)
            return task

        return decorate

    def timer(self, topic: str, **knobs: Unpack[Knobs]) -> TimerDecorator:
        """Decorate the function that handles the timers of ``topic``, which a Redis keeps; as `task` otherwise."""
        check_topic_name(topic)

        def decorate(handler: Callable[..., Any], /) -> TimerOf[Any, Any, Any]:
            timer = TimerOf[Any, Any, Any](self, topic, handler, knobs, names=sys._getframe(1).f_locals)
            self._add(timer)
            return timer

        return decorate

    def periodic(
        self,
        queue: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        catch_up: bool = False,
        catch_up_max: int = 100,
        **knobs: Unpack[TaskKnobs],
    ) -> TaskDecorator:
        """Decorate a function that runs on a schedule: ``cron="0 3 * * *"`` in a ``timezone``, or ``every="15m"``.

        It is a task like any other, and its payload is the `Tick`. Of ticks missed while no worker ran, the latest is
        fired, and with ``catch_up`` the latest ``catch_up_max``.
        """
        schedule = Periodic.of(
            queue, cron=cron, every=every, timezone=timezone, catch_up=catch_up, catch_up_max=catch_up_max
        )

        def decorate(handler: Callable[..., Any], /) -> TaskOf[Any, Any, Any]:
            task = TaskOf[Any, Any, Any](self, queue, handler, knobs, names=sys._getframe(1).f_locals)
            if task.payload_type not in (Tick, Any, None):
                raise Invalid(
                    f"the payload of {queue!r} is a Tick, because it is periodic; it takes {task.payload_type}"
                )
            self._add(task)
            self._periodics[queue] = schedule
            return task

        return decorate

    @property
    def client(self) -> AsyncClient:
        """The app's client on the running loop."""
        return self._on_loop().client

    @property
    def blocking_client(self) -> Client:
        """The app's client for code without a loop."""
        return self._without_loop().client

    def new_client(self, *, more_streams: int = 0) -> AsyncClient:
        """A further client with the same address and key, to be closed by the caller; for so many more streams at once
        than the settings say.
        """
        settings = self._settings or ClientSettings()
        settings = msgspec.structs.replace(settings, streams_max=settings.streams_max + more_streams)
        return AsyncClient(self.url, key=self._key, node=self._node, settings=settings, tls=self._tls)

    @property
    def timers(self) -> Timers:
        """The app's timers on the running loop. Raises Invalid where it was given no Redis."""
        return self._timers.on_loop().timers

    def new_timers(self) -> OpenTimers:
        """Further timers with connections of their own, to be closed by the caller."""
        return self._timers.new()

    async def declare(self, *queues: str) -> None:
        """Create what is missing of the queues of these tasks, or of all; `declare.declare` says what else changes."""
        tasks = self.tasks
        for queue in queues or tuple(tasks):
            await declare(self.client, tasks[queue].options)

    async def send(self, put: Put) -> list[int]:
        """Append what a task puts, through the middlewares."""
        return await self._on_loop().send(put, self.middlewares)

    def send_blocking(self, put: Put) -> list[int]:
        """The same through the blocking client."""
        return self._without_loop().send(put, self.middlewares)

    async def schedule(self, put: Put, on_conflict: OnConflict = "replace") -> list[Scheduled]:
        """Schedule what a timer schedules, through the middlewares."""
        return await self._schedule(self._timers.on_loop(), put, on_conflict)

    def schedule_blocking(self, put: Put, on_conflict: OnConflict = "replace") -> list[Scheduled]:
        """The same for code without a loop."""
        return self._timers.run_blocking(lambda opened: self._schedule(opened, put, on_conflict))

    def cancel_blocking(self, topic: str, timer_id: str) -> Cancelled:
        """Cancel a timer, for code without a loop."""
        return self._timers.run_blocking(lambda opened: opened.timers.cancel(topic, timer_id))

    async def _schedule(self, opened: OpenTimers, put: Put, on_conflict: OnConflict) -> list[Scheduled]:
        return await opened.schedule(put, on_conflict, self.middlewares, self.stats)

    def run(
        self, *, queues: Sequence[str] | None = None, concurrency: int | None = None, drain: Duration = "25s"
    ) -> int:
        """Be a worker process until SIGTERM or SIGINT, then drain; returns the exit code. So does `tenure worker`.

        Only ``queues`` where they are given; ``concurrency`` bounds all tasks together. Write it below
        ``if __name__ == "__main__":``. Raises Invalid, Conflict or Denied where the queues cannot be worked at.
        """
        from tenure.worker.worker import run_app

        return run_app(self, queues=queues, concurrency=concurrency, drain_ms=ms_of(drain, field="drain"))

    async def close(self, *, deadline_ms: int | None = None) -> None:
        """Send what is pending and close the clients; the next use opens them again.

        After ``deadline_ms``, and where this is cancelled, puts that were not answered fail, and their callers hear so.
        """
        sending, self._sending = self._sending, None
        try:
            if sending is not None:
                await sending.close(deadline_ms=deadline_ms)
        finally:
            await self._timers.close()
            if self._blocking is not None:
                await asyncio.to_thread(self._close_blocking)

    @asynccontextmanager
    async def through(
        self, client: AsyncClient, blocking_client: Client, *, timers: Timers | None = None
    ) -> AsyncIterator[None]:
        """Use these for as long as the block runs, and close them at its end; for tests."""
        before = self._sending, self._blocking
        self._sending = AsyncSending(client, asyncio.get_running_loop(), self.stats)
        self._blocking = BlockingSending(blocking_client)
        try:
            async with self._timers.through(timers):
                yield
        finally:
            await self.close()
            self._sending, self._blocking = before

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_blocking()

    def _add(self, task: Handler[Any]) -> None:
        if task.queue in self._handlers:
            raise Invalid(f"queue {task.queue!r} has a task already: {self._handlers[task.queue]!r}", field="queue")
        if len(self._handlers) >= TASKS_MAX:
            raise Invalid(f"an app has at most {TASKS_MAX} tasks", field="queue")
        self._handlers[task.queue] = task

    def _on_loop(self) -> AsyncSending:
        loop = asyncio.get_running_loop()
        if self._sending is None or self._sending.loop.is_closed():
            self._sending = AsyncSending(self.new_client(), loop, self.stats)
        if self._sending.loop is not loop:
            raise Invalid("the app belongs to another running event loop: from this one, use task.blocking in a thread")
        return self._sending

    def _without_loop(self) -> BlockingSending:
        from tenure.client.client import Client

        with self._blocking_lock:  # threads that begin together share one client, and so its producers
            if self._blocking is None:
                client = Client(self.url, key=self._key, node=self._node, settings=self._settings, tls=self._tls)
                self._blocking = BlockingSending(client)
            return self._blocking

    def _close_blocking(self) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.client.close()
        self._timers.close_blocking()
