"""The store of a world: requests and replies take their time, get lost, come twice and come late, by a seed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from tenure.errors import TenureError
from tenure.objects.request_limits import REQUEST_TIMEOUT_MS
from tenure.objects.store import ObjectExists, OutcomeUnknown
from tenure.testing.simclient import SimClient
from tenure.testing.simstore import SimStore
from tenure.testing.store_faults import Call, Fault
from tests.kit.uplinks import Uplinks

__all__ = ["Caller", "MachineClient", "WorldStore"]

_READS: Final = ("get", "head", "list", "now")
_LATE_S: Final = (0.05, 4.0)
_SLOW_S: Final = (0.3, 12.0)


class Caller(Protocol):
    """The process that makes a call: it may be stopped, and then takes no reply."""

    name: str

    async def awake(self) -> None:
        """Wait while the process is stopped."""


class MachineClient(SimClient):
    """The way of one process to the store: a stopped process sends nothing and takes no reply."""

    def __init__(self, world: SimStore, caller: Caller) -> None:
        super().__init__(world, caller.name)
        self._caller = caller

    async def _call(self, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        await self._caller.awake()
        try:
            await super()._call(kind, key, size, act)
        except TenureError:
            await self._caller.awake()
            raise
        await self._caller.awake()


class WorldStore(SimStore):
    """A `SimStore` in virtual time. ``chances`` are those of each fault; nothing fails once they are cleared."""

    def __init__(self, seed: str, now_ms: Callable[[], int], *, slow: float, chances: Mapping[Fault, float]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._began_ms = self.clock_ms
        self._draws = Random(seed)
        self._slow = slow
        self.chances: Mapping[Fault, float] = chances
        self.is_away = False
        #: What happens to a client at its next create of a link, and whether that is before the link has landed.
        self.ambushes: dict[str, tuple[bool, Callable[[], None]]] = {}
        #: How long the next create of a link by a client is on its way, and its repeats with it.
        self.delays_s: dict[str, float] = {}
        #: How long the reply to the next create of a link by a client is on its way, and those to its repeats.
        self.reply_delays_s: dict[str, float] = {}
        self._held_until_s: dict[str, float] = {}
        self._replies_until_s: dict[str, float] = {}
        #: The chance of each machine's requests to be lost without a word, on the way there or back.
        self.swallowed: dict[str, float] = {}
        self._swallows = Random(f"swallows {seed}")
        #: What each machine can send in a second; one that is not named here sends at once.
        self.uplinks = Uplinks()
        self.hook = self._fate

    def heal(self) -> None:
        """End every fault: from now on each call is carried out once, and soon."""
        self.chances, self._slow, self.is_away = {}, 0.0, False
        self.ambushes.clear()
        self.delays_s.clear()
        self.reply_delays_s.clear()
        self._held_until_s.clear()
        self._replies_until_s.clear()
        self.uplinks.bytes_per_s.clear()
        self.swallowed.clear()
        for name in list(self._cuts):
            self.reconnect(name)

    async def carry_out(self, client: SimClient, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        """Take time on the way there and back; a request whose sender ends meanwhile may arrive all the same."""
        is_link = kind == "put_new" and key.startswith("chain/")
        delay_s = self._held_s(self.delays_s, self._held_until_s, client.name) if is_link else 0.0
        try:
            await asyncio.sleep(self._transit_s() + delay_s)
            await self.uplinks.send(client.name, size)
            await self._perhaps_swallow(client.name, act)
        except asyncio.CancelledError:
            if self._draws.random() < 0.5:
                self._land_later(act)
            raise
        self.clock_ms = self._began_ms + self._now_ms()
        if is_link and self._spring(client.name, is_before=True):
            await asyncio.sleep(0)  # where the process ends
        try:
            await super().carry_out(client, kind, key, size, act)
        except ObjectExists:  # a repeat, whose reply takes as long
            await asyncio.sleep(self._held_s({}, self._replies_until_s, client.name) if is_link else 0.0)
            raise
        if is_link:
            self._spring(client.name, is_before=False)
        reply_s = self._held_s(self.reply_delays_s, self._replies_until_s, client.name) if is_link else 0.0
        await asyncio.sleep(self._draws.expovariate(100) + reply_s)

    def _held_s(self, delays_s: dict[str, float], until_s: dict[str, float], name: str) -> float:
        """Return how long a create of a link is held back: the first as it was said, its repeats until then, too."""
        now_s = asyncio.get_running_loop().time()
        if name in delays_s:
            until_s[name] = now_s + delays_s.pop(name)
        return max(0.0, until_s.get(name, 0.0) - now_s)

    async def _perhaps_swallow(self, name: str, act: Callable[[], None]) -> None:
        """Let a request hang until its client's own limit, which has it carried out or not."""
        if self._swallows.random() >= self.swallowed.get(name, 0.0):
            return
        if self._swallows.random() < 0.5:
            with contextlib.suppress(TenureError):
                act()
        await asyncio.sleep(REQUEST_TIMEOUT_MS / 1000)
        raise OutcomeUnknown("no answer within the time of one request")

    def _spring(self, name: str, *, is_before: bool) -> bool:
        """Spring the ambush of a client, if there is one for this moment."""
        if name not in self.ambushes or self.ambushes[name][0] is not is_before:
            return False
        self.ambushes.pop(name)[1]()
        return True

    def _transit_s(self) -> float:
        if self._slow and self._draws.random() < self._slow:
            return self._draws.uniform(*_SLOW_S)
        return self._draws.expovariate(100)

    def _fate(self, call: Call) -> Fault | None:
        if self.is_away:
            return self._draws.choice(("refused", "lost_request"))
        point = self._draws.random()
        for fault, chance in self.chances.items():
            if (point := point - chance) < 0:
                if fault == "late" and call.kind in _READS:
                    return "lost_request"
                if fault == "late":
                    asyncio.get_running_loop().call_later(self._draws.uniform(*_LATE_S), self.deliver_late)
                return fault
        return None

    def _land_later(self, act: Callable[[], None]) -> None:
        def land() -> None:
            with contextlib.suppress(TenureError):  # nobody hears the answer
                act()

        asyncio.get_running_loop().call_later(self._draws.uniform(*_LATE_S), land)
