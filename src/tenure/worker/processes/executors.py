"""Executors: run a handler on the event loop, in a thread, or in a child process.

Only a coroutine and a process can be stopped. A thread whose job was lost or timed out sees ``ctx.lost`` and runs on:
it counts as stuck until it ends, so that never more threads run than the task's concurrency.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from tenure.worker.context import Context
from tenure.worker.options import Place
from tenure.worker.processes.children import Children
from tenure.worker.processes.importing import name_of
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.timing import Timing
from tenure.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["Executor", "LoopExecutor", "MixedExecutor", "ProcessExecutor", "ThreadExecutor", "executor_for"]

_Work = tuple["contextvars.Context", Callable[[], object], "asyncio.Future[object]"]


class Executor(Protocol):
    """Runs the handlers of one task. ``stuck_count`` of its places are not free: their handler runs on after its job
    was given up, or their process is not ready. ``is_able`` is False while no handler can be run. ``on_change`` is
    called when a place becomes free and when ``is_able`` changes.
    """

    on_change: Callable[[], None]

    @property
    def stuck_count(self) -> int: ...

    @property
    def is_able(self) -> bool: ...

    def run(self, task: Handler[Any], payload: Any, ctx: Context) -> Coroutine[Any, Any, object]:
        """Run the handler and raise what it raised. Cancelling this stops the handler, unless it runs in a thread."""
        ...

    async def close(self) -> None:
        """End the threads and processes, and the handlers that still run in processes."""
        ...


class LoopExecutor:
    """Runs handlers on the event loop."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = _nothing
        self.stuck_count = 0
        self.is_able = True

    def run(self, task: Handler[Any], payload: Any, ctx: Context) -> Coroutine[Any, Any, object]:
        called: Coroutine[Any, Any, object] = task.invoke(payload, ctx)
        return called

    async def close(self) -> None:
        pass


class ThreadExecutor:
    """Runs handlers in at most ``threads_max`` threads, started as they are needed. The threads are daemons: one that
    hangs must not keep the process from ending.
    """

    def __init__(self, threads_max: int, *, name: str) -> None:
        self.on_change: Callable[[], None] = _nothing
        self.stuck_count = 0
        self.is_able = True
        self._threads_max = threads_max
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy_count = 0

    async def run(self, task: Handler[Any], payload: Any, ctx: Context) -> object:
        answer: asyncio.Future[object] = self._loop.create_future()
        if self._busy_count == len(self._threads) < self._threads_max:
            self._add_thread()
        self._busy_count += 1
        self._work.put((contextvars.copy_context(), lambda: task.invoke(payload, ctx), answer))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self.stuck_count += 1
            raise

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            context, call, answer = work
            result: object = None
            error: BaseException | None = None
            try:
                result = context.run(call)
            except BaseException as raised:
                error = raised
            del work, context, call
            with suppress(RuntimeError):  # the loop is closed: the result is not awaited any more
                self._loop.call_soon_threadsafe(self._ended, answer, result, error)

    def _ended(self, answer: asyncio.Future[object], result: object, error: BaseException | None) -> None:
        self._busy_count -= 1
        if answer.cancelled():
            self.stuck_count -= 1
            self.on_change()
        elif isinstance(error, StopIteration):
            answer.set_exception(RuntimeError("the handler raised StopIteration"))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    async def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)


class ProcessExecutor:
    """Runs handlers in child processes, one job each. Cancelling a job kills its child, which is replaced."""

    def __init__(self, app_name: str, count: int, *, timing: Timing, settings: WorkerSettings) -> None:
        self.on_change: Callable[[], None] = _nothing
        self._children = Children(app_name, count, timing=timing, settings=settings, on_change=lambda: self.on_change())

    @property
    def stuck_count(self) -> int:
        return self._children.missing_count

    @property
    def is_able(self) -> bool:
        return self._children.is_able

    async def run(self, task: Handler[Any], payload: Any, ctx: Context) -> object:
        await self._children.run(ctx)
        return None

    async def close(self) -> None:
        await self._children.close()


class MixedExecutor:
    """Executors by task, for tasks that share a queue and run in different ways. It is able only while all of them are,
    because a claim cannot choose the type of its jobs.
    """

    def __init__(self, by_task: Mapping[Handler[Any], Executor]) -> None:
        self.on_change: Callable[[], None] = _nothing
        self._by_task = by_task
        self._parts = list(dict.fromkeys(by_task.values()))
        for part in self._parts:
            part.on_change = self._changed

    def _changed(self) -> None:
        self.on_change()

    @property
    def stuck_count(self) -> int:
        return sum(part.stuck_count for part in self._parts)

    @property
    def is_able(self) -> bool:
        return all(part.is_able for part in self._parts)

    def run(self, task: Handler[Any], payload: Any, ctx: Context) -> Coroutine[Any, Any, object]:
        return self._by_task[task].run(task, payload, ctx)

    async def close(self) -> None:
        for part in self._parts:
            await part.close()


def executor_for(task: Handler[Any], app: App, *, timing: Timing, settings: WorkerSettings) -> Executor:
    """Return the executor of a queue's tasks, by their ``run``. Raises Invalid where one needs processes and its app
    cannot be imported by name.
    """
    concurrency = settings.concurrency_of(task.options.concurrency)
    kinds = dict.fromkeys(member.options.run for member in task.tasks)
    made = {run: _executor(run, app, concurrency, queue=task.queue, timing=timing, settings=settings) for run in kinds}
    if len(made) == 1:
        return next(iter(made.values()))
    return MixedExecutor({member: made[member.options.run] for member in task.tasks})


def _executor(
    run: Place, app: App, concurrency: int, *, queue: str, timing: Timing, settings: WorkerSettings
) -> Executor:
    match run:
        case "loop":
            return LoopExecutor()
        case "thread":
            return ThreadExecutor(concurrency, name=queue)
        case "process":
            return ProcessExecutor(name_of(app), concurrency, timing=timing, settings=settings)


def _nothing() -> None:
    pass
