"""The pytest plugin in the tests of a user: run by a pytest of its own, as the user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

_APP = """
import asyncio
import pytest
from tenure import App, AsyncClient, Client, Context
from tenure.client import ClientSettings
from tenure.errors import TenureError

app = App("http://127.0.0.1:9")


@app.task("emails")
async def send(job: str, ctx: Context) -> None:
    await ctx.extend("1m")
"""

_UNASKED = """
def test_blocking():
    Client("http://127.0.0.1:9").topics()

async def test_awaited():
    async with AsyncClient("http://127.0.0.1:9") as client:
        await client.topics()

async def test_app():
    await send.put("x")

def test_stream():
    next(iter(Client("http://127.0.0.1:9").work("emails")))

def test_swallowed():
    try:
        send.blocking.put("x")
    except BaseException:
        pass

def test_redis():
    async def use():
        App(redis="redis://127.0.0.1:9/0").timers
    asyncio.run(use())

@pytest.mark.tenure_reach("http://127.0.0.1:90")
def test_neighbour():
    Client("http://127.0.0.1:9").topics()
"""

_GIVEN = """
def ask(port):
    with pytest.raises(TenureError, match="refused"):
        Client(f"http://127.0.0.1:{port}", settings=ClientSettings(retry_for_ms=1)).topics()

def test_by_the_file():
    ask(9)

@pytest.mark.tenure_reach("http://127.0.0.1:10/")
def test_by_a_mark():
    ask(10)

@pytest.mark.tenure_reach
def test_any():
    ask(11)
"""

_FIXTURES = """
async def test_on_a_loop(app_tester, tenure_clock):
    async with app_tester(app) as tester:
        await send.put("x", delay="1h")
        assert await tester.run_until_idle() == 0
        tenure_clock.advance(3_600_000)
        assert await tester.run_until_idle() == 1


def test_without_a_loop(blocking_app_tester):
    with blocking_app_tester(app) as tester:
        send.blocking.put("x", delay="1h")
        assert tester.run_until_idle() == 0
        assert [job.state for job in tester.jobs(send)] == ["delayed"]
        tester.advance("1h")
        assert tester.run_until_idle() == 1
        assert tester.jobs("emails") == tester.dead("emails") == []


async def test_a_handler_by_hand(handler_context):
    ctx = handler_context("emails", attempt=3)
    await send("x", ctx)
    assert (ctx.attempt, ctx.extended_ms, ctx.verdict) == (3, [60_000], None)


def test_over_http(tenure_server):
    import os

    assert os.environ["TENURE_URL"] == tenure_server
    with Client(tenure_server) as client:
        client.queue("emails").put("x")
        assert client.topic("emails").head_seq == 1
"""

_IDLE = """
import sys

def test_it():
    loaded = {name for name in sys.modules if name.startswith("tenure.")}
    rooms = {name.split(".")[1] for name in loaded}
    assert "server_guard" in rooms and not rooms & {"broker", "client", "http", "log", "worker"}
"""


def run(directory: Path, body: str, *, ini: str = "") -> tuple[dict[str, str], str]:
    """The outcome of each test of a file in the user's own pytest, and what it printed."""
    (directory / "test_it.py").write_text(body)
    (directory / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n{ini}"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        _plugin(),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::test_(\w+)", done.stdout, re.MULTILINE)
    return {name: outcome for outcome, name in outcomes}, done.stdout


def _plugin() -> str:
    """The plugin as the package registers it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["entry-points"]["pytest11"]["tenure"])


def test_a_test_that_would_reach_a_server_unasked_fails_and_is_told_what_to_use(tmp_path: Path):
    outcomes, printed = run(tmp_path, _APP + _UNASKED)
    names = re.findall(r"def test_(\w+)", _UNASKED)
    assert set(outcomes) == set(names)
    assert "PASSED" not in {name: outcomes[name] for name in names if name != "swallowed"}.values()
    assert outcomes["swallowed"] == "ERROR"  # the refusal was caught, so the end of the test says it
    assert printed.count("which it was not given: use the fixture app_tester or tenure_server") >= len(names)


def test_a_test_reaches_a_server_that_it_was_given(tmp_path: Path):
    outcomes, printed = run(tmp_path, _APP + _GIVEN, ini="tenure_reach = http://127.0.0.1:9")
    assert outcomes == dict.fromkeys(("by_the_file", "by_a_mark", "any"), "PASSED"), printed


def test_the_fixtures_run_an_app_on_a_clock_without_a_loop_by_hand_and_on_a_real_server(tmp_path: Path):
    outcomes, printed = run(tmp_path, _APP + _FIXTURES)
    assert outcomes == dict.fromkeys(re.findall(r"def test_(\w+)", _FIXTURES), "PASSED"), printed


def test_pytest_loads_nothing_of_tenure_for_tests_that_do_not_use_it(tmp_path: Path):
    outcomes, printed = run(tmp_path, _IDLE)
    assert outcomes == {"it": "PASSED"}, printed
