"""A wire in a test's hand: real requests to a real server, held back, counted, or robbed of their answers."""

from __future__ import annotations

import asyncio

import msgspec

from tenure.client.async_wire import AiohttpWire
from tenure.client.settings import ClientSettings
from tenure.client.wire import AsyncStream, Request, Response, WireError

__all__ = ["HeldWire"]


class _Body(msgspec.Struct):
    records: list[msgspec.Raw] = []
    seqs: list[int] = []


class HeldWire:
    """Passes requests on. ``sizes`` are the records or seqs of each write, in the order they were sent."""

    def __init__(self, url: str, *, settings: ClientSettings) -> None:
        self._wire = AiohttpWire(url, settings=settings)
        self._open = asyncio.Event()
        self._open.set()
        self._arrived = asyncio.Event()
        self._lost_count = 0
        self._error: Exception | None = None
        self.sizes: list[int] = []
        self.paths: list[str] = []

    def clear(self) -> None:
        self.sizes.clear()
        self.paths.clear()

    def hold(self) -> None:
        """Keep requests back before they are sent."""
        self._open.clear()
        self._arrived.clear()

    async def arrived(self) -> None:
        """Until a request is held back."""
        await self._arrived.wait()

    def release(self) -> None:
        self._open.set()

    def lose_answers(self, count: int) -> None:
        """The next requests arrive, and their answers do not."""
        self._lost_count = count

    def fail_once(self, error: Exception) -> None:
        self._error = error

    async def send(self, request: Request) -> Response:
        self._note(request)
        self._arrived.set()
        await self._open.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        response = await self._wire.send(request)
        if self._lost_count and request.method == "POST":
            self._lost_count -= 1
            raise WireError("the answer was lost on purpose", sent=True)
        return response

    def _note(self, request: Request) -> None:
        body = msgspec.json.decode(request.body, type=_Body) if request.body else _Body()
        if body.records or body.seqs:
            self.sizes.append(len(body.records) or len(body.seqs))
            self.paths.append(request.path)

    async def open(self, request: Request) -> AsyncStream:
        return await self._wire.open(request)

    async def close(self) -> None:
        await self._wire.close()
