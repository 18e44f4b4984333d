"""An app whose puts lead straight into a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.broker.broker import Broker
from tenure.client.client import AsyncClient, Client
from tenure.contract.replies import ConfigInfo
from tenure.testing import ManualClock, memory_broker
from tenure.testing.wire import AppWire, ThreadWire
from tenure.worker.app import App


class Line:
    """What a test looks at: the broker, its clock, and a client of its own."""

    def __init__(self, broker: Broker, clock: ManualClock, wire: AppWire) -> None:
        self.broker = broker
        self.clock = clock
        self.client = AsyncClient(node="test", wire=wire)

    def config(self, queue: str) -> ConfigInfo:
        return self.broker.topic(queue).config

    async def claimed(self, queue: str, count: int = 100) -> list[bytes]:
        """Claim and complete what is there, and give back the payloads."""
        return [bytes(job.data) for job in (await self.client.claim(queue, max_count=count, auto_ack=True)).jobs]


@asynccontextmanager
async def lines(app: App) -> AsyncIterator[Line]:
    clock = ManualClock()
    async with memory_broker(clock) as broker:
        wire = AppWire(broker)
        blocking = Client(node="blocking", wire=ThreadWire(wire, asyncio.get_running_loop()))
        async with app.through(AsyncClient(node="app", wire=wire), blocking):
            yield Line(broker, clock, wire)
