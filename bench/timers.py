"""`make bench-timers`: timers against faststream-redis-timers and against bare EVALSHA, in one run on one Redis."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import uvloop
from faststream_redis_timers import TimersBroker
from redis.asyncio import Redis

from bench.measure import Row, calibrate, report
from tenure import App
from tenure.timers import NewTimer, Timers
from tenure.timers.scripts import SCRIPTS, Keys
from tenure.worker.runtime.worker import Worker
from tests.kit.redis_servers import server

PAYLOAD = {"to": "someone@example.com", "body": "x" * 200}
PAYLOAD_BYTES = msgspec.json.encode(PAYLOAD)
BATCH = 100
DEPTH = 10
"""Commands in one pipeline of the bare client."""
IDLE_TOPICS = 100
BEST = ({"max_concurrent": 50}, {"max_concurrent": 200}, {"max_concurrent": 1_000, "polling_interval": 0.001})
"""The settings of the reference among which the best is taken."""


class Countdown:
    """A handler that does nothing but count, and tells when all have come."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = asyncio.Event()

    async def handle(self, _: Any) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


def fresh() -> str:
    return f"b-{os.urandom(4).hex()}"


# Handling what is due


async def reference_rate(redis: Redis, count: int, **options: Any) -> float:
    """Due messages that faststream-redis-timers handles per second."""
    countdown, topic = Countdown(count), fresh()
    broker = TimersBroker(redis, logger=None)
    broker.subscriber(topic, **options)(countdown.handle)
    await broker.connect()
    for start in range(0, count, BATCH):
        sent = (
            broker.publish(PAYLOAD, topic, activate_in=timedelta(0)) for _ in range(start, min(start + BATCH, count))
        )
        await asyncio.gather(*sent)
    started = time.perf_counter()
    await broker.start()
    await countdown.done.wait()
    seconds = time.perf_counter() - started
    await broker.stop()
    return count / seconds


async def worker_rate(port: int, redis: Redis, count: int) -> float:
    """Due timers that a worker with one ``@app.timer`` at its defaults handles per second, started and drained."""
    countdown, topic = Countdown(count), fresh()
    app = App("http://127.0.0.1:9", redis=f"redis://127.0.0.1:{port}")

    @app.timer(topic)
    async def handle(payload: dict[str, str]) -> None:
        await countdown.handle(payload)

    async with Timers(redis) as timers:
        await timers.schedule_many(topic, [NewTimer(payload=PAYLOAD_BYTES, delay=0) for _ in range(count)])
        worker = Worker(app)
        started = time.perf_counter()
        running = asyncio.create_task(worker.run())
        await countdown.done.wait()
        while (await timers.stats(topic)).committed_total < count:
            await asyncio.sleep(0.001)
        seconds = time.perf_counter() - started
        worker.stop()
        await running
    return count / seconds


async def handling(port: int, quick: bool) -> list[Row]:
    few, many = (200, 20_000) if quick else (500, 50_000)
    redis = Redis(port=port)
    default = await reference_rate(redis, few)
    best = max([await reference_rate(redis, 10 * few, **options) for options in BEST])
    ours = max([await worker_rate(port, redis, many) for _ in range(2)])
    await redis.aclose()
    rows = []
    for what, theirs, bar in (("its defaults", default, 20), ("its best setting", best, 5)):
        measured = f"{ours / theirs:.1f} × ({ours:,.0f} / {theirs:,.0f} per s)"
        rows.append((f"due timers handled, @app.timer against {what}", measured, f"≥ {bar} ×", ours >= bar * theirs))
    return rows


# Schedule, claim, commit: against the scripts alone


async def ours_through(redis: Redis, count: int) -> float:
    """Timers scheduled, claimed and committed per second, through ``Timers``."""
    topic = fresh()
    async with Timers(redis) as timers:
        started = time.perf_counter()
        await timers.schedule_many(topic, [NewTimer(payload=PAYLOAD_BYTES, delay=0) for _ in range(count)])
        await asyncio.gather(*(drain(timers, topic) for _ in range(4)))
        seconds = time.perf_counter() - started
        assert (await timers.stats(topic)).committed_total == count
    return count / seconds


async def drain(timers: Timers, topic: str) -> None:
    while held := await timers.claim(topic, max_count=BATCH):
        await timers.commit(topic, held)


async def bare_through(redis: Redis, count: int) -> float:
    """The same with pipelined EVALSHA and nothing around it; one argument list is built ahead of the clock."""
    keys = Keys.of("tenure", fresh())
    for script in SCRIPTS.values():
        await redis.script_load(script.text.decode())
    entries = [
        [value for i in range(BATCH) for value in (os.urandom(12).hex(), os.urandom(12), "in", 0, PAYLOAD_BYTES)]
        for _ in range(count // BATCH)
    ]
    token = os.urandom(16)
    started = time.perf_counter()
    await piped(redis, keys, "schedule", [(10**9, "replace", *entry) for entry in entries])
    claim = (BATCH, 8 << 20, 30_000, token, "", 5)
    claims = await piped(redis, keys, "claim", [claim] * len(entries))
    commits = []
    for _, _, packed, texts in claims:
        numbers, at, args = msgspec.msgpack.decode(packed), 0, list[Any]()
        for row in range(0, len(numbers), 6):
            args += (texts[at : at + numbers[row]], token, numbers[row + 2])
            at += numbers[row] + numbers[row + 1]
        commits.append(args)
    await piped(redis, keys, "commit", commits)
    seconds = time.perf_counter() - started
    assert await redis.hget(keys.names[-1], "committed") == str(count).encode()  # type: ignore[misc]
    return count / seconds


async def piped(redis: Redis, keys: Keys, name: str, calls: list[Any]) -> list[Any]:
    answers: list[Any] = []
    sha = SCRIPTS[name].sha.decode()
    for start in range(0, len(calls), DEPTH):
        pipe = redis.pipeline(transaction=False)
        for args in calls[start : start + DEPTH]:
            pipe.evalsha(sha, len(keys.names), *keys.names, keys.channel, b"0", *args)
        answers += await pipe.execute()
    return answers


async def overhead(port: int, quick: bool) -> list[Row]:
    count, ours, bare = 10_000 if quick else 50_000, 0.0, 0.0
    redis = Redis(port=port)
    for _ in range(3):  # in turns, so that both meet the same weather; the best of each
        bare = max(bare, await bare_through(redis, count))
        ours = max(ours, await ours_through(redis, count))
    await redis.aclose()
    measured = f"{ours / bare:.2f} ({ours:,.0f} / {bare:,.0f} per s)"
    return [(f"schedule, claim, commit by {BATCH}, against bare EVALSHA", measured, "≥ 0.3", ours >= 0.3 * bare)]


# From due to handler, after idleness


async def ours_late_ms(port: int, idle_s: float) -> list[float]:
    """How late idle workers begin: half of the timers are due at once, half in a moment."""
    late: list[float] = []
    redis = Redis(port=port, max_connections=2 * IDLE_TOPICS)
    topics = [fresh() for _ in range(IDLE_TOPICS)]
    async with Timers(redis) as timers, Timers(redis) as scheduler:

        async def idle_worker(topic: str) -> None:
            while True:
                held = await timers.claim(topic, max_count=10)
                late.extend(time.time() * 1000 - timer.due_ms for timer in held)
                await timers.commit(topic, held)
                await timers.wait(topic)

        workers = [asyncio.create_task(idle_worker(topic)) for topic in topics]
        await asyncio.sleep(idle_s)
        await spread(topics, lambda topic: scheduler.schedule(topic, PAYLOAD, delay=0))
        await asyncio.sleep(idle_s)
        await spread(topics, lambda topic: scheduler.schedule(topic, PAYLOAD, delay=500))
        await until(lambda: len(late) == 2 * IDLE_TOPICS)
        await cancel(workers)
    await redis.aclose()
    return late


async def reference_late_ms(port: int, idle_s: float) -> list[float]:
    late: list[float] = []
    redis = Redis(port=port, max_connections=2 * IDLE_TOPICS)
    topics = [fresh() for _ in range(IDLE_TOPICS // 4)]
    broker = TimersBroker(redis, logger=None)

    async def handle(payload: dict[str, float]) -> None:
        late.append(time.time() * 1000 - payload["due_ms"])

    for topic in topics:
        broker.subscriber(topic)(handle)
    await broker.start()
    await asyncio.sleep(idle_s)
    await spread(topics, lambda topic: broker.publish({"due_ms": time.time() * 1000}, topic))
    await until(lambda: len(late) == len(topics))
    await broker.stop()
    await redis.aclose()
    return late


async def spread(topics: list[str], schedule: Callable[[str], Awaitable[object]]) -> None:
    """One for each topic, a little apart: each wakes one sleeper, as after real idleness."""
    for topic in topics:
        await schedule(topic)
        await asyncio.sleep(0.02)


async def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it did not happen within a minute"
        await asyncio.sleep(0.01)


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99) - 1]


async def lateness(port: int, quick: bool) -> list[Row]:
    idle_s = 6.0 if quick else 30.0
    theirs = await reference_late_ms(port, idle_s)
    ours = await ours_late_ms(port, idle_s)
    middle = sorted(ours)[len(ours) // 2]
    measured = f"{p99(ours):.1f} ms (half {middle:.1f}; its {p99(theirs):,.0f})"
    return [(f"due to handler after {idle_s:.0f} s of idleness, p99", measured, "≤ 50 ms", p99(ours) <= 50)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer timers, shorter idleness")
    quick = parser.parse_args().quick
    print(f"calibration: {calibrate() / 1e6:.1f} M loop turns per second")
    rows: list[Row] = []
    with server() as redis:
        for part in (handling, overhead, lateness):
            rows += uvloop.run(part(redis.port, quick))
    report("timers on Redis", rows)
    raise SystemExit(0 if all(met for *_, met in rows) else 1)


if __name__ == "__main__":
    main()
