"""Ticks against a real server that is killed between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tenure import AsyncClient
from tenure.worker.app import App
from tenure.worker.periodic import PeriodicLoop, Tick
from tenure.worker.runtime.timing import SystemTiming
from tenure.worker.runtime.worker import Worker
from tests.kit.restartable_server import Serve, servings

HOUR_MS = 3_600_000


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    yield from servings(tmp_path)


class Ago(SystemTiming):
    """The machine's time, for a worker that began a while ago."""

    def __init__(self, ago_ms: int) -> None:
        self.ago_ms = ago_ms

    def wall_ms(self) -> int:
        return super().wall_ms() - self.ago_ms


def app_with_a_schedule(url: str) -> App:
    app = App(url)

    @app.periodic("report", cron="0 * * * *", catch_up=True, catch_up_max=5)
    async def report(tick: Tick) -> None:
        """Never called here: what matters is what the queue holds."""

    return app


async def fire_at_once(url: str, now_ms: int, *, workers: int, began_ms_ago: int) -> int:
    """Several workers, each with a client of its own, at one moment; returns how many jobs they made."""
    async with app_with_a_schedule(url) as app:
        await app.declare()
        clients = [app.new_client() for _ in range(workers)]
        loops = [PeriodicLoop(app, client, Ago(began_ms_ago)) for client in clients]
        try:
            return sum(await asyncio.gather(*(loop.fire_due(now_ms) for loop in loops)))
        finally:
            for client in clients:
                await client.close()


async def test_workers_at_one_tick_make_one_job_also_when_the_broker_is_killed_in_between(serve: Serve):
    server = serve()
    now_ms = time.time_ns() // 1_000_000
    began_ms_ago = now_ms % HOUR_MS + 5 * HOUR_MS // 2  # in the middle of an hour, so that three ticks are due
    assert await fire_at_once(server.address, now_ms, workers=8, began_ms_ago=began_ms_ago) == 3
    for _ in range(2):
        server.kill()
        server.start()
        assert await fire_at_once(server.address, now_ms, workers=4, began_ms_ago=0) == 0
    async with AsyncClient(server.address) as client:
        jobs = (await client.claim("report", max_count=100, auto_ack=True)).jobs
    ticks = [msgspec.json.decode(job.data, type=Tick).ms for job in jobs]
    latest = now_ms - now_ms % HOUR_MS
    assert ticks == [latest - HOUR_MS * back for back in (2, 1, 0)]


async def test_two_workers_handle_each_tick_once(serve: Serve):
    server = serve()
    handled: list[int] = []
    enough = asyncio.Event()

    def app() -> App:
        app = App(server.address)

        @app.periodic("clock", every="1s")
        async def clock(tick: Tick) -> None:
            handled.append(tick.ms)
            if len(handled) == 3:
                enough.set()

        return app

    workers = [Worker(app()) for _ in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.wait_for(enough.wait(), 60)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert sorted(set(handled)) == sorted(handled)
    assert all(tick % 1_000 == 0 for tick in handled)
