"""`SimStore`: an object store in memory with injected faults: at any single call, of the kinds that real stores have.

Every call has a number, from 0 on. ``fail(number, how)`` makes one fail, ``hold(number)`` stops it until it is
released, ``hook`` sees each before it happens. The test sets the clock, and listings can be out of date.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tenure.errors import Invalid
from tenure.objects.store import Bytes, ObjectExists, ObjectInfo, ObjectMissing, OutcomeUnknown, StoreRefused

__all__ = ["Call", "Fault", "Hold", "SimStore"]

Fault = Literal["lost_request", "lost_reply", "duplicate", "late", "refused", "false_exists"]
"""The fault of a call: it never arrives; it is carried out but its answer is lost; it arrives twice and the second
answer is returned; it fails now and is carried out later (see ``deliver_late``); it is refused; it is a create that is
answered with "exists" and stores nothing, as S3 does (409) where another create of the key is under way."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived."""

    number: int
    kind: str
    key: str
    bytes: int


@dataclass(slots=True)
class Hold:
    """A call that is held: ``reached`` is set once it arrives, ``release()`` lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    _go: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self._go.set()

    async def pass_(self) -> None:
        self.reached.set()
        await self._go.wait()


class SimStore:
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
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.calls: list[Call] = []
        self.clock_ms = now_ms
        self.latency_ms = latency_ms
        self.ignores_conditions = False
        self.hook: Callable[[Call], Fault | Hold | None] = lambda call: None
        self._faults: dict[int, Fault | Hold] = {}
        self._late: list[Callable[[], None]] = []
        self._listed: set[str] | None = None

    @property
    def url(self) -> str:
        return "sim://"

    # Faults

    def fail(self, number: int, how: Fault) -> None:
        """Inject a fault at the call with this number."""
        self._faults[number] = how

    def hold(self, number: int) -> Hold:
        """Hold the call with this number before it is carried out, until it is released."""
        held = self._faults[number] = Hold()
        return held

    def deliver_late(self) -> None:
        """Carry out the ``late`` requests; their answers are dropped."""
        late, self._late = self._late, []
        for act in late:
            try:
                act()
            except (ObjectExists, ObjectMissing):
                continue

    def freeze_listings(self) -> None:
        """Make listings show only the present objects, until ``thaw_listings``."""
        self._listed = set(self.objects)

    def thaw_listings(self) -> None:
        self._listed = None

    def advance(self, ms: int) -> None:
        """Let time pass on the store's clock."""
        self.clock_ms += ms

    # The interface of ObjectStore

    async def put_new(self, key: str, data: Bytes) -> None:
        def act() -> None:
            if key in self.objects and not self.ignores_conditions:
                raise ObjectExists(f"the object is there already: {key}")
            self.objects[key] = (bytes(data), self.clock_ms)

        await self._call("put_new", key, len(data), act)

    async def put(self, key: str, data: Bytes) -> None:
        def act() -> None:
            self.objects[key] = (bytes(data), self.clock_ms)

        await self._call("put", key, len(data), act)

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        found = list[bytes]()

        def act() -> None:
            data = self._find(key)[0]
            found[:] = [data[start:] if length is None else data[start : start + length]]
            if len(found[0]) > limit_bytes:
                raise Invalid(f"{key} has more than {limit_bytes:,} bytes", code="object_too_large")

        await self._call("get", key, 0, act)
        return found[0]

    async def head(self, key: str) -> ObjectInfo:
        await self._call("head", key, 0, lambda: None)
        data, modified_ms = self._find(key)
        return ObjectInfo(key, len(data), modified_ms)

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        await self._call("list", prefix, 0, lambda: None)
        shown = self.objects.keys() if self._listed is None else self.objects.keys() & self._listed
        for key in sorted(key for key in shown if key.startswith(prefix) and key > (start_after or "")):
            if key in self.objects:
                data, modified_ms = self.objects[key]
                yield ObjectInfo(key, len(data), modified_ms)

    async def copy(self, source: str, target: str) -> None:
        def act() -> None:
            self.objects[target] = (self._find(source)[0], self.clock_ms)

        await self._call("copy", source, 0, act)

    async def delete(self, keys: Sequence[str]) -> None:
        def act() -> None:
            for key in keys:
                self.objects.pop(key, None)

        await self._call("delete", keys[0] if keys else "", 0, act)

    async def now_ms(self) -> int:
        await self._call("now", "", 0, lambda: None)
        return self.clock_ms

    def _find(self, key: str) -> tuple[bytes, int]:
        if key not in self.objects:
            raise ObjectMissing(f"no such object: {key}")
        return self.objects[key]

    async def _call(self, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        """Number a call, wait its latency, apply its fault, and carry it out."""
        call = Call(len(self.calls), kind, key, size)
        self.calls.append(call)
        await asyncio.sleep(self.latency_ms / 1000)
        fault = self._faults.pop(call.number, None) or self.hook(call)
        if isinstance(fault, Hold):
            await fault.pass_()
            fault = None
        match fault:
            case None:
                act()
            case "lost_request":
                raise OutcomeUnknown(f"call {call.number} never arrived")
            case "lost_reply":
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
            case "false_exists":
                if kind == "put_new":
                    raise ObjectExists(f"call {call.number} met another create of {key}")
                act()
