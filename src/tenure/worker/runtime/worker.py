"""`Worker`: the worker process of an app: its runners, its schedules, signals and the drain.

start     say hello to the broker, which reports the death of the process before this one; run the startup hooks
          declare each queue as soon as the broker answers; then start its runner, and its schedule if it has one
SIGTERM   take no more jobs, give back those not begun, let running ones finish; after `drain_ms` give back the rest
          then run the shutdown hooks
again     give all jobs back at once
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import msgspec
import uvloop

from tenure.backoff import backoff_ms
from tenure.errors import Closed, Indeterminate, Invalid, Overloaded
from tenure.worker.app import App
from tenure.worker.backends.backend import Backend
from tenure.worker.backends.open import OpenBackend, open_backends
from tenure.worker.observing.loop_watch import LoopWatch
from tenure.worker.observing.status_page import LoopHealth, StatusPage
from tenure.worker.periodic import OneSchedule, PeriodicLoop
from tenure.worker.processes import importing
from tenure.worker.processes.board import Board, Places
from tenure.worker.processes.executors import executor_for
from tenure.worker.processes.place import Place
from tenure.worker.runtime.entry import Entry
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.hello import Hello
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.pace import Slots
from tenure.worker.runtime.runner import Runner
from tenure.worker.runtime.suspects import SuspectNotices, SuspectSlots
from tenure.worker.runtime.timing import SystemTiming, Timing, end, unless
from tenure.worker.settings import WorkerSettings
from tenure.worker.timer import TimerTask

__all__ = ["Worker", "run_app"]

log = logging.getLogger("tenure.worker")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NAMES_SHOWN_MAX: Final = 5
_LEAVE_S: Final = 0.5
"""How long tasks that outlived the drain have to end; their jobs were given back."""


class Worker:
    """Runs the tasks of an app, or of some of its ``queues``, until `stop`; ``concurrency`` bounds all tasks together.

    ``place`` is that under a supervisor. With ``suspects`` it runs only jobs whose worker was lost, a few at once, and
    no schedules.

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
        metrics_host: str = "127.0.0.1",
        timing: Timing | None = None,
        settings: WorkerSettings | None = None,
        place: Place | None = None,
        suspects: bool = False,
    ) -> None:
        self.app = app
        self.stats = app.stats
        self._timing = timing or SystemTiming()
        self._settings = settings or WorkerSettings()
        if concurrency is not None:
            self._settings = msgspec.structs.replace(self._settings, concurrency=concurrency)
        if suspects:
            count_max = self._settings.concurrency_of(self._settings.suspects_max)
            self._settings = msgspec.structs.replace(self._settings, concurrency=count_max, suspects_max=count_max)
        self._place = place
        self._push = push
        self._metrics_port = metrics_port
        self._metrics_host = metrics_host
        self._backends: dict[str, Backend] = {}
        self._is_started = False
        unknown = sorted(set(queues or ()) - set(app.handlers))
        if unknown:
            raise Invalid(f"no task of the app handles {', '.join(unknown)}; it has {', '.join(sorted(app.handlers))}")
        self._tasks = [task for queue, task in app.handlers.items() if not queues or queue in queues]
        if not self._tasks:
            raise Invalid("the app has no tasks: decorate a function with @app.task(queue)")
        if suspects and all(isinstance(task, TimerTask) for task in self._tasks):
            raise Invalid("the app has only timers, and no timer is a suspect: leave out --suspects")
        self._suspects = SuspectSlots(timing=self._timing, settings=self._settings) if suspects else None
        self._slots = self._suspects or Slots(self._settings.concurrency)
        self._notices = SuspectNotices(
            None if place is None else place.notices, timing=self._timing, settings=self._settings
        )
        self._runners: list[Runner] = []
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Drain and end; a second call ends at once."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`. Raises StartupFailed, and Denied, Conflict or Invalid where the queues cannot be worked
        at.
        """
        async with AsyncExitStack() as stack:
            group = None if self._place is None else self._place.group
            opened = await stack.enter_async_context(
                open_backends(self.app, self._tasks, push=self._push, group=group, suspects=self._suspects is not None)
            )
            stack.push_async_callback(self._close_app)
            if self._metrics_port is not None:
                stack.callback(self._page(self._metrics_port).close)
            self._backends = {task.queue: backend for server in opened for task, backend in server.tasks}
            entries = [self._entry(server) for server in opened]
            for entry in entries:
                stack.push_async_callback(entry.close)
            if await self._start_up():
                stack.push_async_callback(self._shut_down)
                await self._work(entries)

    def _entry(self, server: OpenBackend) -> Entry:
        hold_ms = 0 if self._place is None else self._place.hold_ms
        return Entry(server, self._hello(server), self._timing, hold_ms=hold_ms)

    def _hello(self, server: OpenBackend) -> Hello | None:
        if server.client is None:
            return None
        place = self._place
        return Hello(
            server.client,
            {task.queue: self._settings.concurrency_of(task.options.concurrency) for task, _ in server.tasks},
            link=server.link,
            board=None if place is None else Board(place.board),
            group=None if place is None else place.group,
            timing=self._timing,
            settings=self._settings,
            on_suspects=self._hear_suspects,
        )

    def _hear_suspects(self, queue: str, count: int) -> None:
        (self._suspects or self._notices).hear(queue, count)

    async def _start_up(self) -> bool:
        """Run the startup hooks; False where the worker was stopped before they ended."""
        self._is_started = await unless(self._stopping, self.app.hooks.start(self._timing, self._settings.startup_ms))
        return self._is_started

    def _page(self, port: int) -> StatusPage:
        settings = self._settings
        return StatusPage(
            self.stats,
            LoopHealth(self.why_not_ready, answer_ms=settings.probe_ms),
            port=port,
            host=self._metrics_host,
            connections_max=settings.page_connections_max,
        )

    def why_not_ready(self) -> str | None:
        """Return what keeps this worker from taking jobs; None while it takes them from every queue."""
        if self._stopping.is_set():
            return "draining"
        if not self._is_started:
            return "starting"
        away = sorted(queue for queue, backend in self._backends.items() if not backend.link.is_up(queue))
        if away:
            return f"no jobs come from {_some(away)}"
        unable = sorted(runner.queue for runner in self._runners if not runner.is_able)
        return f"no process starts for {_some(unable)}" if unable else None

    async def _shut_down(self) -> None:
        """Run the shutdown hooks, until a second stop; the app can still put."""
        await unless(self._hurry, self.app.hooks.stop(self._timing, self._settings.shutdown_ms))

    async def _close_app(self) -> None:
        """Send the puts of handlers within ``flush_ms``, until a second stop."""
        await unless(self._hurry, self.app.close(deadline_ms=self._settings.flush_ms))

    async def _work(self, entries: Sequence[Entry]) -> None:
        serving = [asyncio.create_task(part) for entry in entries for part in self._parts(entry)]
        if self._suspects is not None:
            serving.append(asyncio.create_task(self._suspects.return_overdue()))
            if self._place is not None and self._place.on_demand:
                serving.append(asyncio.create_task(self._suspects.until_idle()))
        watch = self._watch_loop()
        try:
            await self._until_stopped(serving)
            log.info("stopping: running jobs may finish within %d ms", self._settings.drain_ms)
        finally:
            await asyncio.gather(*map(end, serving))
            await asyncio.gather(*(runner.drain(self._hurry) for runner in self._runners))
            for entry in entries:
                entry.leave()
            watch.close()
        log.info("stopped")

    def _watch_loop(self) -> LoopWatch:
        blocked_ms = self._settings.loop_blocked_ms
        third_ms = min(task.options.lease_ms for task in self._tasks) // 3
        return LoopWatch(self._job_of, limit_ms=min(blocked_ms, third_ms), every_ms=blocked_ms)

    def _job_of(self, task: asyncio.Task[object]) -> HeldJob | None:
        """Return the job that a task runs; in any thread."""
        return next((job for runner in self._runners if (job := runner.job_of(task)) is not None), None)

    def _parts(self, entry: Entry) -> list[Coroutine[Any, Any, None]]:
        """Return the work on one server, one coroutine per task or schedule: a queue that cannot be reached delays no
        other. Schedules run also where another worker handles their jobs.
        """
        tasks = entry.server.tasks
        schedules = {} if self._suspects else self._schedules(entry.server)
        parts = [self._serve(task, backend, entry, schedules.pop(task.queue, None)) for task, backend in tasks]
        return parts + [schedule.run() for schedule in schedules.values()]

    def _schedules(self, server: OpenBackend) -> dict[str, PeriodicLoop]:
        """Return a loop for each schedule of the app, by queue; empty for a Redis."""
        client = server.client
        if client is None:
            return {}
        return {
            queue: PeriodicLoop(OneSchedule({queue: periodic}), client, self._timing, stats=self.stats)
            for queue, periodic in self.app.periodics.items()
        }

    async def _serve(self, task: Handler[Any], backend: Backend, entry: Entry, schedule: PeriodicLoop | None) -> None:
        """Run one task, as soon as its queue is declared and jobs may be taken.

        No part ends by itself: a bug that ends one ends the worker, with its error raised and its jobs given back.
        """
        await self._declare(task, backend)
        runner = self._runner(task, backend, await entry.places(task.queue))
        self._runners.append(runner)
        ticking = [] if schedule is None else [asyncio.create_task(schedule.run())]
        try:
            done, _ = await asyncio.wait(runner.start() + ticking, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            await asyncio.gather(*map(end, ticking))

    async def _declare(self, task: Handler[Any], backend: Backend) -> None:
        """Declare the queue, and retry until the backend answers."""
        failures = 0
        while True:
            try:
                return await backend.declare()
            except (Overloaded, Closed, Indeterminate) as error:
                backend.link.down(task.queue, error)
            failures += 1
            min_ms, max_ms = self._settings.reconnect_min_ms, self._settings.reconnect_max_ms
            await self._timing.sleep_ms(backoff_ms(failures, min_ms=min_ms, max_ms=max_ms))

    def _runner(self, task: Handler[Any], backend: Backend, places: Places | None) -> Runner:
        return Runner(
            task,
            backend=backend,
            timing=self._timing,
            settings=self._settings,
            stats=self.stats.queue(task.queue),
            slots=self._slots,
            executor=executor_for(task, self.app, timing=self._timing, settings=self._settings),
            middlewares=self.app.middlewares,
            places=places,
            hear_suspects=partial(self._hear_suspects, task.queue),
        )

    async def _until_stopped(self, serving: list[asyncio.Task[None]]) -> None:
        """Wait until `stop`, or until a part fails, whose error is raised."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait((stopping, *serving), return_when=asyncio.FIRST_COMPLETED)
            for part in done - {stopping}:
                part.result()
        finally:
            stopping.cancel()


def _some(names: Sequence[str]) -> str:
    """Format the first few names, and the count of the others."""
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def run_app(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
    drain_ms: int | None = None,
    push: bool = True,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    settings: WorkerSettings | None = None,
    place: Place | None = None,
    suspects: bool = False,
) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; returns the exit code. Raises what `Worker.run` raises."""
    if importing.in_child:
        raise Invalid('the module starts a worker when it is imported: say `if __name__ == "__main__":` before that')
    if drain_ms is not None:
        settings = msgspec.structs.replace(settings or WorkerSettings(), drain_ms=drain_ms)

    async def work() -> None:
        worker = Worker(
            app,
            queues=queues,
            concurrency=concurrency,
            push=push,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            settings=settings,
            place=place,
            suspects=suspects,
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
    """Run as asyncio.run does, but end after ``_LEAVE_S``: a handler that ignores its cancel must not
    keep the process.
    """
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
