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
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import uvloop

from tenure.errors import Closed, Indeterminate, Invalid, Overloaded
from tenure.worker import importing
from tenure.worker.app import App
from tenure.worker.executors import places_for
from tenure.worker.handler import Handler
from tenure.worker.keepers import Keeper, opened_keepers
from tenure.worker.metrics import MetricsPage
from tenure.worker.pace import Slots
from tenure.worker.periodic import PeriodicLoop
from tenure.worker.runner import Runner
from tenure.worker.settings import WorkerSettings
from tenure.worker.side import Side
from tenure.worker.timing import SystemTiming, Timing, end

__all__ = ["Worker", "run_app"]

log = logging.getLogger("tenure.worker")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LEAVE_S: Final = 0.5
"""How long what outlived the drain has to end; its jobs were given back."""


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
        unknown = sorted(set(queues or ()) - set(app.handlers))
        if unknown:
            raise Invalid(f"no task of the app handles {', '.join(unknown)}; it has {', '.join(sorted(app.handlers))}")
        self._tasks = [task for queue, task in app.handlers.items() if not queues or queue in queues]
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
            keepers = await stack.enter_async_context(opened_keepers(self.app, self._tasks, push=self._push))
            stack.push_async_callback(self.app.close)
            if self._metrics_port is not None:
                stack.callback(MetricsPage(self.stats, port=self._metrics_port).close)
            await self._work(keepers)

    async def _work(self, keepers: Sequence[Keeper]) -> None:
        slots, runners = Slots(self._settings.concurrency), list[Runner]()
        serving = [asyncio.create_task(self._serve(keeper, slots, runners)) for keeper in keepers]
        try:
            await self._until_stopped(serving)
            log.info("stopping: running jobs may finish within %d ms", self._settings.drain_ms)
        finally:
            await asyncio.gather(*map(end, serving))
            await asyncio.gather(*(runner.drain(self._hurry) for runner in runners))
        log.info("stopped")

    async def _serve(self, keeper: Keeper, slots: Slots, runners: list[Runner]) -> None:
        """Work at what one keeper has, as soon as it answers; one that is away keeps nobody else waiting. None of the
        parts ends by itself: a fault of ours that ends one ends the worker, not in silence but with its jobs given
        back.
        """
        await self._declare(keeper)
        started = [self._runner(task, side, slots) for task, side in keeper.posts]
        runners += started
        parts = [part for runner in started for part in runner.start()]
        schedule = asyncio.create_task(self._keep_schedule(keeper))
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            await end(schedule)

    async def _keep_schedule(self, keeper: Keeper) -> None:
        if keeper.client is not None:
            await PeriodicLoop(self.app, keeper.client, self._timing, stats=self.stats).run()

    async def _declare(self, keeper: Keeper) -> None:
        """Make the queues what they have to be, however long it takes to reach them."""
        for task, side in keeper.posts:
            failures = 0
            while True:
                try:
                    await side.declare()
                    break
                except (Overloaded, Closed, Indeterminate) as error:
                    side.link.down(task.queue, error)
                bound_ms = self._settings.reconnect_min_ms * 2.0 ** min(failures, 32)
                failures += 1
                await self._timing.sleep_ms(random.uniform(0, min(bound_ms, self._settings.reconnect_max_ms)))

    def _runner(self, task: Handler[Any], side: Side, slots: Slots) -> Runner:
        return Runner(
            task,
            side=side,
            timing=self._timing,
            settings=self._settings,
            stats=self.stats.queue(task.queue),
            slots=slots,
            places=places_for(task, self.app, timing=self._timing, settings=self._settings),
            middlewares=self.app.middlewares,
        )

    async def _until_stopped(self, serving: list[asyncio.Task[None]]) -> None:
        """Until `stop`, or until something went wrong, which is raised."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait((stopping, *serving), return_when=asyncio.FIRST_COMPLETED)
            for part in done - {stopping}:
                part.result()
        finally:
            stopping.cancel()


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
    if importing.in_child:
        raise Invalid('the module starts a worker when it is imported: say `if __name__ == "__main__":` before that')
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

    _run(work())
    return 0


def _run(work: Coroutine[Any, Any, None]) -> None:
    """What asyncio.run does, but for its end: a handler that will not be cancelled must not keep a stopped worker."""
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_LEAVE_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
