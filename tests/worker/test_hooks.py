"""Hooks run once per process, in order, within their time; a startup hook that fails ends the worker before any job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest

from tenure.errors import Invalid
from tenure.testing import AppTester, ManualClock, ManualTiming, memory_broker
from tenure.testing.wire import AppWire
from tenure.worker.app import App
from tenure.worker.hooks import HOOKS_MAX, Hooks, StartupFailed
from tenure.worker.runtime.worker import Worker
from tests.worker.one_task import fresh_app
from tests.worker.serving import HoldingWire, MemoryApp, serving
from tests.worker.task_flow import turns


def hooked(app: App, ran: list[str]) -> None:
    """Two pairs of hooks, one async and one plain, and a task."""

    @app.on_startup
    async def open_pool() -> None:
        ran.append("open pool")

    @app.on_startup
    def load_model() -> None:
        assert threading.current_thread() is not threading.main_thread()
        ran.append("load model")

    @app.on_shutdown
    async def close_pool() -> None:
        ran.append("close pool")

    @app.on_shutdown
    def drop_model() -> None:
        ran.append("drop model")

    @app.task("mail")
    async def mail(job: int) -> None:
        ran.append(f"job {job}")


async def test_a_worker_runs_its_hooks_once_around_its_jobs():
    app, ran = MemoryApp(), list[str]()
    hooked(app, ran)
    async with serving(app) as at:
        await at.broker.produce("mail", [b"1"], config={"type": "queue"})
        await at.start()
        await at.until(lambda: "job 1" in ran)
        at.worker.stop()
        await at.until(lambda: ran[-1] == "close pool")
    assert ran == ["open pool", "load model", "job 1", "drop model", "close pool"]


async def test_a_startup_hook_that_fails_ends_the_worker_before_its_first_job():
    app, ran = MemoryApp(), list[str]()
    hooked(app, ran)

    @app.on_startup
    async def connect() -> None:
        raise ConnectionError("no database")

    async with memory_broker(ManualClock()) as broker:
        await broker.produce("mail", [b"1"], config={"type": "queue"})
        app.wire = HoldingWire(AppWire(broker))
        with pytest.raises(
            StartupFailed, match=r"startup hook .*connect failed: ConnectionError: no database"
        ) as failed:
            await Worker(app).run()
        assert isinstance(failed.value.__cause__, ConnectionError)
        assert ran == ["open pool", "load model"], "neither jobs nor shutdown hooks"


async def test_a_worker_that_is_stopped_while_it_starts_ends_without_jobs():
    app, ran = MemoryApp(), list[str]()

    @app.on_startup
    async def hang() -> None:
        ran.append("hang")
        await asyncio.Event().wait()

    hooked(app, ran)
    async with serving(app) as at:
        await at.start()
        await at.until(lambda: ran == ["hang"])
    assert ran == ["hang"]


async def test_a_shutdown_hook_that_fails_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture):
    hooks, ran = Hooks(), list[str]()
    hooks.on_shutdown(lambda: ran.append("first declared"))

    async def fail() -> None:
        raise ValueError("no good")

    hooks.on_shutdown(fail)
    hooks.on_shutdown(lambda: ran.append("last declared"))
    with caplog.at_level(logging.ERROR, "tenure.worker"):
        await hooks.stop(ManualTiming(ManualClock()), 1_000)
    assert ran == ["last declared", "first declared"]
    assert "fail failed: ValueError('no good')" in caplog.text


@pytest.mark.parametrize("plain", [True, False])
async def test_hooks_that_hang_are_left_behind_after_their_time(plain: bool, caplog: pytest.LogCaptureFixture):
    clock, leave = ManualClock(), threading.Event()
    timing, hooks = ManualTiming(clock), Hooks()

    async def hang() -> None:
        await asyncio.Event().wait()

    for add in (hooks.on_startup, hooks.on_shutdown):
        add(leave.wait if plain else hang)
    starting = asyncio.ensure_future(hooks.start(timing, 5_000))
    await turns()
    clock.advance(5_000)
    with pytest.raises(StartupFailed, match="startup took longer than 5000 ms"):
        await starting
    stopping = asyncio.ensure_future(hooks.stop(timing, 5_000))
    await turns()
    clock.advance(5_000)
    await stopping
    assert "the shutdown hook" in caplog.text
    leave.set()


async def test_a_tester_runs_the_hooks_around_its_block():
    app, ran = fresh_app(), list[str]()
    hooked(app, ran)
    async with AppTester(app) as tester:
        await tester.app.tasks["mail"].put(7)
        await tester.run_until_idle()
    assert ran == ["open pool", "load model", "job 7", "drop model", "close pool"]


async def test_a_tester_whose_startup_fails_leaves_nothing_open():
    app = fresh_app()
    app.on_startup(lambda: 1 / 0)
    with pytest.raises(StartupFailed, match="ZeroDivisionError"):
        async with AppTester(app):
            raise AssertionError("not entered")
    assert app._sending is None


def with_argument(app: App) -> None: ...


async def asynchronous_generator() -> Any:
    yield


@contextlib.asynccontextmanager
async def lifespan() -> Any:
    yield


@pytest.mark.parametrize("hook", [with_argument, asynchronous_generator, lifespan, "name", None])
def test_what_cannot_be_a_hook_is_refused(hook: Any):
    app = fresh_app()
    with pytest.raises(Invalid):
        app.on_startup(hook)
    with pytest.raises(Invalid):
        app.on_shutdown(hook)


def test_a_hook_is_still_the_function_and_their_number_is_bounded():
    app = fresh_app()

    def hook() -> None: ...

    assert app.on_startup(hook) is hook
    for _ in range(HOOKS_MAX - 1):
        app.on_startup(hook)
    with pytest.raises(Invalid, match="at most 100 hooks"):
        app.on_startup(hook)
