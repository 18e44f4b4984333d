"""`SimStore`: an object store in memory with injected faults: at any single call, of the kinds that real stores have.

Every call has a number, from 0 on. ``fail(number, how)`` makes one fail, ``hold(number)`` stops it until it is
released, ``hook`` sees each before it happens, and may return a fault or raise. ``shake`` draws faults by a seed.
``client(name)`` gives each simulated process a way in of its own, which can be cut off or crash by itself. The test
sets the clock, listings can be out of date, and the store can lose what it had: its newest objects, given keys, or
everything since a snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from tenure.errors import TenureError
from tenure.objects.store import ObjectExists, OutcomeUnknown, StoreRefused
from tenure.testing.simclient import SimClient
from tenure.testing.store_faults import FAULTS, Call, Fault, Hold

__all__ = ["FAULTS", "Call", "Fault", "Hold", "SimClient", "SimStore"]

Objects = dict[str, tuple[bytes, int]]
"""Content and time of each object, in the order in which they were written."""
_TURNS_MAX: Final = 4


class SimStore(SimClient):
    """An ``ObjectStore`` in memory, with a fault for every call that asks for one.

    >>> import asyncio
    >>> from tenure.buffer import OutcomeUnknown
    >>> from tenure.testing import SimStore
    >>> async def main():
    ...     store = SimStore()
    ...     store.fail(0, "lost_reply")
    ...     try:
    ...         await store.put("key", b"value")
    ...     except OutcomeUnknown:
    ...         return (await store.head("key")).bytes
    >>> asyncio.run(main())
    5
    """

    def __init__(self, *, now_ms: int = 1_700_000_000_000, latency_ms: float = 0) -> None:
        super().__init__(self, "")
        self.objects: Objects = {}
        self.calls: list[Call] = []
        self.clock_ms = now_ms
        self.latency_ms = latency_ms
        self.ignores_conditions = False
        self.hook: Callable[[Call], Fault | Hold | None] = lambda call: None
        self._faults: dict[int, Fault | Hold] = {}
        self._late: list[Callable[[], None]] = []
        self._listed: set[str] | None = None
        self._cuts: dict[str, Fault] = {}
        self._random: Random | None = None
        self._chances: Mapping[Fault, float] = {}

    # Faults of calls

    def fail(self, number: int, how: Fault) -> None:
        """Inject a fault at the call with this number."""
        self._faults[number] = how

    def hold(self, number: int, *, is_done: bool = False) -> Hold:
        """Hold the call with this number, before or after it is carried out, until it is released."""
        held = self._faults[number] = Hold(is_done)
        return held

    def deliver_late(self) -> None:
        """Carry out the ``late`` requests; their answers are dropped."""
        late, self._late = self._late, []
        for act in late:
            with contextlib.suppress(TenureError):
                act()

    def shake(self, seed: int, chances: Mapping[Fault, float]) -> None:
        """Draw the fault of each call by these chances, let calls overtake each other, and deliver late ones."""
        self._random, self._chances = Random(seed), chances

    def count(self, kind: str, prefix: str = "", *, client: str | None = None) -> int:
        """Return how many calls of this kind there were at keys with this prefix, of one client or of all."""
        return sum(
            call.kind == kind and call.key.startswith(prefix) and client in {None, call.client} for call in self.calls
        )

    # Clients

    def client(self, name: str) -> SimClient:
        """Return a new process's way to this store; a call through the store itself is of the client ``""``."""
        return SimClient(self, name)

    def cut_off(self, name: str, how: Fault = "lost_request") -> None:
        """Make every call of the clients with this name fail, until ``reconnect``."""
        self._cuts[name] = how

    def reconnect(self, name: str) -> None:
        self._cuts.pop(name, None)

    # Faults of the store

    def freeze_listings(self) -> None:
        """Make listings show only the present objects, until ``thaw_listings``."""
        self._listed = set(self.objects)

    def thaw_listings(self) -> None:
        self._listed = None

    def listed(self) -> set[str]:
        """Return the keys that a listing shows now."""
        return set(self.objects) if self._listed is None else self.objects.keys() & self._listed

    def snapshot(self) -> Objects:
        """Return a copy of the objects, for ``restore``."""
        return dict(self.objects)

    def restore(self, snapshot: Objects) -> None:
        """Put an old copy in the place of the objects, as an operator does who restores a bucket."""
        self.objects = dict(snapshot)

    def forget_newest(self, count: int) -> list[str]:
        """Lose the objects that were written last, as a failover to a replica does; return their keys."""
        lost = list(self.objects)[len(self.objects) - count :] if count else []
        self.lose(lost)
        return lost

    def lose(self, keys: Sequence[str]) -> None:
        """Remove these objects without a call, as a lifecycle rule does. Raises KeyError for one that is missing."""
        for key in keys:
            del self.objects[key]

    def advance(self, ms: int) -> None:
        """Let time pass on the store's clock."""
        self.clock_ms += ms

    # Calls

    async def carry_out(self, client: SimClient, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        """Number a call, wait its latency, apply its fault, and carry it out."""
        call = Call(len(self.calls), kind, key, size, client.name)
        self.calls.append(call)
        await asyncio.sleep(self.latency_ms / 1000)
        await self._dawdle()
        fault = self._faults.pop(call.number, None) or self.hook(call) or self._cuts.get(call.client) or self._draw()
        match fault:
            case None:
                act()
            case Hold():
                await fault.carry_out(act)
            case "crash_before":
                client.crash()
            case "crash_after":
                client.crash()
                act()
            case _:
                self._fail(call, fault, act)

    def _fail(self, call: Call, fault: Fault, act: Callable[[], None]) -> None:
        match fault:
            case "lost_reply":
                with contextlib.suppress(TenureError):  # that answer is lost, too
                    act()
                raise OutcomeUnknown(f"the answer to call {call.number} was lost")
            case "duplicate":
                act()
                act()
            case "late":
                self._late.append(act)
                raise OutcomeUnknown(f"call {call.number} is late")
            case "refused":
                raise StoreRefused(f"call {call.number} is refused")
            case "false_exists" if call.kind == "put_new":
                raise ObjectExists(f"call {call.number} met another create of {call.key}")
            case "false_exists":
                act()
            case _:
                raise OutcomeUnknown(f"call {call.number} never arrived")

    async def _dawdle(self) -> None:
        """Let other calls overtake this one, and late ones arrive, where faults are drawn."""
        if self._random is None:
            return
        for _ in range(self._random.randrange(_TURNS_MAX)):
            await asyncio.sleep(0)
        if self._random.randrange(_TURNS_MAX) == 0:
            self.deliver_late()

    def _draw(self) -> Fault | None:
        if self._random is None:
            return None
        point = self._random.random()
        for fault, chance in self._chances.items():
            if (point := point - chance) < 0:
                return fault
        return None
