"""A process of a member: the product's `SharedHome` with the broker that it opens, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

from tenure.broker.broker import Broker
from tenure.broker.open import Replay
from tenure.broker.warm_state import WarmState
from tenure.core.state.state import State
from tenure.errors import Conflict, NotLeader, Overloaded, TenureError
from tenure.http.settings import ServerSettings
from tenure.http.shared_home import SharedHome
from tests.chain.members.loop import MembersLoop
from tests.chain.worlds.blocking import owner

if TYPE_CHECKING:
    from tests.chain.members.machine import Machine

__all__ = ["Process"]

T = TypeVar("T")


class Process:
    """One life of the process of a machine: the owner of its tasks, the stage of its home, a caller of the store."""

    def __init__(self, machine: Machine, settings: ServerSettings) -> None:
        self.machine = machine
        self.name = machine.name
        self.broker: Broker | None = None
        self.home: SharedHome
        self.is_stopped = False
        self.is_dead = False
        self.parked: list[asyncio.Handle] = []
        self._settings = settings
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._ended = asyncio.Event()
        self.context: Context = copy_context()
        self.context.run(owner.set, self)

    # Life

    async def run(self) -> None:
        """Live until the server ends by itself. Raises the error that it ends with."""
        machine = self.machine
        self.home = SharedHome(self._settings, clock=machine.clock, replay=Replay(), stage=self, on_end=self._ended.set)
        await self.home.open()
        await self._ended.wait()
        if self.home.failed is not None:
            raise self.home.failed

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    async def awake(self) -> None:
        """Wait for ever where the process has ended: it sends nothing any more."""
        if self.is_dead:
            await asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        parked, self.parked = self.parked, []
        cast("MembersLoop", asyncio.get_running_loop()).go_on(parked)

    def kill(self) -> None:
        """End the process; its tasks unwind, and touch nothing that is not theirs."""
        self.is_dead, self.broker = True, None
        for task in list(self._tasks):
            task.cancel()
        self.go_on()

    # The stage

    def begin(self, broker: Broker) -> None:
        self.machine.say("leads")
        self.broker = broker

    async def end(self) -> None:
        self.machine.say("leads no more")
        self.broker = None

    # What it is asked

    def ask(self, act: Callable[[Broker], Awaitable[T]]) -> asyncio.Task[T]:
        """Run a request of a client in this process."""
        return asyncio.get_running_loop().create_task(self._handle(act), context=self.context.copy())

    @property
    def has_settled(self) -> bool:
        """Whether it has led or followed: from then on its store does not end it."""
        return self.home._settled.is_set()

    @property
    def state(self) -> State | None:
        """What the process has folded, as leader or as standby; None where it is neither yet."""
        if self.broker is not None:
            return self.broker._state
        standby = self.home._view.standby
        warm = None if standby is None else cast("WarmState", standby._follower)
        return None if warm is None or warm.position is None else warm.state

    async def _handle(self, act: Callable[[Broker], Awaitable[T]]) -> T:
        if self.broker is None:
            raise NotLeader("this server does not lead", leader="")
        return await act(self.broker)

    @property
    def wants_release(self) -> bool:
        """Whether the lead is to be given away, which begins when this is set."""
        return False

    @wants_release.setter
    def wants_release(self, value: bool) -> None:
        asyncio.get_running_loop().create_task(self._hand_over(), context=self.context.copy())

    async def _hand_over(self) -> None:
        with suppress(NotLeader, Conflict, Overloaded):
            await self.home.hand_over("")
            self.machine.say("gave the lead away")


def describe(error: TenureError) -> str:
    """Return the error in one line."""
    return f"{type(error).__name__} {error.code}: {error.message[:90]}"
