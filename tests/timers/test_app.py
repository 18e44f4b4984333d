"""Timers of an app: declared, scheduled, cancelled and handled, in memory and on a real Redis."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenure import AckPolicy, App, Conflict, Context, Fixed, Invalid, Middleware, Nack, Overloaded, Reject
from tenure.testing import AppTester, ManualClock
from tenure.timers import Held, Timers
from tenure.timers.scripts import SCRIPTS, Keys
from tenure.worker.middleware import CallNext, Put, PutNext
from tenure.worker.observing.telemetry import Telemetry
from tenure.worker.runtime.worker import Worker
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import Verdict

PATIENCE_S = 30.0


class Note(msgspec.Struct):
    to: int


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """The app's timers are handled within the block, and drained at its end."""
    worker = Worker(app, settings=WorkerSettings(**options))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task


# In memory


async def test_a_timer_is_handled_when_it_is_due():
    app, seen = App(), list[tuple[int, str | None]]()

    @app.timer("reminders")
    async def remind(note: Note, ctx: Context) -> None:
        seen.append((note.to, ctx.timer_id))

    clock = ManualClock()
    async with AppTester(app, clock) as tester:
        first = await remind.schedule(Note(1), delay="10m", timer_id="one")
        at = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC) + timedelta(minutes=20)
        second = await remind.schedule(Note(2), at=at)
        assert (first.timer_id, first.outcome, second.due_ms - first.due_ms) == ("one", "created", 600_000)
        assert await tester.run_until_idle() == 0
        waiting = await tester.jobs(remind)
        assert [(job.data, job.state) for job in waiting] == [({"to": 1}, "delayed"), ({"to": 2}, "delayed")]
        assert waiting[0].timer_id == "one"
        tester.advance("10m")
        assert await tester.run_until_idle() == 1
        tester.advance("10m")
        assert await tester.run_until_idle() == 1
        assert await tester.jobs("reminders") == []
    assert seen == [(1, "one"), (2, second.timer_id)]


async def test_an_id_is_replaced_kept_or_refused_and_cancelled():
    app, seen = App(), list[int]()

    @app.timer("reminders")
    async def remind(note: Note) -> None:
        seen.append(note.to)

    async with AppTester(app) as tester:
        await remind.schedule(Note(1), timer_id="one")
        assert (await remind.schedule(Note(2), timer_id="one")).outcome == "replaced"
        assert (await remind.schedule(Note(3), timer_id="one", on_conflict="keep")).outcome == "kept"
        with pytest.raises(Conflict):
            await remind.schedule(Note(4), timer_id="one", on_conflict="error")
        scheduled = await remind.schedule_many([Note(5), Note(6)], delay="1m")
        assert await remind.cancel(scheduled[0].timer_id) == "cancelled"
        assert await remind.cancel("nobody") == "unknown"
        await tester.run_until_idle()
        tester.advance("1m")
        await tester.run_until_idle()
    assert seen == [2, 6]


async def test_threads_schedule_and_cancel_through_blocking():
    app, seen = App(), list[int]()

    @app.timer("reminders")
    def remind(note: Note) -> None:
        seen.append(note.to)
        if note.to < 3:
            remind.blocking.schedule(Note(note.to + 1), timer_id=f"n{note.to + 1}")
            again = remind.blocking.schedule_many([Note(9)], delay="1h")
            assert remind.blocking.cancel(again[0].timer_id) == "cancelled"

    async with AppTester(app) as tester:
        await remind.schedule(Note(1))
        await tester.run_until_idle()
        with pytest.raises(Invalid, match="would stop the event loop"):
            remind.blocking.schedule(Note(1))
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("policy", "error", "handled", "dead"),
    [
        (AckPolicy.NACK_ON_ERROR, ValueError("no"), 3, "ValueError: no ("),
        (AckPolicy.REJECT_ON_ERROR, ValueError("no"), 1, "ValueError: no ("),
        (AckPolicy.ACK, ValueError("no"), 1, None),
        (AckPolicy.ACK_FIRST, ValueError("no"), 1, None),
        (AckPolicy.NACK_ON_ERROR, Reject("never"), 1, "never"),
        (AckPolicy.NACK_ON_ERROR, Nack("later", delay="1s"), 5, "later"),
        (AckPolicy.MANUAL, None, 5, ""),
    ],
)
async def test_policies_are_those_of_tasks(policy: AckPolicy, error: Exception | None, handled: int, dead: str | None):
    app, count = App(), 0

    @app.timer("reminders", policy=policy, retries=2, backoff=Fixed("1s"))
    async def remind() -> None:
        nonlocal count
        count += 1
        if error is not None:
            raise error

    async with AppTester(app) as tester:
        await remind.schedule()
        for _ in range(10):
            await tester.run_until_idle()
            tester.advance("1m")
        letters = await tester.dead(remind)
        assert await tester.jobs(remind) == []
    assert count == handled
    assert [letter.reason.startswith(dead or "") for letter in letters] == ([] if dead is None else [True])


async def test_a_payload_that_does_not_fit_is_rejected_unseen():
    app, seen = App(), list[Note]()

    @app.timer("reminders")
    async def remind(note: Note) -> None:
        seen.append(note)

    async with AppTester(app) as tester:
        await app.timers.schedule("reminders", {"to": "nobody"}, delay=0)
        await tester.run_until_idle()
        [letter] = await tester.dead("reminders")
    assert letter.reason == "payload does not fit: Expected `int`, got `str` - at `$.to`"
    assert not seen


async def test_middlewares_run_around_schedules_and_handlers_and_see_verdicts():
    events: list[Any] = []

    class Listening(Middleware):
        async def put(self, put: Put, call_next: PutNext) -> list[int]:
            put.records[0].meta = {"by": "hook"}
            versions = await call_next(put)
            events.append(("put", put.queue, put.records[0].timer_id, len(versions)))
            return versions

        async def handle(self, ctx: Context, call_next: CallNext) -> None:
            events.append(("handle", ctx.meta))
            await call_next()

        def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
            events.append(verdict and verdict.kind.value)

    app = App(middlewares=[Listening()])

    @app.timer("reminders")
    async def remind(note: Note) -> None: ...

    async with AppTester(app) as tester:
        await remind.schedule(Note(1), timer_id="one")
        await tester.run_until_idle()
    assert events == [("put", "reminders", "one", 1), ("handle", {"by": "hook"}), "ack"]


async def test_a_handlers_span_is_linked_to_the_schedule():
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(middlewares=[Telemetry(tracer_provider=provider)])

    @app.timer("reminders")
    async def remind(note: Note) -> None: ...

    async with AppTester(app) as tester:
        await remind.schedule(Note(1))
        await tester.run_until_idle()
    put, process = exporter.get_finished_spans()
    assert [link.context.span_id for link in process.links] == [put.context.span_id]


async def test_tasks_and_timers_put_for_each_other():
    app, seen = App(), list[str]()

    @app.task("jobs")
    async def job(n: int) -> None:
        seen.append(f"job {n}")
        await remind.schedule(Note(n), delay="1m")

    @app.timer("reminders")
    async def remind(note: Note) -> None:
        seen.append(f"timer {note.to}")

    async with AppTester(app) as tester:
        await job.put(1)
        await tester.run_until_idle()
        tester.advance("1m")
        await tester.run_until_idle()
    assert seen == ["job 1", "timer 1"]
    assert dict(app.tasks) == {"jobs": job}
    assert dict(app.handlers) == {"jobs": job, "reminders": remind}


async def test_what_cannot_be_meant_is_refused():
    app = App()

    @app.timer("reminders")
    async def remind(note: Note) -> None: ...

    with pytest.raises(Invalid, match="has a task already"):
        app.task("reminders")(remind.handler)
    with pytest.raises(Invalid, match="unknown option of a timer: durability"):
        app.timer("other", durability="fsync")(remind.handler)  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="no Redis"):
        await remind.schedule(Note(1))
    with pytest.raises(Invalid, match="not both"):
        await remind.schedule(Note(1), delay=1, at=datetime.now(tz=UTC))
    with pytest.raises(Invalid, match="time zone"):
        await remind.schedule(Note(1), at=datetime(2030, 1, 1))
    with pytest.raises(Invalid, match="unknown option"):
        await remind.schedule(Note(1), after=1)  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="not a Redis URL"):
        App(redis="127.0.0.1").new_timers()
    assert repr(remind).startswith("<Timer 'reminders' test_what")
    await remind(Note(1))


# On Redis


async def test_a_worker_handles_what_becomes_due_with_no_broker(timers: Timers):
    app, seen = App("http://127.0.0.1:9", timers=timers), list[int]()

    @app.timer("reminders")
    async def remind(note: Note) -> None:
        seen.append(note.to)

    async with working(app):
        await remind.schedule_many(Note(n) for n in range(500))
        await until(lambda: len(seen) == 500)
        await remind.schedule(Note(500), delay="50ms")
        await until(lambda: len(seen) == 501)
    assert sorted(seen) == list(range(501))
    stats = await timers.stats("reminders")
    assert (stats.committed_total, stats.in_flight, stats.lapsed_total) == (501, 0, 0)
    assert (app.stats.queue("reminders").acked, app.stats.queue("reminders").puts) == (501, 501)
    assert app.stats.queue("reminders").settlements < 300, "acks go out together"


async def test_rescheduling_an_id_while_it_runs_loses_nothing(timers: Timers):
    """Hole 1 of the reference: the ack of the first deleted the second."""
    app, seen, gate = App(timers=timers), list[int](), asyncio.Event()

    @app.timer("reminders", lease="6s")
    async def remind(note: Note) -> None:
        seen.append(note.to)
        if note.to == 1:
            await gate.wait()

    async with working(app):
        await remind.schedule(Note(1), timer_id="one")
        await until(lambda: seen)
        await remind.schedule(Note(2), timer_id="one", delay="1h")
        await until(lambda: app.stats.queue("reminders").heartbeats)  # which finds that it was replaced, and goes on
        gate.set()
        await until(lambda: app.stats.queue("reminders").acked)
        await make_due(timers, "reminders", "one")
        await until(lambda: len(seen) == 2)
    assert seen == [1, 2]
    stats = await timers.stats("reminders")
    assert (stats.committed_total, stats.scheduled, stats.ready, stats.in_flight) == (1, 0, 0, 0)


async def test_a_handler_may_schedule_its_own_id_again(timers: Timers):
    app, seen = App(timers=timers), list[int]()

    @app.timer("reminders")
    async def remind(note: Note, ctx: Context) -> None:
        seen.append(note.to)
        if note.to < 5:
            await remind.schedule(Note(note.to + 1), timer_id=ctx.timer_id or "")

    async with working(app):
        await remind.schedule(Note(1), timer_id="one")
        await until(lambda: len(seen) == 5)
    assert seen == [1, 2, 3, 4, 5]


async def test_a_late_verdict_touches_nobody_elses_lease(timers: Timers):
    """Hole 2 of the reference: here the lease went to somebody else, and the handler is cancelled for it."""
    app, seen = App(timers=timers), list[str]()

    @app.timer("reminders", lease="6s")
    async def remind(note: Note) -> None:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async with working(app):
        await remind.schedule(Note(1), timer_id="one")
        await until(lambda: seen)
        # The lease is ended under the worker, and somebody else claims: what a worker that hung looks like to Redis.
        taken = await take_over(timers, "reminders", "one")
        await until(lambda: "cancelled" in seen)
    assert seen == ["began", "cancelled"]
    assert (await timers.commit("reminders", [taken])).count == 1
    assert app.stats.queue("reminders").leases_lost == 1


async def take_over(timers: Timers, topic: str, timer_id: str) -> Held:
    """End a lease and claim its timer in one script, so that the worker cannot claim it again in between."""
    keys, token = Keys.of(timers._scripts._prefix, topic), os.urandom(16)  # type: ignore[attr-defined]
    end = b"redis.call('ZADD', KEYS[2], 1, ARGV[9])\n"
    args = (keys.channel, b"0", 1, 1_000, 60_000, token, b"other", 5, timer_id)
    await timers_redis(timers).eval(end + SCRIPTS["claim"].text, len(keys.names), *keys.names, *args)
    info = await timers.get(topic, timer_id)
    assert info is not None
    assert (info.node, info.deliveries) == ("other", 2)
    return Held(timer_id, token, info.version)


async def make_due(timers: Timers, topic: str, timer_id: str) -> None:
    """Let the time of a timer come, and wake those who wait, as a schedule does."""
    redis = timers_redis(timers)
    await redis.zadd(key_of(timers, topic, "due"), {timer_id: 1})
    await redis.publish(key_of(timers, topic, "wake"), 0)


def key_of(timers: Timers, topic: str, part: str) -> str:
    return f"{timers._scripts._prefix}:{{{topic}}}:{part}"  # type: ignore[attr-defined]


def timers_redis(timers: Timers) -> Any:
    return timers._scripts._wire._redis  # type: ignore[attr-defined]


async def test_a_rate_is_kept(timers: Timers):
    app, seen = App(timers=timers), list[float]()

    @app.timer("reminders", rate="20/s")
    async def remind(note: Note) -> None:
        seen.append(asyncio.get_running_loop().time())

    async with working(app):
        await remind.schedule_many(Note(n) for n in range(30))
        await until(lambda: len(seen) == 30)
    assert seen[-1] - seen[0] > 0.4


def test_code_without_a_loop_schedules_and_cancels(redis_port: int):
    app = App(redis=f"redis://127.0.0.1:{redis_port}/0")

    @app.timer("blocking-reminders")
    async def remind(note: Note) -> None: ...

    with app:
        scheduled = remind.blocking.schedule(Note(1), delay="1h")
        names = [thread.name for thread in threading.enumerate()]
        assert remind.blocking.cancel(scheduled.timer_id) == "cancelled"
        assert "tenure-timers" in names
    assert "tenure-timers" not in [thread.name for thread in threading.enumerate()]


def test_a_redis_that_is_not_there_is_told_at_once_and_harmlessly():
    app = App(redis="redis://127.0.0.1:9/0")

    @app.timer("reminders")
    async def remind(note: Note) -> None: ...

    with app, pytest.raises(Overloaded, match="cannot be reached"):
        remind.blocking.schedule(Note(1))


def test_queues_alone_need_no_redis():
    code = """
import asyncio, sys
sys.modules["redis"] = sys.modules["faststream"] = None
from tenure import App
from tenure.testing import AppTester
app = App()
@app.task("jobs")
async def job(n: int) -> None: ...
async def main():
    async with AppTester(app) as tester:
        await job.put(1)
        assert await tester.run_until_idle() == 1
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
