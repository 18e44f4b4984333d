"""The two drivers of plans: `drive` in a thread, `drive_async` on an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, TypeVar

from tenure.client.plan.producer_lanes import ProducerLane, ProducerLanes
from tenure.client.plan.steps import Open, Plan, Read, Send, Sleep, Step, Take
from tenure.client.transport.wire import AsyncWire, Wire, WireError
from tenure.errors import Overloaded

__all__ = ["drive", "drive_async"]

T = TypeVar("T")


def drive(wire: Wire, plan: Plan[T]) -> T:
    """Carry out a plan in this thread and return its result."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = _carry_out(wire, step)
            except WireError as error:
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        plan.close()


def _carry_out(wire: Wire, step: Step) -> Any:
    match step:
        case Send():
            return wire.send(step.request)
        case Sleep():
            return time.sleep(step.seconds)
        case Read():
            return step.stream.read()
        case Open():
            return wire.open(step.request)
        case Take():
            return _take(step.lanes, step.wait_ms)


def _take(lanes: ProducerLanes, wait_ms: int) -> ProducerLane:
    given: list[ProducerLane] = []
    arrived = threading.Event()

    def taker(lane: ProducerLane) -> bool:
        given.append(lane)
        arrived.set()
        return True

    lane = lanes.take(taker)
    if lane is not None:
        return lane
    try:
        arrived.wait(wait_ms / 1000)
    except BaseException:  # an interrupt: a lane that came meanwhile goes to the next call
        lanes.forget(taker)
        if given:
            lanes.give(given[0])
        raise
    lanes.forget(taker)
    if not given:
        raise _busy()
    return given[0]


async def drive_async(wire: AsyncWire, plan: Plan[T]) -> T:
    """Carry out a plan on the running loop and return its result. Cancelling ends the plan at its current step."""
    try:
        step = next(plan)
        while True:
            try:
                outcome = await _carry_out_async(wire, step)
            except WireError as error:
                step = plan.throw(error)
            else:
                step = plan.send(outcome)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        plan.close()


async def _carry_out_async(wire: AsyncWire, step: Step) -> Any:
    match step:
        case Send():
            return await wire.send(step.request)
        case Sleep():
            return await asyncio.sleep(step.seconds)
        case Read():
            return await step.stream.read()
        case Open():
            return await wire.open(step.request)
        case Take():
            return await _take_async(step.lanes, step.wait_ms)


async def _take_async(lanes: ProducerLanes, wait_ms: int) -> ProducerLane:
    coming: asyncio.Future[ProducerLane] = asyncio.get_running_loop().create_future()

    def taker(lane: ProducerLane) -> bool:
        if coming.done():
            return False
        coming.set_result(lane)
        return True

    lane = lanes.take(taker)
    if lane is not None:
        return lane
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await coming
    except BaseException as error:
        lanes.forget(taker)
        if coming.done() and not coming.cancelled():
            lanes.give(coming.result())
        if isinstance(error, TimeoutError):
            raise _busy() from None
        raise


def _busy() -> Overloaded:
    return Overloaded("every lane of this client is in use: send less at once, or raise connections_max", code="busy")
