"""A fuzz target for the wire: valid conversations, damaged at random and split at random places.

Whatever comes, the server answers or closes; it never hangs, never raises, never answers 500, and keeps nothing.
`python -m tests.http.fuzz_protocol --seconds 600` runs as long as wanted; a failure prints the seed to run again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from time import monotonic
from typing import Any

import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection

from tenure.http.server import Server, serve
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Request, Response, Send
from tests.http.wire_support import Welcome

__all__ = ["fuzz"]

LIMITS = WireLimits(
    body_bytes_max=20_000, header_bytes_max=4_000, target_bytes_max=1_000, pipeline_max=3, h2_control_frames_max=50
)
TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"%2F", b"%", b"HTTP/1.0", b"HTTP/2.0", b"a" * 5_000, b"\0" * 9),
    *(b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"\xff" * 9),
    *(b"connection: close\r\n", b"connection: upgrade\r\n", b"upgrade: h2c\r\n", b"expect: 100-continue\r\n"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


def conversations() -> list[bytes]:
    """Byte streams that a good client might send."""
    h1 = b"host: x\r\ncontent-type: application/json\r\n"
    return [
        b"GET /a?b=c HTTP/1.1\r\n" + h1 + b"\r\n",
        b"POST /a%20b HTTP/1.1\r\n" + h1 + b"content-length: 5\r\n\r\nhello" + b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /later HTTP/1.1\r\n"
        + h1
        + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\na: b\r\n\r\n",
        b"PUT /a HTTP/1.1\r\n" + h1 + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /stream HTTP/1.1\r\n" + h1 + b"\r\n" + b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" * 5,
        b"POST /a HTTP/1.1\r\n" + h1 + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /a HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc",
        _http2(),
    ]


def _http2() -> bytes:
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for number, path in ((1, "/a"), (3, "/stream"), (5, "/later")):
        head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "x"), ("a", "b" * 50)]
        client.send_headers(number, head)
        client.send_data(number, b"hello", end_stream=True)
    client.ping(b"12345678")
    client.reset_stream(3)
    return client.data_to_send()


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Damage a byte stream in up to six places."""
    for _ in range(rng.randrange(7)):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 5, 30))
        match rng.randrange(6):
            case 0:
                data = data[:at] + rng.randbytes(size) + data[at + size :]
            case 1:
                data = data[:at] + data[at + size :]
            case 2:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
            case 3:
                data = data[: at + size] + data[at:]
            case 4 if data[at : at + 1]:
                data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
            case _:
                data = data[:at] or data
    return data


def handle(request: Request) -> Any:
    """Answer in each of the ways there are."""
    if request.path == "/later":
        return _later(request)
    if request.path == "/stream":
        return Response(200, stream=_stream)
    return Response(200, bytes(request.body))


async def _later(request: Request) -> Response:
    await asyncio.sleep(0)
    return Response(200, bytes(request.body))


async def _stream(send: Send) -> None:
    for _ in range(3):
        await send(b"data")
        await asyncio.sleep(0)


async def one(server: Server, seed: int) -> None:
    """One conversation; raises AssertionError or TimeoutError where the server did not behave."""
    rng = random.Random(seed)
    data = mutate(rng, rng.choice(conversations()))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        while data:
            cut = rng.choice((1, 3, 20, 200, len(data)))
            writer.write(data[:cut])
            data = data[cut:]
            await asyncio.sleep(0)
        writer.write_eof()
        async with asyncio.timeout(20):
            received = await reader.read()
        assert b"HTTP/1.1 500" not in received
        assert received.startswith((b"HTTP/1.1 ", b"\0\0")) or not received
    except (OSError, RuntimeError) as error:
        if isinstance(error, TimeoutError):
            raise
        # otherwise it was cut off while sending
    finally:
        writer.close()


async def fuzz(*, first_seed: int, seconds: float, count: int | None = None) -> int:
    """Run conversations, eight at a time, until the time or the count is over; how many there were."""
    complaints: list[Any] = []
    errors = logging.getLogger("tenure.http")
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    errors.addHandler(handler)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    server = await serve(Welcome(handle), limits=LIMITS)
    seed, end = first_seed, monotonic() + seconds
    try:
        while monotonic() < end and (count is None or seed < first_seed + count):
            async with asyncio.TaskGroup() as group:
                for each in range(seed, seed + 8):
                    group.create_task(one(server, each), name=f"seed {each}")
            assert complaints == [], f"seeds {seed} to {seed + 7}: {complaints}"
            seed += 8
        assert (await _reply(server)).startswith(b"HTTP/1.1 200"), "the server does not answer any more"
        await server.drain(5)
        assert (len(server.connections), server.connections.bodies.held_bytes) == (0, 0)
    except* (AssertionError, TimeoutError) as failed:
        raise AssertionError(f"seeds {seed} to {seed + 7}: {failed.exceptions}") from failed
    finally:
        errors.removeHandler(handler)
        await server.drain(0)
    return seed - first_seed


async def _reply(server: Server) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    received = await reader.read()
    writer.close()
    return received


def main() -> None:
    """Fuzz from the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 40))
    chosen = options.parse_args()
    print(f"first seed {chosen.seed}")
    print(uvloop.run(fuzz(first_seed=chosen.seed, seconds=chosen.seconds)), "conversations, all well")


if __name__ == "__main__":
    main()
