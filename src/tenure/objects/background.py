"""The background event loop of a process, for blocking callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tenure.errors import Invalid

__all__ = ["BackgroundLoop", "background"]

T = TypeVar("T")
_shared: BackgroundLoop | None = None
_making = threading.Lock()


class BackgroundLoop:
    """An event loop in a daemon thread; it belongs to the process that made it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tenure-store", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop, wait for it in this thread, and return its result."""
        if threading.current_thread() is self._thread or self.pid != os.getpid():
            work.close()
            raise Invalid("blocking calls belong in a thread of their own, in the process that opened them")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller must not leave the work running
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the coroutine on the loop and return its future, which another thread may wait for or cancel."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _reset_after_fork() -> None:
    """Reset after a fork: the child has neither the thread nor, perhaps, a thread that will release the lock."""
    global _shared, _making
    _shared, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def background() -> BackgroundLoop:
    """Return this process's background loop, made on first use: a fork makes its own."""
    global _shared
    with _making:
        if _shared is None or _shared.pid != os.getpid():
            _shared = BackgroundLoop()
        return _shared
