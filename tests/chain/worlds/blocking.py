"""Blocking code beside a virtual loop: it runs in a thread, and the loop stands still meanwhile.

What the code waits for, by ``background().run``, is awaited on the loop. So exactly one of the two runs at any time,
and a seed gives the same course of events as if there were no thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

__all__ = ["InlineBackground", "Owner", "blocking", "owner"]

T = TypeVar("T")


class Owner(Protocol):
    """The simulated process that a task belongs to, and ends with."""

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task of this process."""


owner: ContextVar[Owner] = ContextVar("owner")
_here = threading.local()


class _Thread:
    """A thread that stops whenever it waits, and goes on when it is handed the answer."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._requests: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, call), daemon=True)

    def start(self) -> tuple[str, Any]:
        self._thread.start()
        return self._requests.get()

    def answer(self, value: Any, error: BaseException | None) -> tuple[str, Any]:
        """Hand over what the thread waits for; return its next request, or its end."""
        self._answers.put((value, error))
        return self._requests.get()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the coroutine awaited on the loop; called in the thread."""
        self._requests.put(("await", work))
        value, error = self._answers.get()
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def join(self) -> None:
        self._thread.join()

    def _run(self, call: Callable[[], Any]) -> None:
        _here.thread = self
        try:
            result = call()
        except BaseException as error:
            self._requests.put(("raise", error))
        else:
            self._requests.put(("return", result))


async def blocking(call: Callable[[], T]) -> T:
    """Run blocking code to its end; a cancellation is raised where the code waits, and wherever it waits after that.

    A process that was killed sends nothing any more, also where its code would still close something.
    """
    thread = _Thread(call)
    killed: asyncio.CancelledError | None = None
    kind, work = thread.start()
    while kind == "await":
        value: Any = None
        failure: BaseException | None = killed
        if killed is not None:
            work.close()
        else:
            try:
                value = await work
            except asyncio.CancelledError as error:
                failure = killed = error
            except BaseException as error:
                failure = error
        kind, work = thread.answer(value, failure)
    thread.join()
    if killed is not None:
        raise killed
    if kind == "raise":
        raise work
    return work  # type: ignore[no-any-return]


class InlineBackground:
    """What takes the place of the background loop of the process."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return _here.thread.wait_for(work)  # type: ignore[no-any-return]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Future[T]:
        """Start the coroutine beside the caller; blocking code, which waits for it next, gets it when it is done."""
        if not hasattr(_here, "thread"):
            task = asyncio.get_running_loop().create_task(work)
            owner.get().adopt(task)
            return task
        future: Future[T] = Future()
        try:
            future.set_result(self.run(work))
        except BaseException as error:
            future.set_exception(error)
        return future
