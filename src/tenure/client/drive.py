"""The two drivers, which carry out the steps of a plan, and the descriptors that make methods of plans.

`Blocking(plan)` and `Awaiting(plan)` in a class body turn ``plan(core, …)`` into a method with the arguments after the
first; `ParamSpec` carries the signature through, so that both kinds of client have every call from one definition.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from tenure.client.lanes import Lane, Lanes
from tenure.client.plan import Open, Plan, Read, Send, Sleep, Step, Take
from tenure.client.wire import AsyncWire, Wire, WireError
from tenure.errors import Overloaded

__all__ = ["Awaited", "Awaiting", "Blocked", "Blocking", "drive", "drive_async"]

T = TypeVar("T")
C_co = TypeVar("C_co", covariant=True)
C = TypeVar("C")
P = ParamSpec("P")


class Blocked(Protocol[C_co]):
    """What has blocking methods: a wire, and the first argument of its plans."""

    @property
    def _wire(self) -> Wire: ...

    @property
    def _core(self) -> C_co: ...


class Awaited(Protocol[C_co]):
    """As Blocked, on an event loop."""

    @property
    def _wire(self) -> AsyncWire: ...

    @property
    def _core(self) -> C_co: ...


class Blocking(Generic[C, P, T]):
    """A method of a blocking client, made of a plan. To a type checker it is a descriptor; at run time a plain function
    takes its place, so that ``help``, `inspect` and mocks see what they see of any method.
    """

    def __init__(self, plan: Callable[Concatenate[C, P], Plan[T]]) -> None:
        self._plan = plan

    def __set_name__(self, owner: type, name: str) -> None:
        plan: Callable[..., Plan[T]] = self._plan

        def method(self: Blocked[Any], *args: Any, **options: Any) -> T:
            return drive(self._wire, plan(self._core, *args, **options))

        setattr(owner, name, _dressed(method, plan, f"{owner.__qualname__}.{name}"))

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Blocked[C], P], T]: ...
        @overload
        def __get__(self, instance: Blocked[C], owner: type) -> Callable[P, T]: ...
        def __get__(self, instance: Blocked[C] | None, owner: type) -> Callable[..., T]: ...


class Awaiting(Generic[C, P, T]):
    """As Blocking, a method of an asynchronous client."""

    def __init__(self, plan: Callable[Concatenate[C, P], Plan[T]]) -> None:
        self._plan = plan

    def __set_name__(self, owner: type, name: str) -> None:
        plan: Callable[..., Plan[T]] = self._plan

        async def method(self: Awaited[Any], *args: Any, **options: Any) -> T:
            return await drive_async(self._wire, plan(self._core, *args, **options))

        setattr(owner, name, _dressed(method, plan, f"{owner.__qualname__}.{name}"))

    if TYPE_CHECKING:

        @overload
        def __get__(
            self, instance: None, owner: type
        ) -> Callable[Concatenate[Awaited[C], P], Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, instance: Awaited[C], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, instance: Awaited[C] | None, owner: type) -> Callable[..., Coroutine[Any, Any, T]]: ...


def _dressed(method: Any, plan: Callable[..., Any], qualname: str) -> Any:
    """A method that looks like what it does: the arguments of its plan after the first, and what the plan returns."""
    said = inspect.signature(plan)
    first, *rest = said.parameters.values()
    itself = inspect.Parameter("self", first.kind)
    returns = str(said.return_annotation).removeprefix("Plan[").removesuffix("]")
    method.__signature__ = said.replace(parameters=[itself, *rest], return_annotation=returns)
    method.__doc__ = plan.__doc__
    method.__qualname__, method.__name__ = qualname, qualname.rpartition(".")[2]
    return method


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
