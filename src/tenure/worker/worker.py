"""The process that works at the queues of an app: all runners, the schedule, signals, and the end.

start     declare the queues, as soon as the broker answers; then a runner per task
SIGTERM   take no more, give back what was not begun, let running jobs finish; after `drain_ms` give back the rest
again     give everything back at once
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from tenure.client.client import AsyncClient
from tenure.errors import Closed, Conflict, Indeterminate, Invalid, NotFound, Overloaded, TenureError
from tenure.worker.app import App
from tenure.worker.declare import declare
from tenure.worker.executors import places_for
from tenure.worker.link import Link
from tenure.worker.metrics import MetricsPage
from tenure.worker.pace import Slots
from tenure.worker.periodic import PeriodicLoop
from tenure.worker.runner import Runner
from tenure.worker.settings import WorkerSettings
from tenure.worker.timing import SystemTiming, Timing

__all__ = ["Worker", "run_app"]

log = logging.getLogger("tenure.worker")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs the tasks of an app, or of some of its ``queues``, until `stop`; ``concurrency`` bounds all tasks together.

    Raises Invalid where a queue has no task.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        push: bool = True,
        metrics_port: int | None = None,
        timing: Timing | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.app = app
        self.stats = app.stats
        self._timing = timing or SystemTiming()
        self._settings = settings or WorkerSettings()
        if concurrency is not None:
            self._settings = msgspec.structs.replace(self._settings, concurrency=concurrency)
        self._push = push
        self._metrics_port = metrics_port
        unknown = sorted(set(queues or ()) - set(app.tasks))
        if unknown:
            raise Invalid(f"no task of the app handles {', '.join(unknown)}; it has {', '.join(sorted(app.tasks))}")
        self._tasks = [task for queue, task in app.tasks.items() if not queues or queue in queues]
        if not self._tasks:
            raise Invalid("the app has no tasks: decorate a function with @app.task(queue)")
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Drain and end; asked a second time, at once."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`. Raises Denied, Conflict or Invalid where the queues cannot be worked at."""
        async with AsyncExitStack() as stack:
            # Handlers put through the app's own client, so that they cannot keep heartbeats and acks waiting.
            client = await stack.enter_async_context(self.app.new_client())
            stack.push_async_callback(self.app.close)
            if self._metrics_port is not None:
                stack.callback(MetricsPage(self.stats, port=self._metrics_port).close)
            if await self._declare(client):
                await self._work(client)

    async def _declare(self, client: AsyncClient) -> bool:
        """Make the queues what they have to be, however long the broker takes to be there; False where stopped."""
        link = Link(self.app.url)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            for task in self._tasks:
                failures = 0
                while not self._stopping.is_set():
                    declaring = asyncio.create_task(declare(client, task.options))
                    await asyncio.wait((declaring, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if not declaring.done():
                        declaring.cancel()
                        await asyncio.wait((declaring,))
                        break
                    error = declaring.exception()
                    if error is None:
                        break
                    if not isinstance(error, TenureError) or not _may_pass(error):
                        raise error
                    link.down(task.queue, error)
                    failures += 1
                    await self._pause(failures, stopping)
            return not self._stopping.is_set()
        finally:
            stopping.cancel()

    async def _pause(self, failures: int, stopping: asyncio.Task[bool]) -> None:
        bound_ms = min(self._settings.reconnect_min_ms * 2.0 ** min(failures, 32), self._settings.reconnect_max_ms)
        sleeper = asyncio.ensure_future(self._timing.sleep_ms(random.uniform(0, bound_ms)))
        await asyncio.wait((sleeper, stopping), return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()

    async def _work(self, client: AsyncClient) -> None:
        slots, link = Slots(self._settings.concurrency), Link(self.app.url)
        runners = [
            Runner(
                task,
                client=client,
                timing=self._timing,
                settings=self._settings,
                stats=self.stats.queue(task.queue),
                slots=slots,
                link=link,
                places=places_for(task, timing=self._timing, settings=self._settings),
                middlewares=self.app.middlewares,
                push=self._push,
            )
            for task in self._tasks
        ]
        schedule = asyncio.create_task(PeriodicLoop(self.app, client, self._timing, stats=self.stats).run())
        try:
            for runner in runners:
                runner.start()
            await self._stopping.wait()
            log.info("stopping: running jobs may finish within %d ms", self._settings.drain_ms)
        finally:
            schedule.cancel()
            await asyncio.wait((schedule,))
            await asyncio.gather(*(runner.drain(self._hurry) for runner in runners))
        log.info("stopped")


def _may_pass(error: TenureError) -> bool:
    """Whether the broker may do later what it could not do now."""
    lasting = isinstance(error, Invalid | Conflict | NotFound)
    return isinstance(error, Overloaded | Closed | Indeterminate) or (type(error) is TenureError and not lasting)


def run_app(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
    drain_ms: int | None = None,
    push: bool = True,
    metrics_port: int | None = None,
    settings: WorkerSettings | None = None,
) -> int:
    """Be a worker process until SIGTERM or SIGINT; returns the exit code. Raises what `Worker` and its `run` raise."""
    if drain_ms is not None:
        settings = msgspec.structs.replace(settings or WorkerSettings(), drain_ms=drain_ms)

    async def work() -> None:
        worker = Worker(
            app, queues=queues, concurrency=concurrency, push=push, metrics_port=metrics_port, settings=settings
        )
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, worker.stop)
        try:
            await worker.run()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(work())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work())
    return 0
