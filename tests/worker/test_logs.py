"""What a worker's handlers log, for people and for programs."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tenure.logs import configure
from tenure.testing.app import AppTester
from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.middleware import CallNext, Middleware


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of everything that is ours, left as it was found."""
    ours = logging.getLogger("tenure")
    before = ours.handlers[:], ours.level, ours.propagate
    yield ours
    ours.handlers[:], ours.level, ours.propagate = before


async def lines_of(log_format: str) -> str:
    app, stream = App(), io.StringIO()
    configure(log_format, stream=stream)

    @app.task("mail")
    async def mail(job: str, ctx: Context) -> None:
        ctx.logger.info("sent to %s", job)

    async with AppTester(app) as tester:
        await mail.put("ada")
        await tester.run_until_idle()
    return stream.getvalue()


@pytest.mark.usefixtures("logger")
async def test_a_line_in_json_tells_which_job_it_is_about():
    line = msgspec.json.decode(await lines_of("json"))
    assert {name: line[name] for name in ("logger", "queue", "seq", "attempt")} == {
        "logger": "tenure.task",
        "queue": "mail",
        "seq": 1,
        "attempt": 1,
    }
    assert line["message"].endswith("sent to ada")


@pytest.mark.usefixtures("logger")
async def test_a_line_of_text_begins_with_its_job_and_says_it_once():
    line = await lines_of("text")
    assert line.endswith("mail/1#1 sent to ada\n")
    assert line.count("mail") == 1


async def failure_of(log_format: str, **knobs: Any) -> str:
    """What is logged about a handler that fails in the midst of something else."""
    app, stream = App(middlewares=[Passing()]), io.StringIO()
    configure(log_format, stream=stream, tracebacks=True)

    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    async def on_loop(job: str) -> None:
        fail()

    def in_thread(job: str) -> None:
        fail()

    task = app.task("mail", **knobs)(on_loop if knobs.get("run") == "loop" else in_thread)
    async with AppTester(app) as tester:
        await task.put("ada")
        await tester.run_until_idle()
    return stream.getvalue()


class Passing(Middleware):
    """Adds its own frame between the worker's."""

    async def handle(self, ctx: Context, call_next: CallNext) -> None:
        await call_next()


@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("run", ["loop", "thread"])
async def test_a_handlers_error_is_logged_as_python_shows_it_without_the_workers_frames(run: str):
    told = await failure_of("text", run=run, time_limit="1m")
    assert told.count("Traceback (most recent call last):") == 2, told
    assert "KeyError: 'first'" in told
    assert "The above exception was the direct cause of the following exception:" in told
    assert told.rstrip().endswith("ValueError: second")
    shown = [line.split('"')[1] for line in told.splitlines() if line.startswith('  File "')]
    assert set(shown) == {__file__}, "no frame of the worker's"


@pytest.mark.usefixtures("logger")
async def test_a_handlers_error_in_json_has_its_traceback_in_one_field():
    line = msgspec.json.decode(await failure_of("json", run="loop"))
    assert line["trace"].startswith("Traceback (most recent call last):")
    assert line["trace"].endswith("ValueError: second")
