"""Callers that go away: before they await for the first time, while they wait, and without ever awaiting."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest

from tenure import Broker, Overloaded, Settings
from tenure.errors import Closed, TenureError
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, numbers, start, turn

WAIT_MS = 30_000


async def gone(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and see it end as cancelled."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turn()


def in_a_task(broker: Broker) -> asyncio.Future[Any]:
    return asyncio.ensure_future(broker.claim("q", node="gone", wait_ms=WAIT_MS))


def in_a_gathering(broker: Broker) -> asyncio.Future[Any]:
    return asyncio.gather(broker.claim("q", node="gone", wait_ms=WAIT_MS))


def under_a_timeout(broker: Broker) -> asyncio.Future[Any]:
    return asyncio.ensure_future(asyncio.wait_for(broker.claim("q", node="gone", wait_ms=WAIT_MS), 10))


@pytest.mark.parametrize("how", [in_a_task, in_a_gathering, under_a_timeout])
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_a_claim_that_waits_takes_nothing_once_its_caller_is_gone(
    broker: Broker, how: Callable[[Broker], asyncio.Future[Any]], turns: int
) -> None:
    await make_queue(broker, lease_ms=600_000)
    task = how(broker)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del task
    gc.collect()
    await turn()
    assert broker._serving.coordinator.waiting == 0
    assert len(broker._serving.alarms) == 0, "nor does it claim at the end of its time"
    await broker.produce("q", [b"1"])
    claim = await broker.claim("q", node="alive")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 1)


async def test_a_claim_that_was_handed_a_job_before_its_first_step_gives_it_back(broker: Broker) -> None:
    await make_queue(broker, lease_ms=600_000)
    task = asyncio.ensure_future(broker.claim("q", node="gone", wait_ms=WAIT_MS))
    broker.produce("q", [b"1"])
    assert numbers(broker)["in_flight"] == 1
    await gone(task)
    assert numbers(broker)["in_flight"] == 0


@pytest.mark.parametrize("make", [asyncio.ensure_future, asyncio.create_task])
async def test_a_claim_whose_task_is_cancelled_at_once_holds_nothing_though_the_task_is_kept(
    broker: Broker, make: Callable[[Any], asyncio.Future[Any]]
) -> None:
    await make_queue(broker, lease_ms=600_000)
    kept = [make(broker.claim("q", node="gone", wait_ms=WAIT_MS)) for _ in range(2)]
    for task in kept:
        task.cancel()
    broker.produce("q", [b"1"])
    await turn()
    assert numbers(broker)["in_flight"] == 0
    assert all(task.cancelled() for task in kept)


async def test_a_claim_that_is_dropped_without_being_awaited_waits_no_more(broker: Broker) -> None:
    await make_queue(broker)
    claim = broker.claim("q", node="gone", wait_ms=WAIT_MS)
    assert broker._serving.coordinator.waiting == 1
    del claim
    await turn()
    assert broker._serving.coordinator.waiting == 0


async def test_a_claim_that_is_cancelled_waits_no_more(broker: Broker) -> None:
    await make_queue(broker)
    claim = broker.claim("q", node="gone", wait_ms=WAIT_MS)
    claim.cancel()
    claim.cancel()
    assert broker._serving.coordinator.waiting == 0


async def test_an_answered_claim_is_not_given_back_by_being_dropped(broker: Broker) -> None:
    await make_queue(broker)
    waiting = asyncio.ensure_future(broker.claim("q", node="w", wait_ms=WAIT_MS))
    await turn()
    await broker.produce("q", [b"1"])
    await waiting
    del waiting
    gc.collect()
    await turn()
    assert numbers(broker)["in_flight"] == 1


async def test_a_claim_dropped_by_another_thread_after_the_broker_is_closed_harms_nobody(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    await make_queue(broker)
    claim = broker.claim("q", node="gone", wait_ms=WAIT_MS)
    await broker.close()
    with pytest.raises(Closed):
        await claim
    del claim


@pytest.mark.parametrize("config", [{}, {"leases_durable": True}])
async def test_a_claim_without_a_wait_is_given_back_where_it_is_cancelled_before_it_is_durable(
    clock: ManualClock, config: dict[str, Any]
) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=600_000, **config)
        await broker.synced()
        log.gate.clear()

        async def claims() -> None:
            await broker.claim("q", node="gone")

        task = asyncio.ensure_future(claims())
        await asyncio.sleep(0)  # it is carried out, and waits for its write
        assert broker._state.topics["q"].queue.in_flight  # type: ignore[union-attr]
        await gone(task)
        assert numbers(broker)["in_flight"] == 0
        log.gate.set()


async def test_a_durable_claim_cancelled_before_its_first_step_is_given_back(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=600_000, leases_durable=True)
        await broker.synced()
        log.gate.clear()
        await gone(asyncio.ensure_future(broker.claim("q", node="gone")))
        assert numbers(broker)["in_flight"] == 0
        log.gate.set()


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_read_that_waits_is_over_once_its_caller_is_gone(broker: Broker, turns: int) -> None:
    await broker.put_topic("t")
    task = asyncio.ensure_future(broker.diff("t", wait_ms=WAIT_MS))
    for _ in range(turns):
        await asyncio.sleep(0)
    await gone(task)
    assert broker._serving.lines._reads == {}
    assert len(broker._serving.alarms) == 0


async def test_a_read_that_is_dropped_without_being_awaited_waits_no_more(broker: Broker) -> None:
    await broker.put_topic("t")
    reading = broker.diff("t", wait_ms=WAIT_MS)
    assert broker._serving.lines._reads
    del reading
    await turn()
    assert broker._serving.lines._reads == {}


async def test_a_wait_that_is_refused_has_nothing_to_leave(clock: ManualClock) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with await Broker.open(None, clock=clock, settings=Settings(waiters_max=1)) as broker:
        await make_queue(broker)
        waiting = await start(broker.diff("q", wait_ms=WAIT_MS))
        for refused in (broker.diff, functools.partial(broker.claim, node="w")):
            with pytest.raises(Overloaded):
                refused("q", wait_ms=WAIT_MS)
        gc.collect()
        await turn()
        assert reported == []
        waiting.cancel()


# Where nothing can be given back


@pytest.fixture(params=[Overloaded("no room", code="disk_full"), Closed("the log has failed")])
def refusal(request: pytest.FixtureRequest) -> TenureError:
    error: TenureError = request.param
    return error


def refuse_writes(broker: Broker, monkeypatch: pytest.MonkeyPatch, refusal: TenureError) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise refusal

    monkeypatch.setattr(broker._engine.log, "append", refuse)
    monkeypatch.setattr(broker._engine.log, "append_one", refuse)


async def test_a_release_that_is_refused_is_no_concern_of_those_who_leave(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, refusal: TenureError
) -> None:
    await make_queue(broker, lease_ms=1_000)
    waiting = await start(broker.claim("q", node="n", wait_ms=WAIT_MS))
    streams = [broker.work("q", node=f"w{number}") for number in range(3)]
    broker.produce("q", [b"x"] * 4)
    assert numbers(broker)["in_flight"] == 4
    with monkeypatch.context() as patch:
        refuse_writes(broker, patch, refusal)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        streams[0].close()
        assert broker.detach() == 2
        assert broker._serving.coordinator.waiting == 0
    assert numbers(broker)["in_flight"] == 4
    clock.advance(1_001)
    assert numbers(broker)["ready"] == 4, "it runs out by itself"
