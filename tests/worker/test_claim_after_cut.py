"""A claim that is cut after the broker carried it out: its jobs are found by its id, to give them back."""

from __future__ import annotations

import asyncio

from tenure import AsyncClient
from tenure.client import Request, Response
from tenure.client.transport.wire import AsyncStream, AsyncWire
from tenure.testing import memory_broker
from tenure.testing.wire import AppWire
from tenure.worker.backends.queue_source import QueueSource
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed
from tenure.worker.runtime.timing import SystemTiming
from tenure.worker.settings import WorkerSettings


class HeldClaim:
    """Keeps the answer to the first claim that gave a job until its caller is cut off."""

    def __init__(self, wire: AsyncWire) -> None:
        self._wire = wire
        self.holding = asyncio.Event()

    async def send(self, request: Request) -> Response:
        response = await self._wire.send(request)
        if b'"claimed":[{' in response.body and not self.holding.is_set():
            self.holding.set()
            await asyncio.Event().wait()
        return response

    async def open(self, request: Request) -> AsyncStream:
        raise AssertionError("jobs are claimed here")

    async def close(self) -> None:
        await self._wire.close()


def feed(delivered: list[HeldJob]) -> Feed:
    async def deliver(jobs: list[HeldJob], claimed_wall_ms: int) -> None:
        delivered.extend(jobs)

    async def nothing() -> None:
        pass

    return Feed(
        depth=5,
        spare=1,
        timing=SystemTiming(),
        settings=WorkerSettings(),
        stats=QueueStats(),
        room=lambda: 5,
        deliver=deliver,
        on_open=nothing,
        on_cut=nothing,
        hear_suspects=lambda count: None,
    )


async def test_a_worker_that_stops_in_the_middle_of_a_claim_gets_its_jobs_to_give_them_back() -> None:
    """Fault 37."""
    async with memory_broker() as broker:
        wire = HeldClaim(AppWire(broker))
        async with AsyncClient(wire=wire, node="me") as client:
            await client.put_topic("q", type="queue")
            await client.produce("q", [1, 2])
            delivered: list[HeldJob] = []
            link = Link("here")
            source = QueueSource(client, "q", feed=feed(delivered), link=link, lease_ms=60_000, push=False)
            source.start()
            await wire.holding.wait()
            assert delivered == []
            await source.stop()
            assert [(job.seq, job.deliveries) for job in delivered] == [(1, 1), (2, 1)]
            lost = await client.ack("q", [job.seq for job in delivered], lease_ids=[job.lease_id for job in delivered])
            assert (lost.count, lost.skipped) == (2, [])
