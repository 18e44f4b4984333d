"""A user's file under mypy --strict and pyright: what is right is clean, and what is wrong is found on its line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".mypy_cache" / "users"
RIGHT = """\
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, TypedDict

import msgspec
import pydantic

import tenure
from tenure import Ack, AckPolicy, App, Context, Exponential, Fixed, Middleware, Nack, Reject, Task, Tick
from tenure.worker.middleware import CallNext
from tenure.testing import AppTester, ManualClock


class Email(msgspec.Struct):
    to: str


@dataclass
class Order:
    id: int


class Row(TypedDict):
    id: int


class Model(pydantic.BaseModel):
    id: int


app = tenure.App("http://127.0.0.1:4000", key=None)


@app.task(
    "emails",
    retries=5,
    backoff=Exponential(min="1s", max="5m", jitter=True),
    lease="30s",
    concurrency=10,
    prefetch=10,
    rate="100/s",
    time_limit=timedelta(minutes=1),
    policy=AckPolicy.NACK_ON_ERROR,
    weight=2,
    run="auto",
    max_deliveries=None,
    dead_letter="emails.dead",
    durability="fsync",
    push=True,
)
async def send(job: Email, ctx: Context) -> None:
    ctx.check()
    ctx.logger.info("sending to %s", job.to)
    await ctx.extend("1m")
    if ctx.attempt > 3:
        raise Nack(delay="10s")
    if not job.to:
        raise Reject("no address")
    raise Ack


@app.task("orders", backoff="1s", run="thread")
def order(job: Order) -> int:
    return job.id


@app.task("rows")
async def row(job: Row) -> None: ...


@app.task("models")
async def model(job: Model) -> None: ...


@app.task("sweep")
async def sweep() -> None: ...


@app.task("anything", max_in_flight=20)
async def anything(job: Any) -> None: ...


@app.task("mail", type="welcome", lease="1m")
async def welcome(job: Email) -> None: ...


@app.task("mail", type="order")
def ordered(job: Order) -> None: ...


@app.on_startup
async def connect() -> str:
    return "connected"


@app.on_shutdown
def disconnect() -> None: ...


@app.periodic("nightly", cron="0 3 * * *", timezone="Europe/Berlin")
async def nightly(tick: Tick) -> None:
    at: datetime = tick.at
    print(at)


class Timing(Middleware):
    async def handle(self, ctx: Context, call_next: CallNext) -> None:
        await call_next()


async def puts() -> None:
    seq: int = await send.put(Email("me"), delay="10m", unique="welcome-42", tag="t", meta={"a": 1})
    await send.put(Email("me"), at=datetime.now(timezone.utc))
    await send.put(Email("me"), delay=None, idempotency_key="k")
    await welcome.put(Email("me"))
    ordered.blocking.put_many([Order(1)], idempotency_key="k")
    connected: str = await connect()
    disconnect()
    seqs: list[int] = await send.put_many([Email("a")], delay=timedelta(seconds=1))
    await sweep.put()
    await anything.put({"free": 1})
    order.blocking.put(Order(1))
    sweep.blocking.put()
    n: int = order(Order(1))
    await row({"id": 1})
    async with app:
        await app.declare()
    task: Task[Email] = send
    await task.put(Email("x"))
    print(seq, seqs, n, connected)


async def tests() -> None:
    async with AppTester(app, ManualClock()) as tester:
        await send.put(Email("me"))
        handled: int = await tester.run_until_idle()
        tester.advance("10m")
        reasons = [letter.reason for letter in await tester.dead("emails")]
        print(handled, reasons)
"""

WRONG = """\
from __future__ import annotations

import msgspec

import tenure


class Email(msgspec.Struct):
    to: str


app = tenure.App()


@app.task("emails")
async def send(job: Email, ctx: tenure.Context) -> None: ...


@app.task("numbers", retries="5")  # wrong: a number
async def number(job: int) -> None: ...


async def puts() -> None:
    await send.put("me")  # wrong: an Email
    await send.put()  # wrong: an Email
    await send.put_many([1])  # wrong: Emails
    send.blocking.put(1)  # wrong: an Email
    await send.put(Email("me"), dely="1s")  # wrong: no such option
    await send.put_many([Email("me")], unique="x")  # wrong: one at a time
    await send("me")  # wrong: two arguments
    await send.put("a", "b")  # wrong: one payload
    send.delay("me")  # wrong: it is put


@app.task("mail", type=5)  # wrong: text
async def typed(job: int) -> None: ...


@app.on_startup  # wrong: no argument
def started(app: tenure.App) -> None: ...
"""

NOBODY = "[mypy]\n"


def mypy_lines(file: Path) -> set[int]:
    """The lines that mypy --strict complains of, with no settings but its own."""
    config = file.with_name("mypy.ini")
    config.write_text(NOBODY)
    told = ["--strict", "--config-file", str(config), "--cache-dir", str(CACHE), "--output", "json"]
    command = [sys.executable, "-m", "mypy", *told, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {error["line"] for error in found if error["severity"] == "error"}


def pyright_lines(file: Path) -> set[int]:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {error["range"]["start"]["line"] + 1 for error in found if error["severity"] == "error"}


@pytest.mark.parametrize("lines_of", [mypy_lines, pyright_lines])
@pytest.mark.parametrize("source", [RIGHT, WRONG], ids=["right", "wrong"])
def test_type_checkers_find_what_is_wrong_and_nothing_else(source: str, lines_of, tmp_path: Path):
    file = tmp_path / "users_app.py"
    file.write_text(source)
    wrong = {number for number, line in enumerate(source.splitlines(), 1) if "# wrong" in line}
    assert lines_of(file) == wrong


def test_the_right_file_runs(tmp_path: Path):
    file = tmp_path / "users_app.py"
    file.write_text(RIGHT + "\n\nimport asyncio\n\nasyncio.run(tests())\n")
    done = subprocess.run([sys.executable, "-W", "error", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
