"""Lanes: as many as calls in flight, at most so many, and never one per put."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from tenure import AsyncClient, Client, Overloaded
from tenure.client import ClientSettings
from tenure.client.plan.drive import _take, _take_async
from tenure.client.plan.producer_lanes import ProducerLane, ProducerLanes
from tenure.testing import memory_broker
from tenure.testing.wire import AppWire, LossyWire, ThreadWire


def never(lane: ProducerLane) -> bool:
    raise AssertionError("nobody waits here")


def taken(lanes: ProducerLanes) -> ProducerLane:
    lane = lanes.take(never)
    assert lane is not None
    return lane


def test_the_lane_used_last_is_taken_first() -> None:
    lanes = ProducerLanes(8)
    first, second = taken(lanes), taken(lanes)
    lanes.give(first)
    lanes.give(second)
    assert [taken(lanes) for _ in range(2)] == [second, first]
    assert lanes.count == 2


def test_whoever_waits_gets_the_next_free_lane_in_turn_and_who_gave_up_does_not() -> None:
    lanes = ProducerLanes(1)
    lane = taken(lanes)
    got: list[ProducerLane] = []

    def third(lane: ProducerLane) -> bool:
        got.append(lane)
        return True

    forgotten = lambda lane: True  # noqa: E731
    assert lanes.take(forgotten) is None
    assert lanes.take(lambda lane: False) is None
    assert lanes.take(third) is None
    lanes.forget(forgotten)
    lanes.give(lane)
    assert got == [lane]


class Counted:
    """Waits for a lane, and counts how often it is compared with another."""

    compared = 0

    def __call__(self, lane: ProducerLane) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_giving_up_costs_the_same_however_many_wait() -> None:
    lanes = ProducerLanes(1)
    taken(lanes)
    waiting = [Counted() for _ in range(2_000)]
    for one in waiting:
        assert lanes.take(one) is None
    for one in reversed(waiting):
        lanes.forget(one)
    assert Counted.compared < len(waiting)
    lanes.forget(waiting[0])


async def test_a_lane_that_comes_as_its_caller_is_cancelled_goes_to_the_next() -> None:
    lanes = ProducerLanes(1)
    lane = taken(lanes)
    waiting = [asyncio.create_task(_take_async(lanes, 60_000)) for _ in range(2)]
    await asyncio.sleep(0)
    lanes.give(lane)
    waiting[0].cancel()
    assert await waiting[1] is lane
    lanes.give(lane)
    assert taken(lanes) is lane
    assert waiting[0].cancelled()


def test_a_lane_that_comes_as_its_caller_is_interrupted_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = ProducerLanes(1)
    lane = taken(lanes)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            lanes.give(lane)
            raise KeyboardInterrupt

    monkeypatch.setattr("tenure.client.plan.drive.threading.Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        _take(lanes, 60_000)
    assert taken(lanes) is lane


FORKING = """
import os
from tenure.client.plan.producer_lanes import ProducerLanes
lanes = ProducerLanes(2)
before = lanes.take(lambda lane: False)
child = os.fork()
if child == 0:
    lanes.give(before)
else:
    os.waitpid(child, 0)
after = lanes.take(lambda lane: False)
os.write(1, f"{before.client_id} {after.client_id}\\n".encode())
"""


def test_a_forked_process_has_lanes_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, timeout=60)
    (first, ours), (again, theirs) = (line.split() for line in done.stdout.splitlines())
    assert first == again
    assert len({first, ours, theirs}) == 3


async def test_the_broker_keeps_a_mark_per_lane_and_not_per_put() -> None:
    settings = ClientSettings(connections_max=4)
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker), settings=settings) as client:
        for number in range(50):
            await client.produce("alone", [number])
        marks = broker._engine.state.topics["alone"].marks
        assert marks is not None
        assert len(marks) == 1
        await asyncio.gather(*(client.produce("many", [number]) for number in range(200)))
        marks = broker._engine.state.topics["many"].marks
        assert marks is not None
        assert len(marks) == 4
        assert broker.topic("many").count == 200


async def test_where_the_caller_names_the_append_no_lane_is_used() -> None:
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
        await client.produce("t", [1], idempotency_key="k")
        assert not broker._engine.state.topics["t"].marks
        assert client._context.lanes.count == 0


async def test_a_cancelled_call_gives_its_lane_back() -> None:
    settings = ClientSettings(connections_max=1)
    async with memory_broker() as broker:
        wire = LossyWire(AppWire(broker), lose_request=range(1, 100))
        async with AsyncClient(wire=wire, settings=settings) as client:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await client.produce("t", [1])
            waiting = asyncio.ensure_future(client.produce("t", [1]))
            await asyncio.sleep(0)
            also = asyncio.ensure_future(client.produce("t", [1]))
            await asyncio.sleep(0)
            waiting.cancel()
            also.cancel()
            await asyncio.gather(waiting, also, return_exceptions=True)
            wire.lose_nothing()
            assert (await client.produce("t", [1])).count == 1
            assert client._context.lanes.count == 1


async def test_waiting_for_a_lane_has_an_end() -> None:
    settings = ClientSettings(connections_max=1, acquire_ms=20)
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker), settings=settings) as client:
        held = client._context.lanes.take(never)
        assert held is not None
        with pytest.raises(Overloaded) as caught:
            await client.produce("t", [1])
        assert caught.value.code == "busy"
        blocking = Client(wire=ThreadWire(AppWire(broker), asyncio.get_running_loop()), settings=settings)
        lane = blocking._context.lanes.take(never)
        with pytest.raises(Overloaded):
            await asyncio.to_thread(blocking.produce, "t", [1])
        assert lane is not None
        waiting = asyncio.ensure_future(asyncio.to_thread(Client.produce.__get__(blocking, Client), "t", [1]))
        blocking._context.lanes.give(lane)
        assert (await waiting).count == 1


async def test_threads_share_the_lanes_of_a_client() -> None:
    settings = ClientSettings(connections_max=2)
    async with memory_broker() as broker:
        client = Client(wire=ThreadWire(AppWire(broker), asyncio.get_running_loop()), settings=settings)

        def work() -> None:
            for number in range(20):
                client.produce("t", [number])

        await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
        marks = broker._engine.state.topics["t"].marks
        assert marks is not None
        assert len(marks) <= 2
        assert broker.topic("t").count == 80
