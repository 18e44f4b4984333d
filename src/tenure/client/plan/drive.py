"""The two drivers, which carry out the steps of a plan: in a thread, and on an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, TypeVar

from tenure.client.plan.producer_ids import Lane, Lanes
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


def _take(lanes: Lanes, wait_ms: int) -> Lane:
    given: list[Lane] = []
    arrived = threading.Event()

    def taker(lane: Lane) -> bool:
        given.append(lane)
        arrived.set()
        return True

    lane = lanes.take(taker)
    if lane is not None:
        return lane
    try:
        arrived.wait(wait_ms / 1000)
    except BaseException:  # an interrupt: what came meanwhile goes to the next
        lanes.forget(taker)
        if given:
            lanes.give(given[0])
        raise
    lanes.forget(taker)
    if not given:
        raise _busy()
    return given[0]


async def drive_async(wire: AsyncWire, plan: Plan[T]) -> T:
    """Carry out a plan on the running loop and return its result. Cancelling ends the plan where it stands."""
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


async def _take_async(lanes: Lanes, wait_ms: int) -> Lane:
    coming: asyncio.Future[Lane] = asyncio.get_running_loop().create_future()

    def taker(lane: Lane) -> bool:
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
