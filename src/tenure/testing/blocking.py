"""`BlockingAppTester`: an `AppTester` for tests without an event loop, as in Django and Flask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tenure.durations import Duration
from tenure.testing.app import AppTester, DeadLetter, QueuedJob
from tenure.testing.clock import ManualClock
from tenure.worker.app import App
from tenure.worker.runtime.handler import Handler

__all__ = ["BlockingAppTester"]

T = TypeVar("T")


class BlockingAppTester:
    """The calls of `AppTester` without ``await``. The broker and the handlers run on a loop in a thread of their own;
    the test puts with ``task.blocking.put``.

    >>> from tenure import App
    >>> from tenure.testing import BlockingAppTester
    >>> app = App()
    >>> @app.task("mail")
    ... def send(to: str) -> None:
    ...     print("to", to)
    >>> with BlockingAppTester(app) as tester:
    ...     send.blocking.put("ann"), tester.run_until_idle()
    to ann
    (1, 1)
    """

    def __init__(self, app: App, clock: ManualClock | None = None) -> None:
        self._tester = AppTester(app, clock)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="app-tester", daemon=True)

    @property
    def clock(self) -> ManualClock:
        return self._tester.clock

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._tester.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._tester.__aexit__(kind, error, trace))
        finally:
            self._end()

    def run_until_idle(self, *, jobs_max: int = 10_000) -> int:
        """As `AppTester.run_until_idle`."""
        return self._wait(self._tester.run_until_idle(jobs_max=jobs_max))

    def advance(self, duration: Duration) -> None:
        """Let time pass for the broker and the app alike."""

        async def advance() -> None:
            self._tester.advance(duration)

        self._wait(advance())

    def jobs(self, queue: str | Handler[Any], state: str | None = None) -> list[QueuedJob]:
        """As `AppTester.jobs`."""
        return self._wait(self._tester.jobs(queue, state))

    def dead(self, queue: str | Handler[Any]) -> list[DeadLetter]:
        """As `AppTester.dead`."""
        return self._wait(self._tester.dead(queue))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
