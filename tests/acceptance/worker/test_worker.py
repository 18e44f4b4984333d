"""The process around the runners: scripts, names, reload, and what it says when it cannot work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure import Conflict, Invalid
from tenure.worker.app import App
from tenure.worker.processes.importing import name_of
from tenure.worker.runtime.worker import Worker, run_app
from tests.acceptance.worker.working import Work, until
from tests.kit.restartable_server import PATIENCE_S

SCRIPT = """
import os
from pathlib import Path
from tenure.worker.app import App

app = App(os.environ["WORK_URL"])

@app.task("script", {knobs})
def note(text: str) -> None:
    with open(os.environ["WORK_JOURNAL"], "a") as file:
        file.write("{greeting} " + text + "\\n")

{start}
"""
TALKING = """
import os
from tenure import App, Context

app = App(os.environ["WORK_URL"])

@app.task("script", run="process", concurrency=1)
def talk(text: str, ctx: Context) -> None:
    ctx.logger.info(text)
    print(text.upper())
"""
WAITING = """
import asyncio, os
from tenure import App

app = App(os.environ["WORK_URL"])

@app.task("script")
async def wait(text: str) -> None:
    with open(os.environ["WORK_JOURNAL"], "a") as file:
        file.write(text + "\\n")
    await asyncio.sleep(3_600)
"""
GUARDED = 'if __name__ == "__main__":\n    raise SystemExit(app.run())'


@contextmanager
def running(work: Work, *command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside the server, stopped at the end by its id."""
    environment = {**os.environ, "WORK_URL": work.server.address, "WORK_JOURNAL": str(work.journal.path)}
    environment.pop("PYTHONUNBUFFERED", None)
    log = work.directory / "log"
    with log.open("wb") as both:
        process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, stdout=both, stderr=both)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()


def put(work: Work, text: str) -> None:
    record = {"records": [{"data": text}], "config": {"type": "queue"}}
    work.server.ok("POST", "/v0/topics/script", record)


def wait_for(work: Work, text: str) -> None:
    until(lambda: work.journal.path.exists() and text in work.journal.path.read_text(), f"{text!r} is written down")


@pytest.mark.parametrize("run", ["thread", "process"])
def test_a_script_runs_its_own_app(work: Work, run: str) -> None:
    script = work.directory / "script_of_its_own.py"
    script.write_text(SCRIPT.format(knobs=f"run={run!r}, concurrency=1", greeting="hello", start=GUARDED))
    put(work, "you")
    with running(work, str(script), folder=work.directory.parent) as process:
        wait_for(work, "hello you")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_script_that_starts_a_worker_when_it_is_imported_hears_what_to_write(work: Work) -> None:
    """A child imports the module: without the guard it would become a worker itself."""
    script = work.directory / "unguarded_script.py"
    script.write_text(SCRIPT.format(knobs='run="process", concurrency=1', greeting="hello", start="app.run()"))
    with running(work, str(script), folder=work.directory):
        until(lambda: "if __name__ ==" in (work.directory / "log").read_text(), "it says so")


def test_a_change_starts_the_worker_anew(work: Work) -> None:
    pytest.importorskip("watchfiles")
    script = work.directory / "reloaded_script.py"
    script.write_text(SCRIPT.format(knobs="", greeting="hello", start=GUARDED))
    code = (
        "import sys; from tenure.worker.processes.reload import run_reloading; "
        "sys.exit(run_reloading(['reloaded_script.py']))"
    )
    with running(work, "-c", code, folder=work.directory) as process:
        put(work, "you")
        wait_for(work, "hello you")
        script.write_text(SCRIPT.format(knobs="", greeting="good bye", start=GUARDED))
        for number in range(1_000):
            put(work, f"again {number}")
            if "good bye" in work.journal.path.read_text():
                break
        wait_for(work, "good bye")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_second_signal_ends_a_worker_that_is_reloaded_at_once(work: Work) -> None:
    pytest.importorskip("watchfiles")
    (work.directory / "waiting.py").write_text(WAITING)
    put(work, "begun")
    command = ("-m", "tenure.cli.main", "worker", "waiting:app", "--reload", "--drain", "1h")
    with running(work, *command, folder=work.directory) as process:
        wait_for(work, "begun")
        process.send_signal(signal.SIGINT)
        until(lambda: "stopping" in (work.directory / "log").read_text(), "it drains")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_handler_in_a_process_logs_as_its_worker_does_and_may_print(work: Work) -> None:
    (work.directory / "talking.py").write_text(TALKING)
    put(work, "hello")
    with running(work, "-m", "tenure.cli.main", "worker", "talking:app", "--log-format", "json", folder=work.directory):
        until(lambda: "hello" in (work.directory / "log").read_text(), "it is logged")
        until(lambda: work.server.is_done("script"), "it is done")
    said = [json.loads(line) for line in (work.directory / "log").read_text().splitlines() if "hello" in line]
    assert [(line["level"], line["queue"], line["seq"]) for line in said] == [("info", "script", 1)]
    assert "HELLO" in (work.directory / "log").read_text()


def test_an_app_within_a_function_cannot_have_processes() -> None:
    with pytest.raises(Invalid, match="keep it in a variable of a module"):
        name_of(App())


async def test_a_worker_names_the_queues_that_have_no_task() -> None:
    app = App()

    @app.task("mail")
    async def mail() -> None: ...

    with pytest.raises(Invalid, match="no task of the app handles post; it has mail"):
        Worker(app, queues=["mail", "post"])
    with pytest.raises(Invalid, match="the app has no tasks"):
        Worker(App())


def test_a_worker_does_not_work_at_a_log(work: Work) -> None:
    app = App(work.server.address)

    @app.task("records")
    async def records() -> None: ...

    work.server.ok("PUT", "/v0/topics/records", {"type": "log"})
    with pytest.raises(Conflict, match="is a log"):
        run_app(app)


async def test_a_worker_of_two_hundred_tasks_has_room_for_their_jobs_and_verdicts(work: Work) -> None:
    """Each task has a connection that waits for jobs, and none of them may keep the others waiting."""
    app = App(work.server.address)
    handled: list[str] = []

    async def note(text: str) -> None:
        handled.append(text)

    tasks = [app.task(f"task-{number}")(note) for number in range(200)]
    worker = Worker(app)
    working = asyncio.create_task(worker.run())
    await app.declare(tasks[0].queue, tasks[-1].queue)
    await tasks[0].put("first")
    await tasks[-1].put("last")
    async with asyncio.timeout(PATIENCE_S):
        while sorted(handled) != ["first", "last"]:
            await asyncio.sleep(0.01)
    worker.stop()
    await working
    assert not any(work.server.counts(task.queue)[1] for task in (tasks[0], tasks[-1]))
