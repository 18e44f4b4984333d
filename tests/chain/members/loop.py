"""A virtual loop for whole processes: each can be stopped and killed, and has threads in which it may wait.

Every callback and every task belongs to the process in whose context it was made. A stopped process does nothing: what
is due meanwhile is kept, and done when it goes on. Of a killed one only the end of its tasks is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from tests.chain.worlds.blocking import blocking, owner
from tests.chain.worlds.loop import VirtualLoop

if TYPE_CHECKING:
    from tests.chain.members.process import Process

__all__ = ["MembersLoop", "Parked"]

T = TypeVar("T")
Call = Callable[[], object]
Parked = tuple[asyncio.Handle, Call, Context, bool]
"""A callback that is due: its handle, the call, its context, and whether it is a timer."""


class MembersLoop(VirtualLoop):
    """A `VirtualLoop` that knows processes."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: WeakKeyDictionary[Executor, asyncio.Lock] = WeakKeyDictionary()
        self.set_task_factory(_make_task)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return self._soon(partial(callback, *args), copy_context() if context is None else context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call, context = partial(callback, *args), copy_context() if context is None else context
        cell: list[asyncio.Handle] = []
        handle = super().call_at(when, self._run, cell, call, context, True, context=context)
        cell.append(handle)
        return handle

    def _soon(self, call: Call, context: Context) -> asyncio.Handle:
        cell: list[asyncio.Handle] = []
        handle = super().call_soon(self._run, cell, call, context, False, context=context)
        cell.append(handle)
        return handle

    def _run(self, cell: list[asyncio.Handle], call: Call, context: Context, is_timer: bool) -> None:
        process = cast("Process | None", owner.get(None))
        if process is None:
            call()
        elif process.is_dead:
            if not is_timer:
                call()
        elif process.is_stopped:
            process.parked.append((cell[0], call, context, is_timer))
        else:
            call()

    def go_on(self, parked: list[Parked]) -> None:
        """Make due what was kept while a process was stopped, in the same order."""
        for handle, call, context, is_timer in parked:
            if not handle.cancelled():
                cell = [handle]
                super().call_soon(self._run, cell, call, context, is_timer, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Make the call in a thread, which may wait for the loop; one executor makes one call at a time."""
        return self.create_task(self._in_turn(executor, partial(func, *args)))

    async def _in_turn(self, executor: Executor | None, call: Callable[[], T]) -> T:
        if executor is None:
            return await blocking(call)
        async with self._turns.setdefault(executor, asyncio.Lock()):
            return await blocking(call)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context, **options)
    process = (copy_context() if context is None else context).get(owner)
    if process is not None:
        process.adopt(task)
    return task
