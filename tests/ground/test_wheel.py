"""What users install: the wheel, in an environment that has never seen this tree."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure import Client
from tests.kit.installed_wheel import build_wheel, install, uv

ROOT = Path(__file__).parents[2]
HEADING = "A worker in ten lines"
PAGES = (ROOT / "README.md", ROOT / "docs" / "how-to" / "run-a-job-queue-end-to-end.md")
# How long anything may take before the test gives up; nothing is right or wrong because of it.
PATIENCE_S = 60.0


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


def test_wheel_holds_the_package_its_types_and_its_licence(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tenure/py.typed", "tenure/console/page/index.html"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"tenure", "tenure-0.1.0.dist-info"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_worker_of_the_readme_runs_from_the_wheel_in_a_clean_environment(wheel: Path, tmp_path: Path):
    home = tmp_path / "venv"
    uv("venv", "--python", sys.executable, home)
    install(home, f"tenure @ {wheel.as_uri()}")
    run(home / "bin" / "python", "-W", "error", "-c", "import tenure.core, tenure.log, tenure.broker", cwd=tmp_path)

    code, worker, put = ten_lines()
    url = free_url(named := re.findall(r"http://[^\"]+", code)[0])
    (tmp_path / "mail.py").write_text(code.replace(named, url))
    with running(home, tmp_path, "tenure serve --data data --port " + url.rpartition(":")[2]) as serve:
        serve.line("listening on ")
        with running(home, tmp_path, worker) as process, Client(url) as client:
            until(lambda: [topic.topic for topic in client.topics().topics] == ["emails"], process)
            with running(home, tmp_path, put, TENURE_URL=url) as putting:
                assert putting.wait() == 0
            assert process.line("sending") == "sending to ada@example.org - attempt 1\n"
            until(lambda: client.topic("emails").count == 0, process)
            assert client.topic("emails").config.durability == "fsync"
            assert process.stop() == 0


class Running:
    """A command from the clean environment, with what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self, part: str) -> str:
        """Its next line with that in it. Nothing is waited for longer than the test may take."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if part in line:
                return line
        raise AssertionError(f"it ended without a word of {part!r}")

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        if not self.ended():
            self._process.terminate()
        return self.wait()


@contextmanager
def running(home: Path, directory: Path, command: str, **variables: str) -> Iterator[Running]:
    """Run a command line of the pages as its reader would, and stop it at the end."""
    program, *arguments = shlex.split(command)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTHON"))}
    process = subprocess.Popen(
        [home / "bin" / program, *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        env=ours | {"PYTHONUNBUFFERED": "1"} | variables,
    )
    started = Running(process)
    try:
        yield started
        started.stop()
    finally:
        if not started.ended():
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(condition: Callable[[], bool], process: Running) -> None:
    """Look again and again until something holds, or the process that should make it so has ended."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        assert not process.ended()
        time.sleep(0.01)


def free_url(named: str) -> str:
    """The address that the page names; with another port only where somebody else has that one."""
    host, _, port = named.removeprefix("http://").partition(":")
    for wanted in (int(port), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, wanted))
            except OSError:
                continue
            return f"http://{host}:{probe.getsockname()[1]}"
    raise AssertionError("no port is free")


def ten_lines() -> tuple[str, str, str]:
    """The program under the heading and the commands below it: worker and put. All pages that show it must agree."""
    shown = []
    for page in PAGES:
        _, heading, below = page.read_text().partition(f"## {HEADING}\n")
        if heading:
            code = re.findall(r"^```python\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)[0]
            worker = re.findall(r"^tenure worker .*$", below, re.MULTILINE)[0]
            put = re.findall(r"^tenure put .*$", below, re.MULTILINE)[0]
            shown.append((code, worker, put))
    assert shown
    assert all(one == shown[0] for one in shown)
    assert len([line for line in shown[0][0].splitlines() if line]) <= 10
    return shown[0]
