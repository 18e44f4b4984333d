"""Real clients behind one small face, for tests in which the server goes away and comes back elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol

import aiohttp
import httpx

from tests.kit.restartable_server import PATIENCE_S

__all__ = ["Aiohttp", "Caller", "Httpx", "Lost", "Place", "each_event"]


class Lost(Exception):
    """No answer came, or one that says to come back: whether anything was done is unknown."""


class Place:
    """Where the server is now; its clients wait here while it is nowhere."""

    def __init__(self) -> None:
        self.address = ""
        self._up = asyncio.Event()

    def moved(self, address: str) -> None:
        self.address = address
        self._up.set()

    def gone(self) -> None:
        self._up.clear()

    async def find(self) -> str:
        await self._up.wait()
        return self.address


class Caller(Protocol):
    """A client that follows the server from place to place."""

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and body. Raises Lost."""
        ...

    def events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a stream until it ends. Raises Lost where it is cut or refused for now."""
        ...

    async def close(self) -> None: ...


def _told(status: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if status == 503:
        raise Lost(body["error"]["code"])
    return status, body


async def each_event(lines: AsyncIterator[str]) -> AsyncGenerator[dict[str, Any], None]:
    """Events of an SSE stream by their fields, ``data`` as JSON; comments and ``retry`` are passed over."""
    found: dict[str, Any] = {}
    async for line in lines:
        line = line.rstrip("\r\n")
        if not line:
            if "event" in found:
                yield found
            found = {}
            continue
        name, _, value = line.partition(":")
        found[name] = json.loads(value) if name == "data" else value.removeprefix(" ")


class Httpx:
    """httpx, over HTTP/1.1 or HTTP/2 without negotiation."""

    def __init__(self, place: Place, *, http2: bool = False) -> None:
        self._place = place
        self._options: dict[str, Any] = {"http1": not http2, "http2": http2, "trust_env": False, "verify": False}
        self._client: httpx.AsyncClient | None = None

    async def _open(self) -> httpx.AsyncClient:
        address = await self._place.find()
        if self._client is None or str(self._client.base_url).rstrip("/") != address:
            await self.close()
            self._client = httpx.AsyncClient(base_url=address, timeout=PATIENCE_S, **self._options)
        return self._client

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        client = await self._open()
        try:
            answer = await client.request(method, path, json=body)
        except httpx.TransportError as error:
            await self.close()
            raise Lost(repr(error)) from error
        return _told(answer.status_code, answer.json())

    async def events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        client = await self._open()
        try:
            async with client.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
                if answer.status_code == 503:
                    raise Lost("not now")
                assert answer.status_code == 200, await answer.aread()
                async with aclosing(each_event(answer.aiter_lines())) as events:
                    async for event in events:
                        yield event
        except httpx.TransportError as error:
            raise Lost(repr(error)) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class Aiohttp:
    """aiohttp."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: aiohttp.ClientSession | None = None

    async def _open(self) -> tuple[aiohttp.ClientSession, str]:
        address = await self._place.find()
        if self._client is None:
            self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))
        return self._client, address

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        client, address = await self._open()
        try:
            options: dict[str, Any] = {}
            if body is not None:  # aiohttp warns of large bodies that are not files
                options["data"] = io.BytesIO(json.dumps(body).encode())
                options["headers"] = {"content-type": "application/json"}
            async with client.request(method, address + path, **options) as answer:
                return _told(answer.status, await answer.json())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Lost(repr(error)) from error

    async def events(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        client, address = await self._open()
        try:
            async with client.get(
                address + path,
                headers={"accept": "text/event-stream"},
                timeout=aiohttp.ClientTimeout(total=None, sock_read=PATIENCE_S),
            ) as answer:
                if answer.status == 503:
                    raise Lost("not now")
                assert answer.status == 200, await answer.text()
                async with aclosing(each_event(_lines(answer.content))) as events:
                    async for event in events:
                        yield event
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Lost(repr(error)) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    async for line in content:
        yield line.decode()
