"""`App`: the tasks of a program by queue, the clients they put through, and what they ask of their queues."""

from __future__ import annotations

import asyncio
import ssl
import sys
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
from tenure.worker.metrics import Stats
from tenure.worker.middleware import Middleware, Put
from tenure.worker.options import TaskKnobs
from tenure.worker.periodic import Periodic, Tick
from tenure.worker.sending import AsyncSending, BlockingSending
from tenure.worker.task import Task, TaskOf

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["App", "TaskDecorator"]

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


class App:
    """Tasks, and the broker they work with.

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
        self._tasks: dict[str, Task[Any]] = {}
        self._periodics: dict[str, Periodic] = {}
        self._sending: AsyncSending | None = None
        self._blocking: BlockingSending | None = None

    @property
    def tasks(self) -> MappingProxyType[str, Task[Any]]:
        """The tasks by queue."""
        return MappingProxyType(self._tasks)

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

    async def declare(self, *queues: str) -> None:
        """Create what is missing of the queues of these tasks, or of all; `declare.declare` says what else changes."""
        for queue in queues or tuple(self._tasks):
            await declare(self.client, self._tasks[queue].options)

    async def send(self, put: Put) -> list[int]:
        """Append what a task puts, through the middlewares."""
        return await self._on_loop().send(put, self.middlewares)

    def send_blocking(self, put: Put) -> list[int]:
        """The same through the blocking client."""
        return self._without_loop().send(put, self.middlewares)

    def run(
        self, *, queues: Sequence[str] | None = None, concurrency: int | None = None, drain: Duration = "25s"
    ) -> int:
        """Be a worker process until SIGTERM or SIGINT, then drain; returns the exit code. So does `tenure worker`.

        Only ``queues`` where they are given; ``concurrency`` bounds all tasks together. Write it below
        ``if __name__ == "__main__":``. Raises Invalid, Conflict or Denied where the queues cannot be worked at.
        """
        from tenure.worker.worker import run_app

        return run_app(self, queues=queues, concurrency=concurrency, drain_ms=ms_of(drain, field="drain"))

    async def close(self) -> None:
        """Send what is pending and close the clients; the next use opens them again."""
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending.close()
        if self._blocking is not None:
            await asyncio.to_thread(self._close_blocking)

    @asynccontextmanager
    async def through(self, client: AsyncClient, blocking_client: Client) -> AsyncIterator[None]:
        """Use these clients for as long as the block runs, and close them at its end; for tests."""
        before = self._sending, self._blocking
        self._sending = AsyncSending(client, asyncio.get_running_loop(), self.stats)
        self._blocking = BlockingSending(blocking_client)
        try:
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

    def _add(self, task: Task[Any]) -> None:
        if task.queue in self._tasks:
            raise Invalid(f"queue {task.queue!r} has a task already: {self._tasks[task.queue]!r}", field="queue")
        if len(self._tasks) >= TASKS_MAX:
            raise Invalid(f"an app has at most {TASKS_MAX} tasks", field="queue")
        self._tasks[task.queue] = task

    def _on_loop(self) -> AsyncSending:
        loop = asyncio.get_running_loop()
        if self._sending is None or self._sending.loop.is_closed():
            self._sending = AsyncSending(self.new_client(), loop, self.stats)
        if self._sending.loop is not loop:
            raise Invalid("the app belongs to another running event loop: from this one, use task.blocking in a thread")
        return self._sending

    def _without_loop(self) -> BlockingSending:
        from tenure.client.client import Client

        if self._blocking is None:
            client = Client(self.url, key=self._key, node=self._node, settings=self._settings, tls=self._tls)
            self._blocking = BlockingSending(client)
        return self._blocking

    def _close_blocking(self) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.client.close()
