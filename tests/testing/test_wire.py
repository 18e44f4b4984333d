"""The wires for tests: a client on a broker in memory, without a socket, and one that loses what it is told to."""

from __future__ import annotations

import asyncio
import doctest

import pytest

from tenure import AsyncClient, Client, Indeterminate, NotFound, Overloaded
from tenure.client import ClientSettings
from tenure.testing import ManualClock, memory_broker, wire
from tenure.testing.wire import AppWire, LossyWire, ThreadWire

QUICK = ClientSettings(backoff_min_ms=0, attempts_max=3)


def test_the_example_runs() -> None:
    assert doctest.testmod(wire).failed == 0


async def test_a_client_speaks_to_a_broker_in_memory_on_a_clock_of_the_tests_own() -> None:
    clock = ManualClock()
    async with memory_broker(clock) as broker, AsyncClient(wire=AppWire(broker), node="w") as client:
        await client.put_topic("q", type="queue", lease_ms=1_000)
        await client.produce("q", [{"n": 1}])
        assert (await client.claim("q")).jobs[0].deliveries == 1
        clock.advance(1_001)
        again = await client.claim("q")
        assert (again.jobs[0].deliveries, bytes(again.jobs[0].data)) == (2, b'{"n":1}')
        with pytest.raises(NotFound):
            await client.topic("nowhere")
        assert "tenure_" in await client.metrics()


async def test_a_claim_that_waits_is_woken_and_a_cancelled_one_takes_nothing() -> None:
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
        await client.put_topic("q", type="queue")
        first, second = (asyncio.ensure_future(client.claim("q", wait_ms=10_000)) for _ in range(2))
        for _ in range(5):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await client.produce("q", [1])
        assert [job.seq for job in (await second).jobs] == [1]


async def test_streams_run_and_break_when_the_wire_goes_down() -> None:
    async with memory_broker() as broker:
        line = AppWire(broker)
        async with AsyncClient(wire=line, settings=QUICK) as client:
            await client.put_topic("q", type="queue")
            await client.produce("q", [1])
            async with client.work("q") as work:
                while not (jobs := await anext(work)):
                    pass
                assert [job.seq for job in jobs] == [1]
                line.down = True
                with pytest.raises(Overloaded) as caught:
                    await anext(work)
                assert caught.value.code == "disconnected"
            with pytest.raises(Overloaded) as refused:
                await client.topic("q")
            assert refused.value.code == "unreachable"
            line.down = False
            counts = (await client.topic("q")).queue
            assert counts is not None
            assert counts.ready == 1, "its jobs were given back when the line broke"


async def test_a_blocking_client_reaches_the_same_broker_from_a_thread() -> None:
    async with memory_broker() as broker:
        line = ThreadWire(AppWire(broker), asyncio.get_running_loop())

        def work() -> list[int]:
            with Client(wire=line) as client:
                queue = client.queue("q")
                queue.put_many([1, 2])
                with client.work("q", max_count=2) as feed:
                    for jobs in feed:
                        if jobs:
                            return [job.seq for job in jobs]
            return []

        assert await asyncio.to_thread(work) == [1, 2]


async def test_a_lossy_wire_loses_what_it_is_told_to() -> None:
    async with memory_broker() as broker:
        line = LossyWire(
            AppWire(broker),
            refuse={1},
            lose_request={2},
            lose_answer={3},
            only=lambda request: request.method == "POST",
        )
        async with AsyncClient(wire=line, settings=QUICK) as client:
            await client.put_topic("t")
            with pytest.raises(Indeterminate):
                await client.produce("t", [1])
            assert (line.count, broker.topic("t").count) == (3, 1)
            assert len({request.body for request in line.sent}) == 1
