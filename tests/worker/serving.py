"""A whole worker on a broker in memory, on a clock in the test's hand, over a wire that holds back what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tenure import Broker
from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.client.transport.wire import AsyncStream, Request, Response, WireError
from tenure.testing import ManualClock, ManualTiming, memory_broker
from tenure.testing.wire import AppWire
from tenure.worker.app import App
from tenure.worker.runtime.worker import Worker
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns

__all__ = ["MemoryApp", "Serving", "serving"]


class HoldingWire:
    """Refuses what ``refuses`` takes, and never answers what ``holds`` takes."""

    def __init__(self, wire: AppWire) -> None:
        self._wire = wire
        self.refuses: Callable[[Request], bool] = lambda request: False
        self.holds: Callable[[Request], bool] = lambda request: False
        self.held: list[Request] = []

    async def send(self, request: Request) -> Response:
        await self._let_pass(request)
        return await self._wire.send(request)

    async def open(self, request: Request) -> AsyncStream:
        await self._let_pass(request)
        return await self._wire.open(request)

    async def close(self) -> None:
        await self._wire.close()

    async def _let_pass(self, request: Request) -> None:
        if self.refuses(request):
            raise WireError("connection refused", sent=False)
        if self.holds(request):
            self.held.append(request)
            await asyncio.Event().wait()


class MemoryApp(App):
    """An app whose clients all lead into one wire."""

    wire: HoldingWire

    def new_client(self, *, more_streams: int = 0) -> AsyncClient:
        return AsyncClient(wire=self.wire, settings=ClientSettings(attempts_max=1))


class Serving:
    """A broker, its clock, and the worker of one app."""

    def __init__(self, broker: Broker, clock: ManualClock, app: MemoryApp, **settings: Any) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = app.wire = HoldingWire(AppWire(broker))
        self.worker = Worker(
            app, timing=ManualTiming(clock), settings=WorkerSettings(**{"silence_ms": 86_400_000, **settings})
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self.worker.run())
        await turns()

    async def until(self, condition: Callable[[], bool], *, ms: int = 60_000) -> None:
        """Let time pass until something holds."""
        for _ in range(ms // 50):
            if condition():
                return
            self.clock.advance(50)
            await turns(20)
        raise AssertionError("it never happened")

    async def end(self) -> None:
        """Stop the worker; asked twice, so that nothing is waited for."""
        assert self._running is not None
        self.worker.stop()
        self.worker.stop()
        await self.until(self._running.done)
        await self._running


@asynccontextmanager
async def serving(app: MemoryApp, **settings: Any) -> AsyncIterator[Serving]:
    """A worker that is ended with the block."""
    clock = ManualClock()
    async with memory_broker(clock) as broker:
        at = Serving(broker, clock, app, **settings)
        yield at
        await at.end()
