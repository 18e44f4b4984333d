"""The thread of the syncs: one piece of work after the other, at less than a thread pool costs.

A caller of a durable write waits for the way to this thread and back, and a fast disk syncs in hardly more time. A
thread pool keeps a future with a lock of its own for each piece, beside that of the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

__all__ = ["SyncThread"]

T = TypeVar("T")
_Work = Callable[[], None]


class SyncThread(Executor):
    """An executor for ``run_in_executor`` of one loop. The thread begins with the first piece of work, and ends with
    `shutdown`, or when nobody has this object any more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call ``fn`` on the thread, after what was submitted before; the future is one of the loop."""
        if self._thread is None:
            self._thread = Thread(target=_run_all, args=(self._line,), name="tenure-sync", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._line.put, None)
        future: asyncio.Future[T] = self._loop.create_future()
        self._line.put(partial(_run, self._loop, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after the work that was submitted; nothing may be submitted after that."""
        if self._thread is not None:
            self._line.put(None)
            if wait:
                self._thread.join()


def _run_all(line: SimpleQueue[_Work | None]) -> None:
    while (work := line.get()) is not None:
        work()
        del work  # or it would keep what it holds alive until the next one


def _run(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], call: Callable[[], T]) -> None:
    try:
        settle: Callable[[], None] = partial(future.set_result, call())
    except BaseException as error:
        settle = partial(future.set_exception, error)
    with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
        loop.call_soon_threadsafe(_settle, future, settle)


def _settle(future: asyncio.Future[T], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()
