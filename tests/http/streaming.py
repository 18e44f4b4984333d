"""A reader of event streams without a socket: ``send`` is a queue that the test empties."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tenure.http.api.auth import Gatekeeper
from tenure.http.api.hosts import HostCheck
from tenure.http.api.keys import KeyRing, entries_of_text, parse_keys
from tenure.http.streams.outlet import Outlet
from tenure.http.wire.message import Response, SharedBytes

__all__ = ["Listener", "Reader", "count_wakes", "gatekeeper", "parse"]

_PATIENCE_S = 20


def gatekeeper(keys: str, **limits: int) -> Gatekeeper:
    """A guard that knows these keys, written as in the environment."""
    return Gatekeeper(KeyRing(parse_keys(entries_of_text(keys))), hosts=HostCheck(loopback_only=False), **limits)


def parse(block: str) -> dict[str, Any]:
    """One frame by its fields; ``data`` as the JSON it is, comments under ``comment``."""
    found: dict[str, Any] = {}
    lines: list[str] = []
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            lines.append(value)
        else:
            found[name or "comment"] = value
    if lines:
        found["data"] = json.loads("\n".join(lines))
    return found


def count_wakes(monkeypatch: pytest.MonkeyPatch) -> list[Outlet]:
    """The streams whose tasks are woken from now on."""
    woken: list[Outlet] = []
    wake = Outlet.wake

    def counted(outlet: Outlet) -> None:
        woken.append(outlet)
        wake(outlet)

    monkeypatch.setattr(Outlet, "wake", counted)
    return woken


class Reader:
    """The sending end of a stream whose peer takes everything while it ``has_room``."""

    def __init__(self) -> None:
        self.sent: list[SharedBytes] = []
        self.has_room = True

    async def __call__(self, data: bytes) -> None:
        if data:
            self.sent.append(SharedBytes(data))

    def offer(self, shared: SharedBytes) -> bool:
        if self.has_room:
            self.sent.append(shared)
        return self.has_room


class Listener:
    """Runs a stream and hands out its frames. ``room`` closed makes ``send`` wait, as a slow reader does."""

    def __init__(self, response: Response) -> None:
        assert response.stream is not None, response.body
        self.sent: list[bytes] = []
        self.room = asyncio.Event()
        self.room.set()
        self.broken = False
        self._text = ""
        self._arrival = asyncio.Event()
        self.task = asyncio.ensure_future(response.stream(self))

    async def __call__(self, data: bytes) -> None:
        await self.room.wait()
        if self.broken:
            raise ConnectionResetError("the peer is gone")
        if data:
            self._take(data)

    def offer(self, shared: SharedBytes) -> bool:
        if self.broken or not self.room.is_set():
            return False
        self._take(shared.data)
        return True

    def _take(self, data: bytes) -> None:
        self.sent.append(data)
        self._text += data.decode()
        self._arrival.set()

    async def block(self) -> str:
        """The next frame as it came."""
        async with asyncio.timeout(_PATIENCE_S):
            while "\n\n" not in self._text:
                assert not self.task.done(), f"the stream ended: {self.task}"
                self._arrival.clear()
                arrival = asyncio.ensure_future(self._arrival.wait())
                try:
                    await asyncio.wait([arrival, self.task], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    arrival.cancel()
        found, _, self._text = self._text.partition("\n\n")
        return found

    async def next(self) -> dict[str, Any]:
        """The next event; heartbeats and ``retry`` are passed over."""
        while True:
            frame = parse(await self.block())
            if "event" in frame:
                return frame

    async def events(self, count: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(count)]

    @property
    def waiting(self) -> bool:
        """Whether nothing is there to be read."""
        return "event:" not in self._text

    async def end(self) -> None:
        """The server ends the stream by itself."""
        async with asyncio.timeout(_PATIENCE_S):
            await self.task

    async def hang_up(self) -> None:
        """The peer goes away, as the protocol tells it: by cancelling."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def break_off(self) -> None:
        """The peer is found to be gone at the next write."""
        self.broken = True
        self.room.set()
