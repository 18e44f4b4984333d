"""`tenure worker MODULE:APP`: the app is found, works, drains, and what cannot be found is said plainly."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Remote, surroundings

SHOP = """
import logging, tenure
app = tenure.App({url!r})
other = 7

@app.task({queue!r})
async def handle(job: dict) -> None:
    logging.getLogger("shop").info("mine")
    print("handled", job["n"], flush=True)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, remote: Remote) -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [COMMAND, "worker", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings(PYTHONUNBUFFERED="1", **environment),
        )
        children.append(child)
        return child

    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
    # Workers outlive a supervisor that is killed, until they have drained; they hold its pipes.
    for pid in living_in(tmp_path):
        os.kill(pid, signal.SIGKILL)
    for child in children:
        child.communicate(timeout=60)


def living_in(folder: Path) -> list[int]:
    """The processes that run in a folder, which is that of one test."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append(int(process.name))
    return found


def write(folder: Path, remote: Remote, queue: str) -> None:
    (folder / "shop.py").write_text(SHOP.format(url=remote.url, queue=queue))


@pytest.mark.parametrize("flags", [(), ("--no-push", "--concurrency", "2", "--drain", "1s", "--log-format", "json")])
def test_it_works_at_the_apps_queues_and_drains_on_sigterm(
    tmp_path: Path, remote: Remote, queue: str, start: Start, flags: tuple[str, ...]
):
    write(tmp_path, remote, queue)
    remote.ok("put", queue, '{"n": 1}')
    child = start("shop:app", *flags)
    assert child.stdout is not None
    assert child.stdout.readline() == "handled 1\n"
    remote.ok("put", queue, '{"n": 2}')
    assert child.stdout.readline() == "handled 2\n"
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "Traceback" not in said
    assert "stopped" in said
    assert "mine" in said, "what a handler logs is shown"
    assert remote.json("inspect", queue)["count"] == 0


def test_only_the_queues_named_are_worked_at(tmp_path: Path, remote: Remote, queue: str, start: Start):
    write(tmp_path, remote, queue)
    child = start("shop:app", "--queues", f"{queue},nobody")
    _, said = child.communicate(timeout=60)
    assert child.returncode == 2
    assert said.startswith("tenure: no task of the app handles nobody")


@pytest.mark.parametrize(
    ("spec", "code", "part"),
    [
        ("nowhere:app", 2, "no module 'nowhere' in "),
        ("shop.jobs:app", 2, "no module 'shop.jobs' in "),
        ("shop:missing", 2, "module 'shop' has no 'missing'; it has shop:app"),
        ("shop:other", 2, "'shop:other' is int, not a tenure.App; it has shop:app"),
        ("./shop.py", 2, "say shop:app"),
        ("", 2, "written like shop.jobs:app"),
        ("quits:app", 2, "left the program while it was imported (exit 5)"),
    ],
)
def test_an_app_that_cannot_be_found_is_one_line(
    tmp_path: Path, remote: Remote, queue: str, start: Start, spec: str, code: int, part: str
):
    write(tmp_path, remote, queue)
    (tmp_path / "quits.py").write_text("raise SystemExit(5)")
    child = start(spec)
    out, said = child.communicate(timeout=60)
    assert (child.returncode, out, said.count("\n")) == (code, "", 1), said
    assert part in said


@pytest.mark.parametrize(
    ("source", "last"),
    [
        ("def fail():\n    return 1 / 0\n\nfail()\n", "ZeroDivisionError: division by zero"),
        ("import not_installed\n", "ModuleNotFoundError: No module named 'not_installed'"),
        ("x = (\n", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_module_that_fails_shows_the_lines_of_its_own_code(tmp_path: Path, start: Start, source: str, last: str):
    (tmp_path / "bad.py").write_text(source)
    child = start("bad:app")
    _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    assert 'bad.py", line' in said
    assert last in said
    assert "importlib" not in said
    assert "tenure/cli" not in said
    assert said.splitlines()[-1] == "tenure: bad:app could not be imported: the lines above are from its own module"


@pytest.mark.parametrize(
    "flags",
    [
        ("--log-level", "loud"),
        ("--log-format", "xml"),
        ("--drain", "soon"),
        ("--processes", "0"),
        ("--metrics-host", "::1"),
    ],
)
def test_wrong_flags_are_wrong_usage(tmp_path: Path, remote: Remote, queue: str, start: Start, flags: tuple[str, ...]):
    write(tmp_path, remote, queue)
    child = start("shop:app", *flags)
    assert "Traceback" not in child.communicate(timeout=60)[1]
    assert child.returncode == 2


def test_it_is_started_anew_when_a_file_changes(tmp_path: Path, remote: Remote, queue: str, start: Start):
    write(tmp_path, remote, queue)
    child = start("shop:app", "--reload")
    assert child.stdout is not None
    remote.ok("put", queue, '{"n": 1}')
    assert child.stdout.readline() == "handled 1\n"
    source = (tmp_path / "shop.py").read_text().replace('"handled"', '"now handled"')
    (tmp_path / "new.py").write_text(source)
    os.replace(tmp_path / "new.py", tmp_path / "shop.py")
    remote.ok("put", queue, '{"n": 2}')
    said = ""
    number = 2
    while not said.startswith("now"):
        said = child.stdout.readline()
        number += 1
        remote.ok("put", queue, f'{{"n": {number}}}')
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=60)
    assert "changed: the worker starts anew" in errors
    assert child.returncode == 0


NOWHERE = """
import os, signal, tenure
app = tenure.App()

@app.on_startup
def begin() -> None:
    if os.environ.get("FAIL"):
        raise ConnectionError("no database")
    print("started", os.getpid(), flush=True)

@app.on_shutdown
async def end() -> None:
    print("ended", os.getpid(), flush=True)

@app.task({queue!r}, type="greet")
async def greet(job: str) -> None:
    print("hello", job, flush=True)

@app.task({queue!r}, type="die", run="process", concurrency=1)
def die(job: str) -> None:
    print("in a process", job, flush=True)
"""


def write_nowhere(folder: Path, queue: str) -> None:
    (folder / "shop.py").write_text(NOWHERE.format(queue=queue))


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_an_app_without_an_address_is_led_to_its_server(
    tmp_path: Path, remote: Remote, queue: str, start: Start, by: str
):
    write_nowhere(tmp_path, queue)
    remote.ok("put", queue, '"ada"', "--meta", '{"type": "greet"}')
    remote.ok("put", queue, '"bob"', "--meta", '{"type": "die"}')
    child = start("shop", "--url", remote.url) if by == "flag" else start("shop", TENURE_URL=remote.url)
    assert child.stdout is not None
    said: list[str] = []
    while not {"hello ada\n", "in a process bob\n"} <= set(said):
        said.append(child.stdout.readline())
        assert said[-1], child.communicate()
    child.send_signal(signal.SIGTERM)
    rest, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    said += rest.splitlines(keepends=True)
    started = {line.split()[1] for line in said if line.startswith("started")}
    ended = {line.split()[1] for line in said if line.startswith("ended")}
    assert len(started) == 2, "the worker, and the process of its task"
    assert started == ended
    assert remote.json("inspect", queue)["count"] == 0


def test_a_flag_and_a_module_that_name_two_servers_are_refused(
    tmp_path: Path, remote: Remote, queue: str, start: Start
):
    write(tmp_path, remote, queue)
    child = start("shop", "--url", "http://127.0.0.1:9")
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said.count("\n")) == (2, 1)
    assert f"shop names its own server, {remote.url}: leave the address out of App" in said


@pytest.mark.parametrize("flags", [(), ("--processes", "2")])
def test_a_startup_hook_that_fails_ends_the_worker_with_its_own_lines(
    tmp_path: Path, remote: Remote, queue: str, start: Start, flags: tuple[str, ...]
):
    write_nowhere(tmp_path, queue)
    child = start("shop", *flags, TENURE_URL=remote.url, FAIL="1")
    _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    assert 'shop.py", line' in said
    assert "tenure/worker" not in said
    assert "tenure: the startup hook begin failed: ConnectionError: no database: no job was taken" in said


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_several_processes_work_under_one_and_one_that_dies_comes_back(
    tmp_path: Path, remote: Remote, queue: str, start: Start
):
    write_nowhere(tmp_path, queue)
    child = start("shop", "--processes", "2", "--queues", queue, TENURE_URL=remote.url)
    assert child.stdout is not None
    workers: list[int] = []

    def next_started() -> int:
        """The next worker of the supervisor; processes of tasks start too."""
        while True:
            line = child.stdout.readline()  # type: ignore[union-attr]
            assert line, child.communicate()
            words = line.split()
            if words[0] == "started":
                parent = Path(f"/proc/{words[1]}/stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == child.pid:
                    return int(words[1])

    workers += [next_started(), next_started()]
    os.kill(workers[0], signal.SIGKILL)
    workers.append(next_started())
    remote.ok("put", queue, '"ada"', "--meta", '{"type": "greet"}')
    while "hello ada" not in child.stdout.readline():
        pass
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert re.search(r"worker [01] was ended by SIGKILL( while it ran no job)?: it starts again", errors), errors
    assert not any(map(alive, workers))


def test_workers_drain_by_themselves_where_their_supervisor_is_killed(
    tmp_path: Path, remote: Remote, queue: str, start: Start
):
    write_nowhere(tmp_path, queue)
    child = start("shop", "--processes", "1", "--processes", "2", TENURE_URL=remote.url)
    assert child.stdout is not None
    for _ in range(2):
        while not child.stdout.readline().startswith("started"):
            pass
    child.kill()
    out, errors = child.communicate(timeout=60)
    assert out.count("ended") >= 2, "their end of the pipe is closed, so both have ended"
    assert "Traceback" not in errors


def test_a_metrics_page_is_at_the_address_that_was_asked_for(tmp_path: Path, remote: Remote, queue: str, start: Start):
    write_nowhere(tmp_path, queue)
    with socket.socket() as probe:
        probe.bind(("127.0.0.3", 0))
        port = probe.getsockname()[1]
    child = start("shop", "--metrics-port", str(port), "--metrics-host", "127.0.0.3", TENURE_URL=remote.url)
    for _ in range(6_000):
        assert child.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.3:{port}/readyz", timeout=60) as answer:
                assert answer.read() == b"ok\n"
                break
        except OSError:
            time.sleep(0.01)
    else:
        pytest.fail("it never became ready")
