"""A user's file with timers under mypy --strict and pyright: what is right is clean, what is wrong is on its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.test_types_for_users import mypy_lines, pyright_lines

RIGHT = """\
from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Annotated

import msgspec
from faststream import AckPolicy, Context, FastStream
from redis.asyncio import Redis

import tenure
from tenure import App, Exponential
from tenure.testing import AppTester
from tenure.timers import Scheduled, Timers
from tenure.faststream import TestTimersBroker, TimersBroker, TimersRoute, TimersRouter, TimerStreamMessage


class Note(msgspec.Struct):
    to: int


app = App(redis="redis://127.0.0.1:6379/0")
given = App(timers=Timers(Redis()))


@app.timer(
    "reminders",
    retries=5,
    backoff=Exponential(min="1s", max="5m"),
    lease="30s",
    concurrency=10,
    rate="100/s",
    time_limit="1m",
    policy=tenure.AckPolicy.NACK_ON_ERROR,
)
async def remind(note: Note, ctx: tenure.Context) -> None:
    print(note.to, ctx.timer_id)


@app.timer("sweeps")
def sweep() -> None: ...


async def schedules() -> None:
    one: Scheduled = await remind.schedule(Note(1), delay="10m", timer_id="one", on_conflict="keep")
    await remind.schedule(Note(1), at=datetime.now(timezone.utc))
    many: list[Scheduled] = await remind.schedule_many([Note(1)], delay=timedelta(seconds=1))
    await sweep.schedule()
    sweep.blocking.schedule(delay=5)
    remind.blocking.schedule(Note(1))
    if await remind.cancel(one.timer_id) == "cancelled":
        print(many)
    async with AppTester(app) as tester:
        await tester.run_until_idle()
        print(await tester.dead(remind), await tester.timers.stats("reminders"))


broker = TimersBroker("redis://127.0.0.1:6379/0", ack_policy=AckPolicy.NACK_ON_ERROR)
stream = FastStream(broker)


@broker.publisher("seen")
@broker.subscriber("invoices", max_workers=5, lease_ttl=30, retries=2)
async def handle(invoice: str, message: Annotated[TimerStreamMessage, Context("message")]) -> str:
    await message.nack(delay=timedelta(seconds=1))
    return invoice


router = TimersRouter("shop:", [TimersRoute(sweep, "sweeps", max_workers=1)])
broker.include_router(router)


async def publishes() -> None:
    timer_id: str = await broker.publish("INV-1", topic="invoices", activate_in=timedelta(days=30), timer_id="i")
    await broker.publish("INV-1", "invoices", activate_at=datetime.now(timezone.utc), headers={"a": "b"})
    if await broker.cancel_timer("invoices", timer_id) != "unknown":
        print(await broker.get_pending_timers("invoices"))
    async with TestTimersBroker(broker) as tested:
        await tested.publish("INV-2", topic="invoices")
"""

WRONG = """\
from __future__ import annotations

import msgspec

import tenure


class Note(msgspec.Struct):
    to: int


app = tenure.App(redis="redis://127.0.0.1:6379/0")


@app.timer("reminders")
async def remind(note: Note) -> None: ...


@app.timer("others", durability="fsync")  # wrong: that is a queue's
async def other(note: Note) -> None: ...


async def schedules() -> None:
    await remind.schedule("me")  # wrong: a Note
    await remind.schedule()  # wrong: a Note
    await remind.schedule(Note(1), on_conflict="drop")  # wrong: no such word
    await remind.schedule_many([Note(1)], timer_id="x")  # wrong: an id is one timer's
    remind.blocking.schedule(1)  # wrong: a Note
    await remind.put(Note(1))  # wrong: it is scheduled
"""


@pytest.mark.full
@pytest.mark.parametrize("lines_of", [mypy_lines, pyright_lines])
@pytest.mark.parametrize("source", [RIGHT, WRONG], ids=["right", "wrong"])
def test_type_checkers_find_what_is_wrong_and_nothing_else(source: str, lines_of, tmp_path: Path):
    file = tmp_path / "users_timers.py"
    file.write_text(source)
    wrong = {number for number, line in enumerate(source.splitlines(), 1) if "# wrong" in line}
    assert lines_of(file) == wrong
