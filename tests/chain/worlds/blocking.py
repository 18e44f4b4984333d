"""Blocking code beside a virtual loop: it has a stack of its own, and the loop stands still while it runs.

What the code waits for, by ``background().run``, is awaited on the loop. So exactly one of the two runs at any time,
and a seed gives the same course of events as if there were one stack. A greenlet and no thread, as a life makes some
hundred such calls, and to start a thread takes longer than most of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet

__all__ = ["InlineBackground", "Owner", "blocking", "owner"]

T = TypeVar("T")


class Owner(Protocol):
    """The simulated process that a task belongs to, and ends with."""

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task of this process."""


owner: ContextVar[Owner] = ContextVar("owner")


class _Stack:
    """A stack that is left whenever its code waits, and entered again with the answer."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._greenlet = greenlet(partial(copy_context().run, self._run, call))
        self._greenlet.stack = self

    def start(self) -> tuple[str, Any]:
        """Run the code up to its first request, or its end."""
        return self._greenlet.switch()  # type: ignore[no-any-return]

    def answer(self, value: Any, error: BaseException | None) -> tuple[str, Any]:
        """Hand over what the code waits for; return its next request, or its end."""
        return self._greenlet.switch((value, error))  # type: ignore[no-any-return]

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the coroutine awaited on the loop; called on this stack."""
        value, error = self._greenlet.parent.switch(("await", work))
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def _run(self, call: Callable[[], Any]) -> tuple[str, Any]:
        try:
            return "return", call()
        except BaseException as error:
            return "raise", error


def _stack() -> _Stack | None:
    """Return the stack that is run on, None on the loop's."""
    return getattr(getcurrent(), "stack", None)


async def blocking(call: Callable[[], T]) -> T:
    """Run blocking code to its end; a cancellation is raised where the code waits, and wherever it waits after that.

    A process that was killed sends nothing any more, also where its code would still close something.
    """
    stack = _Stack(call)
    killed: asyncio.CancelledError | None = None
    kind, work = stack.start()
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
        kind, work = stack.answer(value, failure)
    if killed is not None:
        raise killed
    if kind == "raise":
        raise work
    return work  # type: ignore[no-any-return]


class InlineBackground:
    """What takes the place of the background loop of the process."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        stack = _stack()
        assert stack is not None, "nothing that blocks is run on the loop"
        return stack.wait_for(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Future[T]:
        """Start the coroutine beside the caller; blocking code, which waits for it next, gets it when it is done."""
        if _stack() is None:
            task = asyncio.get_running_loop().create_task(work)
            owner.get().adopt(task)
            return task
        future: Future[T] = Future()
        try:
            future.set_result(self.run(work))
        except BaseException as error:
            future.set_exception(error)
        return future
