"""The first puts of a queue, all at once: gathered as later ones are, and none answers for another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tenure import App
from tenure.client.client import AsyncClient, Client
from tenure.client.transport.wire import AsyncStream, Request, Response
from tenure.errors import Denied, Indeterminate
from tenure.testing import memory_broker
from tenure.testing.wire import AppWire, ThreadWire
from tenure.worker.task import Task

PUTS = 10_000
THREADS = 200
PATIENCE_S = 60.0
FORBIDDEN = Response(403, b'{"error":{"code":"forbidden","message":"not with this key"}}')


@dataclass
class CountingWire:
    """Counts requests; the first may be held back, and then answered with ``answer``, or by the broker."""

    wire: AppWire
    count: int = 0
    answer: Response | None = None
    first_came: asyncio.Event = field(default_factory=asyncio.Event)
    may_pass: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, request: Request) -> Response:
        self.count += 1
        if self.count == 1:
            self.first_came.set()
            await self.may_pass.wait()
            if self.answer is not None:
                return self.answer
        return await self.wire.send(request)

    async def open(self, request: Request) -> AsyncStream:
        return await self.wire.open(request)

    async def close(self) -> None:
        await self.wire.close()


@asynccontextmanager
async def counted() -> AsyncIterator[tuple[CountingWire, Task[int]]]:
    app = App()

    @app.task("jobs")
    async def handle(n: int) -> None: ...

    async with memory_broker() as broker:
        wire = CountingWire(AppWire(broker))
        blocking = Client(node="threads", wire=ThreadWire(wire, asyncio.get_running_loop()))
        async with app.through(AsyncClient(node="loop", wire=wire), blocking):
            yield wire, handle


async def test_ten_thousand_first_puts_cost_as_many_requests_as_later_ones():
    async with counted() as (wire, task):
        wire.may_pass.set()
        cold = await asyncio.gather(*(task.put(n) for n in range(PUTS)))
        cold_count = wire.count
        await asyncio.gather(*(task.put(n) for n in range(PUTS)))
        warm_count = wire.count - cold_count
        assert sorted(cold) == list(range(1, PUTS + 1))
        assert cold_count <= warm_count + 1 <= PUTS // 100


async def test_puts_that_come_while_the_first_is_on_its_way_go_together():
    async with counted() as (wire, task):
        first = asyncio.create_task(task.put(0))
        await wire.first_came.wait()
        others = [asyncio.create_task(task.put(n)) for n in range(1, 500)]
        await asyncio.sleep(0)
        wire.may_pass.set()
        assert await first == 1
        assert await asyncio.gather(*others) == list(range(2, 501))
        assert wire.count == 2


async def test_a_first_put_that_is_refused_leaves_the_others_alone():
    async with counted() as (wire, task):
        wire.answer = FORBIDDEN
        first = asyncio.create_task(task.put(0))
        await wire.first_came.wait()
        others = [asyncio.create_task(task.put(n)) for n in range(1, 500)]
        await asyncio.sleep(0)
        wire.may_pass.set()
        with pytest.raises(Denied):
            await first
        assert await asyncio.gather(*others) == list(range(1, 500))
        assert wire.count == 2


async def test_a_first_put_that_is_cancelled_strands_nobody():
    async with counted() as (wire, task):
        first = asyncio.create_task(task.put(0))
        await wire.first_came.wait()
        others = [asyncio.create_task(task.put(n)) for n in range(1, 500)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        wire.may_pass.set()
        assert await asyncio.gather(*others) == list(range(2, 501)), "the first was on its way, and was stored"
        assert wire.count == 2


async def test_first_puts_of_many_threads_go_together():
    async with counted() as (wire, task), put_by_threads(task, range(THREADS)) as outcomes:
        await wire.first_came.wait()
        await until(lambda: entered(task) == THREADS)
        wire.may_pass.set()
        await until(lambda: len(outcomes) == THREADS)
        assert sorted(outcomes.values()) == list(range(1, THREADS + 1))  # type: ignore[type-var]
        assert wire.count == 2


async def test_a_first_put_of_a_thread_that_is_refused_leaves_the_others_alone():
    async with counted() as (wire, task), put_by_threads(task, range(THREADS)) as outcomes:
        wire.answer = FORBIDDEN
        await wire.first_came.wait()
        await until(lambda: entered(task) == THREADS)
        wire.may_pass.set()
        await until(lambda: len(outcomes) == THREADS)
        refused = [outcome for outcome in outcomes.values() if isinstance(outcome, Denied)]
        assert (len(refused), wire.count) == (1, 2)
        assert len([outcome for outcome in outcomes.values() if isinstance(outcome, int)]) == THREADS - 1


def entered(task: Task[int]) -> int:
    """How many threads have put, whatever has come of it."""
    blocking = task.app._clients._blocking
    producers = blocking._producers if blocking is not None else {}
    return producers["jobs"]._batcher.next_number - 1 if "jobs" in producers else 0


@asynccontextmanager
async def put_by_threads(task: Task[int], numbers: range) -> AsyncIterator[dict[int, int | Exception]]:
    """One thread per put; each writes down its outcome."""
    outcomes: dict[int, int | Exception] = {}

    def put(n: int) -> None:
        try:
            outcomes[n] = task.blocking.put(n)
        except (Denied, Indeterminate) as error:
            outcomes[n] = error

    threads = [threading.Thread(target=put, args=(n,)) for n in numbers]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        for thread in threads:
            await asyncio.to_thread(thread.join, PATIENCE_S)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.005)
