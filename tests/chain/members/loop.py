"""A virtual loop for whole processes: each can be stopped and killed, and has threads in which it may wait.

Every callback and every task belongs to the process in whose context it was made. A stopped process does nothing: what
is due meanwhile is kept, and done when it goes on. Of a killed one only the end of its tasks is run.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from tests.chain.worlds.blocking import blocking, owner
from tests.chain.worlds.loop import VirtualLoop

if TYPE_CHECKING:
    from tests.chain.members.process import Process

__all__ = ["MembersLoop"]

T = TypeVar("T")


class _Due(asyncio.Handle):
    """A callback of a process; that of a dead one is run, so that its tasks end."""

    def _run(self) -> None:
        process = _process(self)
        if process is None or process.is_dead or not process.is_stopped:
            super()._run()
        else:
            process.parked.append(self)


class _DueTimer(asyncio.TimerHandle):
    """A timer of a process; it dies with it."""

    def _run(self) -> None:
        process = _process(self)
        if process is None or not (process.is_dead or process.is_stopped):
            super()._run()
        elif not process.is_dead:
            process.parked.append(self)


class MembersLoop(VirtualLoop):
    """A `VirtualLoop` that knows processes."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: WeakKeyDictionary[Executor, asyncio.Lock] = WeakKeyDictionary()
        self.set_task_factory(_make_task)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = _Due(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _DueTimer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def go_on(self, parked: list[asyncio.Handle]) -> None:
        """Make due what was kept while a process was stopped, in the same order."""
        self._ready.extend(parked)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Make the call in a thread, which may wait for the loop; one executor makes one call at a time."""
        return self.create_task(self._in_turn(executor, partial(func, *args)))

    async def _in_turn(self, executor: Executor | None, call: Callable[[], T]) -> T:
        if executor is None:
            return await blocking(call)
        async with self._turns.setdefault(executor, asyncio.Lock()):
            return await blocking(call)


def _process(handle: Any) -> Process | None:
    """Return the process in whose context the callback was made."""
    return handle._context.get(owner)  # type: ignore[no-any-return]


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context, **options)
    process = (copy_context() if context is None else context).get(owner)
    if process is not None:
        process.adopt(task)
    return task
