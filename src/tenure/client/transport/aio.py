"""`AiohttpWire`: requests on an event loop, over a pool of connections.

What failed before a connection stood was not sent; everything after that may have been. aiohttp would repeat some
requests by itself on a connection that was closed meanwhile; that is turned off, because what may be repeated is
decided in `tenure.client.plan.retry` and nowhere else.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from typing import Any

import aiohttp

from tenure.address import headers_of, parse_address
from tenure.client.settings import ClientSettings
from tenure.client.transport.wire import AsyncStream, Request, Response, WireError
from tenure.errors import Invalid
from tenure.server_guard import check_server

__all__ = ["AiohttpWire"]

_ERROR_BYTES_MAX = 1 << 20
_WHOLE_BYTES_MAX = 1 << 20


class AiohttpWire:
    """Made anywhere, used on one loop; the pool is opened by the first request."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        address = parse_address(url)
        self._base = address.base
        self._headers = headers_of(key)
        self._settings = settings
        self._tls = tls if tls is not None else True
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            if self._closed:
                raise WireError("this client is closed: make another one", sent=False, closed=True)
            settings = self._settings
            connector = aiohttp.TCPConnector(
                limit=settings.connections_max + settings.streams_max,
                keepalive_timeout=settings.idle_ms / 1000,
                ssl=self._tls,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._session._retry_connection = False
            self._loop = loop
        elif self._loop is not loop:
            raise Invalid("an AsyncClient stays on the loop that used it first: make one per loop, or use Client")
        return self._session

    def _request(self, request: Request, timeout: aiohttp.ClientTimeout) -> Any:
        check_server(self._base)
        headers = dict(request.headers)
        if request.body is not None:
            headers["content-type"] = "application/json"
        return self._open_session().request(
            request.method,
            self._base + request.path,
            data=_payload(request.body),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        )

    def _timeout(self, request: Request, read_s: float, *, total_s: float | None = None) -> aiohttp.ClientTimeout:
        """Return a time limit for each read, and one for all of them: a body that drips never exceeds the first."""
        connect_s = request.seconds(self._settings.acquire_ms)
        sock_connect_s = request.seconds(self._settings.connect_ms)
        return aiohttp.ClientTimeout(total_s, connect=connect_s, sock_connect=sock_connect_s, sock_read=read_s)

    async def send(self, request: Request) -> Response:
        settings = self._settings
        answer_s = request.seconds(settings.answer_ms + request.wait_ms)
        timeout = self._timeout(request, answer_s, total_s=request.seconds(settings.acquire_ms) + answer_s)
        try:
            async with self._request(request, timeout) as response:
                whole = response.content.is_eof()  # as most are, and cost no timer
                async with asyncio.timeout(None if whole else answer_s):
                    body = await _bounded(response, settings.response_bytes_max)
                return Response(response.status, body, response.headers)
        except (aiohttp.ClientError, OSError) as error:
            raise _wire_error(error) from error

    async def open(self, request: Request) -> AsyncStream:
        settings = self._settings
        idle_s = settings.stream_idle_ms / 1000
        headers = {"accept": "text/event-stream", **request.headers}
        asked = Request(request.method, request.path, request.body, headers)
        try:
            async with asyncio.timeout(settings.acquire_ms / 1000 + idle_s):
                response = await self._request(asked, self._timeout(asked, idle_s))
                body = b""
                if response.status != 200:
                    async with response:
                        body = await _bounded(response, _ERROR_BYTES_MAX)
        except (aiohttp.ClientError, OSError) as error:
            raise _wire_error(error) from error
        return _AiohttpStream(response, Response(response.status, body, response.headers))

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class _AiohttpStream:
    """The bytes of a stream, as they come."""

    def __init__(self, opened: aiohttp.ClientResponse, response: Response) -> None:
        self._opened = opened
        self.response = response

    async def read(self) -> bytes:
        try:
            return await self._opened.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _wire_error(error) from error

    def close(self) -> None:
        self._opened.close()


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """Return a large body as a file, which aiohttp sends in pieces without a warning that it blocks the loop."""
    return body if body is None or len(body) <= _WHOLE_BYTES_MAX else io.BytesIO(body)


async def _bounded(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the whole body. Raises WireError where it is longer than allowed."""
    length = response.content_length
    if length is not None and length <= bytes_max:
        return await response.read()
    chunks: list[bytes] = []
    room = bytes_max if length is None else -1
    while room >= 0 and (chunk := await response.content.readany()):
        chunks.append(chunk)
        room -= len(chunk)
    if room < 0:
        response.close()
        raise WireError(f"the answer is longer than {bytes_max} bytes", sent=True)
    return b"".join(chunks)


def _wire_error(error: BaseException) -> WireError:
    early = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
    return WireError(str(error) or type(error).__name__, sent=not isinstance(error, early))
