"""The bare echo of the HTTP layer: what a request costs before anything is done with it.

`python -m bench.echo` serves; `python -m bench.echo --measure` also runs a load generator of its own against it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
from multiprocessing.connection import Connection
from time import perf_counter
from typing import cast

import uvloop

from tenure.http.server import serve
from tenure.http.wire.message import Body, Request, Response

BODY_BYTES = 256


class Echo:
    """An admitted request that is answered with its own body."""

    body_bytes_max = 1 << 20

    def __init__(self, request: Request) -> None:
        self.request = request
        self.account = request.client

    def lapsed(self) -> None:
        """Stay admitted."""

    def answer(self, body: Body) -> Response:
        """Give back what came."""
        return Response(200, bytes(body))


async def _serve(ready: Connection | None, port: int) -> None:
    server = await serve(Echo, port=port)
    if ready is None:
        print(f"http://127.0.0.1:{server.port}")
    else:
        ready.send(server.port)
    await asyncio.Event().wait()


def _server_process(ready: Connection) -> None:
    uvloop.run(_serve(ready, 0))


class Caller(asyncio.Protocol):
    """Sends one request, waits for its answer by length, sends the next."""

    def __init__(self, request: bytes, answer_tail: bytes) -> None:
        self.request = request
        self.tail = answer_tail
        self.count = 0
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        if self._received.endswith(self.tail):
            self._received = b""
            self.count += 1
            self.transport.write(self.request)


async def measure(port: int, *, connections: int, seconds: float) -> float:
    """Requests a second that one client process gets through."""
    body = b'{"data":"' + b"x" * (BODY_BYTES - 11) + b'"}'
    head = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    request = head % len(body) + body
    loop = asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda: Caller(request, body), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    await asyncio.sleep(0.5)
    before, started = sum(one.count for one in callers), perf_counter()
    await asyncio.sleep(seconds)
    rate = (sum(one.count for one in callers) - before) / (perf_counter() - started)
    for one in callers:
        one.transport.abort()
    return rate


def main() -> None:
    """Serve, or serve and measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--measure", action="store_true")
    options.add_argument("--connections", type=int, default=64)
    options.add_argument("--seconds", type=float, default=5)
    chosen = options.parse_args()
    if not chosen.measure:
        uvloop.run(_serve(None, chosen.port))
        return
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_server_process, args=(theirs,), daemon=True)
    process.start()
    try:
        rate = uvloop.run(measure(ours.recv(), connections=chosen.connections, seconds=chosen.seconds))
        print(f"bare echo: {rate:,.0f} requests/s ({chosen.connections} connections, {BODY_BYTES} bytes)")
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
