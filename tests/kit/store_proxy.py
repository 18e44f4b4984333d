"""`StoreProxy`: a network between one process and an object store, which delays, loses and doubles whole requests.

It reads HTTP/1.1 messages, so that a fault hits one request and not some bytes: a create that is doubled reaches the
store twice and its first answer is lost; a late one reaches it long after its sender saw the connection reset.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final, NamedTuple

from tests.kit.http_proxy import Ends, Proxy

__all__ = ["CALM", "Faults", "StoreProxy", "store_proxy"]

_HEAD_END: Final = b"\r\n\r\n"
_LATE_S: Final = (0.3, 4.0)
_WITHOUT_BODY: Final = (b"204", b"304")
_CHUNK_BYTES: Final = 1 << 16
_SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 41\r\n\r\n"
    b"<Error><Code>SlowDown</Code></Error>     "
)


class Faults(NamedTuple):
    """What happens to requests: delays in ms, and the share of requests that each kind of fault hits.

    ``put_ms`` is how much longer a PUT takes. ``lose_request``: it does not reach the store. ``lose_reply``: it does,
    and the connection is reset instead of an answer. ``double``: it reaches the store twice, and the second answer is
    passed on. ``late``: the connection is reset, and the request reaches the store some seconds later.
    """

    put_ms: float = 0.0
    delay_ms_max: float = 0.0
    lose_request: float = 0.0
    lose_reply: float = 0.0
    double: float = 0.0
    late: float = 0.0


CALM: Final = Faults()


class StoreProxy(Proxy):
    """Set ``faults`` at any time; `cut`, `refuse`, `accept`, `stall` and `resume` are those of every proxy.

    ``met`` counts requests by method and faults by name. While ``slows_down`` is set each request is answered with 503
    and goes no further. ``uplink_bytes_per_s`` bounds what all requests together send, in fair turns; 0 is no bound.
    """

    def __init__(self, port: int, *, seed: int = 0) -> None:
        super().__init__(port)
        self.faults = CALM
        self.met: Counter[str] = Counter()
        self.slows_down = False
        self.uplink_bytes_per_s = 0
        self._uplink = asyncio.Lock()
        self._random = Random(f"store proxy {seed}")

    async def _relay(self, here: Ends, there: Ends) -> None:
        """Carry one request after the other to the store and its answer back."""
        while True:
            request = await _read_message(here[0])
            method = request.partition(b" ")[0]
            self.met[method.decode()] += 1
            await self._send_up(len(request))
            answer = _SLOW_DOWN if self.slows_down else await self._carry(request, method, there)
            await self._flowing.wait()
            here[1].write(answer)
            await here[1].drain()

    async def _carry(self, request: bytes, method: bytes, there: Ends) -> bytes:
        """Return the store's answer. Raises ConnectionResetError where a fault hits the request."""
        fault, faults = self._draw(), self.faults
        wait_ms = (faults.put_ms if method == b"PUT" else 0.0) + self._random.uniform(0, faults.delay_ms_max)
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        await self._flowing.wait()
        if fault == "late":
            self._send_later(request, method)
        if fault in ("late", "lose_request"):
            raise ConnectionResetError("lost on purpose")
        if fault == "double":
            await self._send_alone(request, method)
        answer = await _exchange(request, method, there)
        if fault == "lose_reply":
            raise ConnectionResetError("lost on purpose")
        return answer

    async def _send_up(self, size: int) -> None:
        """Wait for as long as so many bytes take on the uplink, beside those of other requests."""
        while size > 0 and self.uplink_bytes_per_s:
            async with self._uplink:
                await asyncio.sleep(min(size, _CHUNK_BYTES) / (self.uplink_bytes_per_s or size))
            size -= _CHUNK_BYTES

    def _draw(self) -> str:
        """Return the fault that hits the next request, or nothing."""
        left = self._random.random()
        for name in ("lose_request", "lose_reply", "double", "late"):
            left -= getattr(self.faults, name)
            if left < 0:
                self.met[name] += 1
                return name
        return ""

    def _send_later(self, request: bytes, method: bytes) -> None:
        async def send() -> None:
            await asyncio.sleep(self._random.uniform(*_LATE_S))
            await self._send_alone(request, method)

        task = self._loop.create_task(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_alone(self, request: bytes, method: bytes) -> None:
        """Send a request on a connection of its own; nobody hears its answer."""
        with suppress(OSError, EOFError):
            there = await asyncio.open_connection("127.0.0.1", self.target_port)
            try:
                await _exchange(request, method, there)
            finally:
                there[1].transport.abort()


async def _exchange(request: bytes, method: bytes, there: Ends) -> bytes:
    there[1].write(request)
    await there[1].drain()
    return await _read_message(there[0], method)


async def _read_message(reader: asyncio.StreamReader, method: bytes = b"") -> bytes:
    """Return one whole message: a request, or the answer to a request of that method."""
    head = await reader.readuntil(_HEAD_END)
    if method == b"HEAD" or (method and head.split(b" ", 2)[1] in _WITHOUT_BODY):
        return head
    fields = dict(line.lower().split(b":", 1) for line in head[: -len(_HEAD_END)].split(b"\r\n")[1:])
    if fields.get(b"transfer-encoding", b"").strip() == b"chunked":
        return head + await _read_chunks(reader)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Return the chunks as they came, up to the empty line behind the last one."""
    parts = list[bytes]()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
        if size == 0:
            return b"".join(parts)


@contextmanager
def store_proxy(port: int, *, seed: int = 0) -> Iterator[StoreProxy]:
    proxy = StoreProxy(port, seed=seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
