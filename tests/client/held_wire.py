"""A wire that a test controls: real requests to a real server, held back, counted, or without their answers."""

from __future__ import annotations

import asyncio
import threading

import msgspec

from tenure.client.settings import ClientSettings
from tenure.client.transport.aio import LoopWire
from tenure.client.transport.blocking import SocketWire
from tenure.client.transport.wire import AsyncStream, Request, Response, Stream, WireError

__all__ = ["HeldBlockingWire", "HeldWire"]


class _Body(msgspec.Struct):
    records: list[msgspec.Raw] = []
    seqs: list[int] = []


class _Script:
    """What happens to requests. ``sizes`` are the records or seqs of each write, in the order they were sent."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._lost_count = 0
        self._error: BaseException | None = None
        self._passed_first = 0

    def clear(self) -> None:
        self.sizes.clear()

    def lose_answers(self, count: int) -> None:
        """The next requests arrive, and their answers do not."""
        self._lost_count = count

    def fail_once(self, error: BaseException, *, after: int = 0) -> None:
        """Raise this for one request, after so many others that may pass."""
        self._error, self._passed_first = error, after

    def _note(self, request: Request) -> None:
        body = msgspec.json.decode(request.body, type=_Body) if request.body else _Body()
        if body.records or body.seqs:
            self.sizes.append(len(body.records) or len(body.seqs))

    def _before(self) -> None:
        if self._error is not None and self._passed_first == 0:
            error, self._error = self._error, None
            raise error
        self._passed_first -= 1

    def _after(self, request: Request) -> None:
        if self._lost_count and request.method == "POST":
            self._lost_count -= 1
            raise WireError("the answer was lost on purpose", sent=True)


class HeldWire(_Script):
    """On an event loop."""

    def __init__(self, url: str, *, settings: ClientSettings) -> None:
        super().__init__()
        self._wire = LoopWire(url, settings=settings)
        self._open = asyncio.Event()
        self._open.set()
        self._arrived = asyncio.Event()

    def hold(self) -> None:
        """Keep requests back before they are sent."""
        self._open.clear()
        self._arrived.clear()

    async def arrived(self) -> None:
        """Until a request is held back."""
        await self._arrived.wait()

    def release(self) -> None:
        self._open.set()

    async def send(self, request: Request) -> Response:
        self._note(request)
        self._arrived.set()
        await self._open.wait()
        self._before()
        response = await self._wire.send(request)
        self._after(request)
        return response

    async def open(self, request: Request) -> AsyncStream:
        return await self._wire.open(request)

    async def close(self) -> None:
        await self._wire.close()


class HeldBlockingWire(_Script):
    """For threads."""

    def __init__(self, url: str, *, settings: ClientSettings) -> None:
        super().__init__()
        self._wire = SocketWire(url, settings=settings)
        self._open = threading.Event()
        self._open.set()
        self._arrived = threading.Event()

    def hold(self) -> None:
        """Keep requests back before they are sent."""
        self._open.clear()
        self._arrived.clear()

    def arrived(self) -> None:
        """Until a request is held back."""
        assert self._arrived.wait(30)

    def release(self) -> None:
        self._open.set()

    def send(self, request: Request) -> Response:
        self._note(request)
        self._arrived.set()
        assert self._open.wait(30)
        self._before()
        response = self._wire.send(request)
        self._after(request)
        return response

    def open(self, request: Request) -> Stream:
        return self._wire.open(request)

    def close(self) -> None:
        self._wire.close()
