"""The whole flow of a task on a broker in memory, on a clock in the test's hand, over a wire that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tenure import Broker
from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.client.transport.wire import AsyncStream, AsyncWire, Request, Response
from tenure.testing import ManualClock, ManualTiming, memory_broker
from tenure.testing.wire import AppWire
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.processes.executors import Executor, LoopExecutor
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.pace import Slots
from tenure.worker.runtime.runner import Runner
from tenure.worker.settings import WorkerSettings
from tenure.worker.task import Task

__all__ = ["Flow", "Listening", "flowing", "turns"]


class Listening:
    """Writes down what passes, answers streams with ``no_streams`` where that is given, and never answers what ends in
    ``holds``.
    """

    def __init__(self, wire: AsyncWire) -> None:
        self._wire = wire
        self.requests: list[Request] = []
        self.no_streams: Response | None = None
        self.holds: str | None = None

    def count(self, verb: str) -> int:
        return sum(request.path.partition("?")[0].endswith(verb) for request in self.requests)

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        if self.holds is not None and request.path.endswith(self.holds):
            await asyncio.Event().wait()
        return await self._wire.send(request)

    async def open(self, request: Request) -> AsyncStream:
        self.requests.append(request)
        if self.no_streams is not None:
            return _Refused(self.no_streams)
        return await self._wire.open(request)

    async def close(self) -> None:
        await self._wire.close()


class _Refused:
    def __init__(self, response: Response) -> None:
        self.response = response

    async def read(self) -> bytes:
        raise AssertionError("it was refused")

    def close(self) -> None:
        pass


async def turns(count: int = 50) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


class Flow:
    """Runners of tasks, and what is around them."""

    def __init__(self, broker: Broker, clock: ManualClock, **settings: Any) -> None:
        self.broker = broker
        self.clock = clock
        self.timing = ManualTiming(clock)
        self.app_wire = AppWire(broker)
        self.wire = Listening(self.app_wire)
        # No repeats within the client: those of the runtime are what is looked at.
        self.client = AsyncClient(wire=self.wire, node="w", settings=ClientSettings(attempts_max=1))
        # The stream's own heartbeats keep real time, so silence is judged by those tests that are about it.
        self.settings = WorkerSettings(**{"silence_ms": 86_400_000, **settings})
        self.slots = Slots(self.settings.concurrency)
        self.stats: dict[str, QueueStats] = {}
        self.runners: list[Runner] = []

    async def put(self, queue: str, count: int) -> None:
        await self.broker.produce(queue, [b"%d" % n for n in range(count)])
        await turns()

    async def start(self, *tasks: Task[Any], executor: Executor | None = None, suspects: bool = False) -> None:
        """Declare the queues of tasks and run them; on the loop, unless in ``executor``."""
        link = Link("memory")
        for task in tasks:
            await self.broker.put_topic(task.queue, task.options.queue_config())
            stats = self.stats[task.queue] = QueueStats()
            runner = Runner(
                task,
                backend=QueueBackend(self.client, task.options, link=link, suspects=suspects),
                timing=self.timing,
                settings=self.settings,
                stats=stats,
                slots=self.slots,
                executor=executor or LoopExecutor(),
            )
            self.runners.append(runner)
            runner.start()
        await turns()

    async def advance(self, ms: int, *, step_ms: int = 10) -> None:
        """Let time pass, a little at a time."""
        for _ in range(ms // step_ms):
            self.clock.advance(step_ms)
            await turns(20)

    async def until(self, condition: Callable[[], bool], *, ms: int = 60_000) -> None:
        """Let time pass until something holds."""
        for _ in range(ms // 50):
            if condition():
                return
            await self.advance(50, step_ms=50)
        raise AssertionError("it never happened")

    def counts(self, queue: str) -> tuple[int, int]:
        found = self.broker.topic(queue, touch=False).queue
        assert found is not None
        return found.ready, found.in_flight

    async def drain(self) -> None:
        """End the runners; time is moved for them."""
        hurry = asyncio.Event()
        hurry.set()
        runners, self.runners = self.runners, []
        ends = [asyncio.ensure_future(runner.drain(hurry)) for runner in runners]
        while not all(end.done() for end in ends):
            await self.advance(10)
        for end in ends:
            end.result()


@asynccontextmanager
async def flowing(**settings: Any) -> AsyncIterator[Flow]:
    """A flow that is drained at the end."""
    clock = ManualClock()
    async with memory_broker(clock) as broker:
        flow = Flow(broker, clock, **settings)
        try:
            yield flow
        finally:
            await flow.drain()
            await flow.client.close()
