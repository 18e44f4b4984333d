"""`App`: the tasks, timers and schedules of a program by queue, and the clients that they put through."""

from __future__ import annotations

import secrets
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, Unpack, cast, overload

import msgspec

from tenure.client.client import AsyncClient, Client
from tenure.client.settings import ClientSettings
from tenure.contract.names import NODE_BYTES_MAX, check_topic_name
from tenure.durations import Duration, ms_of
from tenure.endpoint import Endpoint, endpoint_of
from tenure.errors import Invalid
from tenure.worker.backends.declare import declare
from tenure.worker.backends.scheduling import AppTimers, OpenTimers
from tenure.worker.backends.sending import AppClients
from tenure.worker.context import Context
from tenure.worker.foreign_names import check_named
from tenure.worker.hooks import Hook, Hooks
from tenure.worker.middleware import Middleware, Put
from tenure.worker.observing.metrics import Stats
from tenure.worker.observing.reason import bounded
from tenure.worker.options import Knobs, TaskKnobs
from tenure.worker.periodic import Periodic, Tick
from tenure.worker.runtime.handler import Handler
from tenure.worker.task import Task, TaskOf
from tenure.worker.timer import TimerOf, TimerTask
from tenure.worker.typed_queue import TypedQueue

if TYPE_CHECKING:
    from tenure.timers.model import Cancelled, OnConflict, Scheduled
    from tenure.timers.timers import Timers

__all__ = ["App", "TaskDecorator", "TimerDecorator"]

T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H", bound=Hook)

TASKS_MAX: Final = 1_000
_SUFFIX_BYTES: Final = 9


class TaskDecorator(Protocol):
    """The type of ``@app.task(…)``: turns a handler of one of three shapes into a Task."""

    @overload
    def __call__(self, handler: Callable[[], R], /) -> TaskOf[None, [], R]: ...

    @overload
    def __call__(self, handler: Callable[[T], R], /) -> TaskOf[T, [T], R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Context], R], /) -> TaskOf[T, [T, Context], R]: ...


class TimerDecorator(Protocol):
    """The type of ``@app.timer(…)``: turns a handler of one of three shapes into a TimerTask."""

    @overload
    def __call__(self, handler: Callable[[], R], /) -> TimerOf[None, [], R]: ...

    @overload
    def __call__(self, handler: Callable[[T], R], /) -> TimerOf[T, [T], R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Context], R], /) -> TimerOf[T, [T, Context], R]: ...


class App:
    """Tasks and timers, and the broker and the Redis they work with; ``redis`` is its address, or ``timers`` are given.

    ``url`` and ``key`` default to TENURE_URL and TENURE_KEY, and then to loopback without a key.

    Nothing is opened until it is needed. Close an app with ``async with app``, ``await app.close()`` or, where there is
    no loop, ``with app``. It belongs to one running event loop at a time; other threads use ``task.blocking``.

    >>> import asyncio
    >>> from tenure import App
    >>> from tenure.testing import AppTester
    >>> app = App()
    >>> @app.task("mail")
    ... async def send(to: str) -> None:
    ...     print("to", to)
    >>> async def main():
    ...     async with AppTester(app) as tester:
    ...         await send.put("ann")
    ...         return await tester.run_until_idle()
    >>> asyncio.run(main())
    to ann
    1
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        node: str | None = None,
        tls: ssl.SSLContext | None = None,
        client_settings: ClientSettings | None = None,
        redis: str | None = None,
        timers: Timers | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._endpoint = endpoint_of(url, key)
        self.middlewares: list[Middleware] = list(middlewares)
        self.stats = Stats()
        """The counters of this process, by queue; a worker serves them on its metrics page."""
        self._node = node
        self._tls = tls
        self._settings = client_settings or ClientSettings()
        self._handlers: dict[str, Handler[Any]] = {}
        self._hooks = Hooks()
        self._periodics: dict[str, Periodic] = {}
        self._clients = AppClients(lambda: self.new_client(), self._new_blocking_client, self.stats)
        self._timers = AppTimers(redis, timers, node=node)

    @property
    def endpoint(self) -> Endpoint:
        """The server's address and the key that is sent to it."""
        return self._endpoint

    @property
    def url(self) -> str:
        """The server's address."""
        return self._endpoint.url

    @property
    def handlers(self) -> MappingProxyType[str, Handler[Any]]:
        """The handler of each queue and of each topic of timers: a task, several tasks by type, or a timer."""
        return MappingProxyType(self._handlers)

    @property
    def tasks(self) -> MappingProxyType[str, Task[Any]]:
        """The tasks by name: the queue, with the type in brackets where the task has one."""
        members = (task for handler in self._handlers.values() for task in handler.tasks)
        return MappingProxyType({task.name: task for task in members if isinstance(task, Task)})

    @property
    def periodics(self) -> MappingProxyType[str, Periodic]:
        """The schedules by queue."""
        return MappingProxyType(self._periodics)

    @property
    def hooks(self) -> Hooks:
        """The hooks that `on_startup` and `on_shutdown` added."""
        return self._hooks

    def on_startup(self, hook: H) -> H:
        """Decorate a function without arguments, async or plain, that runs once in each process that runs handlers,
        before its first job. A hook that fails ends the worker. Raises Invalid for anything but such a function.
        """
        self._hooks.on_startup(hook)
        return hook

    def on_shutdown(self, hook: H) -> H:
        """Decorate a function that runs once in each such process after its last job; the last one
        declared runs first.
        """
        self._hooks.on_shutdown(hook)
        return hook

    def task(self, queue: str, *, type: str | None = None, **knobs: Unpack[TaskKnobs]) -> TaskDecorator:
        """Decorate the function that handles the jobs of ``queue``: ``()``, ``(payload)`` or ``(payload, ctx)``.

        Several tasks share a queue by their ``type``, which `put` writes into the meta of a job. Raises Invalid where
        an option or the function is not valid, where the task exists already, and where the tasks of a queue contradict
        each other.
        """
        check_named(queue, "@app.task")
        check_topic_name(queue)

        def decorate(handler: Callable[..., Any], /) -> TaskOf[Any, Any, Any]:
            names = sys._getframe(1).f_locals
            task = TaskOf[Any, Any, Any](self, queue, handler, knobs, type=type, names=names)
            self._add(task)
            return task

        return decorate

    def timer(self, topic: str, **knobs: Unpack[Knobs]) -> TimerDecorator:
        """Decorate the function that handles the timers of ``topic``, kept in Redis; otherwise like `task`."""
        check_named(topic, "@app.timer")
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

        It is a task like any other, with a `Tick` as its payload. Of the ticks missed while no worker ran, the latest
        is fired; with ``catch_up``, the latest ``catch_up_max``.
        """
        check_named(queue, "@app.periodic")
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
        return self._clients.on_loop().client

    @property
    def blocking_client(self) -> Client:
        """The app's client for code without a loop."""
        return self._clients.blocking().client

    def new_client(self, *, more_streams: int = 0) -> AsyncClient:
        """Return another client with the same address and key, which the caller closes; ``more_streams`` is added to
        the ``streams_max`` of the settings.

        One with ``more_streams`` holds jobs, so the app's ``node`` gets a suffix that no other process has: the broker
        is told of a process that ended, and would take what the others of its name hold.
        """
        settings = msgspec.structs.replace(self._settings, streams_max=self._settings.streams_max + more_streams)
        node = self._node
        if node is not None and more_streams:
            node = f"{bounded(node, NODE_BYTES_MAX - _SUFFIX_BYTES)}-{secrets.token_hex(4)}"
        return AsyncClient(self.url, key=self._endpoint.key, node=node, settings=settings, tls=self._tls)

    @property
    def timers(self) -> Timers:
        """The app's timers on the running loop. Raises Invalid where it was given no Redis."""
        return self._timers.on_loop().timers

    def new_timers(self) -> OpenTimers:
        """Return other timers with connections of their own, which the caller closes."""
        return self._timers.new()

    async def declare(self, *queues: str) -> None:
        """Create these queues, or all that have tasks, where they are missing; `declare.declare` lists what else
        changes.
        """
        asked = {queue: handler for queue, handler in self._handlers.items() if not isinstance(handler, TimerTask)}
        for queue in queues or tuple(asked):
            await declare(self.client, asked[queue].options)

    async def send(self, put: Put) -> list[int]:
        """Append the records of a put, through the middlewares."""
        return await self._clients.on_loop().send(put, self.middlewares)

    def send_blocking(self, put: Put) -> list[int]:
        """As `send`, through the blocking client."""
        return self._clients.blocking().send(put, self.middlewares)

    async def schedule(self, put: Put, on_conflict: OnConflict = "replace") -> list[Scheduled]:
        """Schedule the timers of a put, through the middlewares."""
        return await self._schedule(self._timers.on_loop(), put, on_conflict)

    def schedule_blocking(self, put: Put, on_conflict: OnConflict = "replace") -> list[Scheduled]:
        """As `schedule`, for code without a loop."""
        return self._timers.run_blocking(lambda opened: self._schedule(opened, put, on_conflict))

    def cancel_blocking(self, topic: str, timer_id: str) -> Cancelled:
        """Cancel a timer, for code without a loop."""
        return self._timers.run_blocking(lambda opened: opened.timers.cancel(topic, timer_id))

    async def _schedule(self, opened: OpenTimers, put: Put, on_conflict: OnConflict) -> list[Scheduled]:
        return await opened.schedule(put, on_conflict, self.middlewares, self.stats)

    def run(
        self, *, queues: Sequence[str] | None = None, concurrency: int | None = None, drain: Duration = "25s"
    ) -> int:
        """Run a worker in this process until SIGTERM or SIGINT, then drain; returns the exit code of `tenure worker`.

        ``queues`` limits it to those queues; ``concurrency`` bounds all tasks together. Call it below
        ``if __name__ == "__main__":``. Raises Invalid, Conflict or Denied where the queues cannot be used.
        """
        from tenure.worker.runtime.worker import run_app

        return run_app(self, queues=queues, concurrency=concurrency, drain_ms=ms_of(drain, field="drain"))

    async def close(self, *, deadline_ms: int | None = None) -> None:
        """Send pending puts and close the clients; the next use opens them again.

        After ``deadline_ms``, and where this is cancelled, puts without an answer raise Closed or Indeterminate.
        """
        try:
            await self._clients.close(deadline_ms=deadline_ms)
        finally:
            await self._timers.close()

    @asynccontextmanager
    async def through(
        self, client: AsyncClient, blocking_client: Client, *, timers: Timers | None = None
    ) -> AsyncIterator[None]:
        """Use these clients within the block, and close them at its end; for tests."""
        async with self._clients.through(client, blocking_client), self._timers.through(timers):
            yield

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
        self._clients.close_blocking()
        self._timers.close_blocking()

    def _new_blocking_client(self) -> Client:
        return Client(self.url, key=self._endpoint.key, node=self._node, settings=self._settings, tls=self._tls)

    def _add(self, task: Handler[Any]) -> None:
        if sum(len(handler.tasks) for handler in self._handlers.values()) >= TASKS_MAX:
            raise Invalid(f"an app has at most {TASKS_MAX} tasks", field="queue")
        known = self._handlers.get(task.queue)
        if known is None and (not isinstance(task, Task) or task.type is None):
            self._handlers[task.queue] = task
        elif isinstance(task, TimerTask) or isinstance(known, TimerTask):
            raise Invalid(f"queue {task.queue!r} has a task already: {known!r}", field="queue")
        else:
            members = [*(() if known is None else known.tasks), task]
            self._handlers[task.queue] = TypedQueue(cast("list[Task[Any]]", members))
