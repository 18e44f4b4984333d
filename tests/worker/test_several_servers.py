"""A worker with several servers in its URL: it goes on at the new leader, and keeps what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.client.client import AsyncClient, Client
from tenure.client.settings import ClientSettings
from tenure.worker.app import App
from tenure.worker.runtime.worker import Worker
from tenure.worker.settings import WorkerSettings
from tests.kit.members import Member, members, until
from tests.kit.server import Running, serving

SETTINGS = ClientSettings(
    backoff_min_ms=1, seek_max_ms=20, look_ms=100, look_again_ms=20, stream_look_ms=100, answer_ms=600_000
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data: Path = tmp_path_factory.mktemp("several") / "data"
    with serving(data) as running:
        yield running


@pytest.fixture
def pair(server: Running) -> Iterator[tuple[Member, Member]]:
    """Two members before one real server; the first leads."""
    with members(2, behind=server) as (first, second):
        second.follows(first.leads(1))
        yield first, second


@pytest.mark.parametrize("push", [True, False])
async def test_a_job_whose_lease_survived_is_acked_at_the_new_leader_and_the_next_ones_come_from_there(
    server: Running, pair: tuple[Member, Member], push: bool
):
    """The first server is stopped while a job is handled: its connections stay open and say nothing."""
    first, second = pair
    queue = f"jobs-{push}"
    app = App(f"{first.url},{second.url}", client_settings=SETTINGS)
    begun: list[int] = []
    may_end = asyncio.Event()

    @app.task(queue, lease="60s", concurrency=1)
    async def handle(number: int) -> None:
        begun.append(number)
        await may_end.wait()

    with Client(server.url) as beside:
        async with app:
            await app.declare()
            await handle.put(1)
            worker = Worker(app, settings=WorkerSettings(reconnect_min_ms=1, reconnect_max_ms=20), push=push)
            running = asyncio.create_task(worker.run())
            await until(lambda: begun == [1])
            first.stop()
            second.leads(2)
            may_end.set()
            await until(lambda: any("/ack" in asked.path for asked in second.asked))
            first.kill()  # else the real server feeds the stream that nobody reads
            await handle.put(2)
            await until(lambda: begun == [1, 2])
            worker.stop()
            await running
        counts = beside.topic(queue).queue
    assert counts is not None
    assert (begun, counts.ready, counts.in_flight) == ([1, 2], 0, 0), "each job was handled once"


async def test_a_lease_that_was_lost_is_reported_as_with_one_server(server: Running, pair: tuple[Member, Member]):
    first, second = pair
    app = App(f"{first.url},{second.url}", client_settings=SETTINGS)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @app.task("lost", lease="3s", concurrency=1)
    async def handle(number: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with app:
        await app.declare()
        await handle.put(1)
        worker = Worker(app, settings=WorkerSettings(reconnect_min_ms=1, reconnect_max_ms=20))
        running = asyncio.create_task(worker.run())
        await until(begun.is_set)
        second.leads(2)
        async with AsyncClient(server.url) as beside:
            (lease,) = (await beside.leases("lost")).leases
            await beside.nack("lost", lease.seqs, node=lease.node)
        first.kill()  # its stream ends, and the real server is asked for what is held
        await asyncio.wait_for(cancelled.wait(), 60)
        worker.stop()
        worker.stop()
        await running
