"""`LoopWatch`: log which handler blocks the event loop, at which line, and for how long.

While it is blocked no heartbeat is sent, so every lease of this process may run out, also those of other queues. A
thread asks the loop for an answer, once a second at most, and looks at the stack of the loop's thread where none comes.
A job costs nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from tenure.worker.observing.reason import place_of
from tenure.worker.runtime.job import HeldJob

__all__ = ["LoopWatch"]

log = logging.getLogger("tenure.worker")

_STOOD_STILL: Final = 2
"""After a wait of so many times its length, the whole process stood still, and the loop gets another chance."""


class LoopWatch:
    """Watches the loop that it is made on, which must answer within ``limit_ms``; asked every ``every_ms``. ``job_of``
    returns the job that an asyncio task runs, and is called in the thread of the watch.
    """

    def __init__(
        self, job_of: Callable[[asyncio.Task[object]], HeldJob | None], *, limit_ms: int, every_ms: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._job_of = job_of
        self._limit_s = limit_ms / 1000
        self._every_s = every_ms / 1000
        self._ending = threading.Event()
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. It is called on the loop, so nothing blocks that any more."""
        self._ending.set()
        self._answered.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self._ask()
            except RuntimeError:  # the loop is closed
                return

    def _ask(self) -> None:
        """Ask the loop for an answer, and log where none comes in time, and again once it comes."""
        self._answered.clear()
        asked_s = time.monotonic()
        self._loop.call_soon_threadsafe(self._answered.set)
        if self._ending.is_set() or self._answers():
            return
        what = self._blocker()
        blocked_ms = (time.monotonic() - asked_s) * 1000
        log.warning(
            "%s has blocked the event loop for %d ms: no lease of this process is renewed meanwhile. Make the handler "
            'a plain function, which runs in a thread, or run="process"',
            *(what, blocked_ms),
        )
        self._answered.wait()
        log.warning("the event loop runs again: %s blocked it for %d ms", what, (time.monotonic() - asked_s) * 1000)

    def _answers(self) -> bool:
        asked_s = time.monotonic()
        if self._answered.wait(self._limit_s):
            return True
        is_late = time.monotonic() - asked_s > _STOOD_STILL * self._limit_s
        return is_late and self._answered.wait(self._limit_s)

    def _blocker(self) -> str:
        """Describe the job that runs, and the line of the user's code where it stands."""
        where = place_of(sys._current_frames().get(self._loop_thread)) or "code outside of any handler"
        task = asyncio.current_task(self._loop)
        job = None if task is None else self._job_of(task)
        return where if job is None else f"job {job.seq} of {job.topic} ({where})"
