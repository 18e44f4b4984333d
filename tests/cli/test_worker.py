"""`tenure worker MODULE:APP`: the app is found, works, drains, and what cannot be found is said plainly."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
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

    def run(*arguments: str, **options: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [COMMAND, "worker", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings(PYTHONUNBUFFERED="1"),
        )
        children.append(child)
        return child

    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


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


@pytest.mark.parametrize("flags", [("--log-level", "loud"), ("--log-format", "xml"), ("--drain", "soon")])
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
