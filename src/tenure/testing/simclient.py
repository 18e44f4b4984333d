"""`SimClient`: the way of one simulated process to a `SimStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from tenure.errors import Invalid
from tenure.objects.store import Bytes, ObjectExists, ObjectInfo, ObjectMissing
from tenure.testing.simdisk import PowerLoss

if TYPE_CHECKING:
    from tenure.testing.simstore import SimStore

__all__ = ["SimClient"]


class SimClient:
    """An ``ObjectStore``: the way of one simulated process to a `SimStore`."""

    def __init__(self, world: SimStore, name: str) -> None:
        self.name = name
        self._world = world
        self._is_dead = False

    @property
    def url(self) -> str:
        return "sim://"

    async def put_new(self, key: str, data: Bytes) -> None:
        def act() -> None:
            if key in self._world.objects and not self._world.ignores_conditions:
                raise ObjectExists(f"the object is there already: {key}")
            self._write(key, bytes(data))

        await self._call("put_new", key, len(data), act)

    async def put(self, key: str, data: Bytes) -> None:
        await self._call("put", key, len(data), lambda: self._write(key, bytes(data)))

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
        found = list[tuple[bytes, int]]()

        def act() -> None:
            found[:] = [self._find(key)]

        await self._call("head", key, 0, act)
        [(data, modified_ms)] = found
        return ObjectInfo(key, len(data), modified_ms)

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        await self._call("list", prefix, 0, lambda: None)
        for key in sorted(key for key in self._world.listed() if key.startswith(prefix) and key > (start_after or "")):
            if key in self._world.objects:
                data, modified_ms = self._world.objects[key]
                yield ObjectInfo(key, len(data), modified_ms)

    async def copy(self, source: str, target: str) -> None:
        await self._call("copy", source, 0, lambda: self._write(target, self._find(source)[0]))

    async def delete(self, keys: Sequence[str]) -> None:
        def act() -> None:
            for key in keys:
                self._world.objects.pop(key, None)

        await self._call("delete", keys[0] if keys else "", 0, act)

    async def now_ms(self) -> int:
        await self._call("now", "", 0, lambda: None)
        return self._world.clock_ms

    def _find(self, key: str) -> tuple[bytes, int]:
        if key not in self._world.objects:
            raise ObjectMissing(f"no such object: {key}")
        return self._world.objects[key]

    def _write(self, key: str, data: bytes) -> None:
        self._world.objects.pop(key, None)  # the newest is always the last
        self._world.objects[key] = (data, self._world.clock_ms)

    async def _call(self, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        """Send a call, unless this process has ended, and take its answer, unless it has ended meanwhile."""
        self._check_alive()
        try:
            await self._world.carry_out(self, kind, key, size, act)
        finally:
            self._check_alive()

    def _check_alive(self) -> None:
        if self._is_dead:
            raise PowerLoss(f"the process of client {self.name!r} has ended")

    def crash(self) -> None:
        """End the process: calls under way may still be carried out, and each raises `PowerLoss`."""
        self._is_dead = True
