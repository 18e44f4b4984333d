"""One hostile client of each kind, run as a process of its own: `python -m bench.attacks KIND PORT`.

Each goes on until it is killed. What it sends is either malformed, never finished, never read, or legal and costly;
``SMALL`` is a key with a prefix of its own, everything else comes without a key.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hpack import Encoder

HONEST, SMALL = "honest-key", "small-key"
KEYS = f"{HONEST},{SMALL}:read+write:small"
BODY_BYTES = 64 << 20

Attack = Callable[[int], Awaitable[None]]


def head(method: str, path: str, length: int, *, key: str = "", more: str = "") -> bytes:
    """The head of one HTTP/1.1 request."""
    allowed = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"{allowed}{more}content-length: {length}\r\n\r\n"
    ).encode()


async def _again(step: Callable[[], Awaitable[None]], pause_s: float = 0.05) -> None:
    """Repeat a step for ever, whatever the server does to its connections."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            await step()
        await asyncio.sleep(pause_s)


async def crowd(count: int, step: Callable[[], Awaitable[None]], pause_s: float = 0.05) -> None:
    """Have so many repeat a step for ever, whatever the server does to their connections."""
    await asyncio.gather(*(_again(step, pause_s) for _ in range(count)))


# Bodies that do not end


def half_sent(key: str) -> Attack:
    """Bodies of up to 64 MiB that stop just before their end, and small ones for the room between them."""

    async def attack(port: int) -> None:
        def step_of(size: int) -> Callable[[], Awaitable[None]]:
            return lambda: _send_half(port, size, key)

        sizes = [BODY_BYTES] * 6 + [1 << 20] * 64 + [1 << 16] * 64
        await asyncio.gather(*(_again(step_of(size)) for size in sizes))

    return attack


async def _send_half(port: int, size: int, key: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head("POST", "/v0/topics/small.q", size, key=key) + b'{"records":[{"data":"')
        for at in range(1_000, size - 1_000, 1 << 18):
            writer.write(b"x" * min(1 << 18, size - 1_000 - at))
            await writer.drain()
        await reader.read()
    finally:
        writer.close()


# Answers that nobody takes


async def unread_h2(port: int) -> None:
    """HTTP/2 with a window of nothing, many connections, many requests on each."""

    async def step() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            connection = H2Connection(H2Configuration(client_side=True))
            connection.initiate_connection()
            connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
            for _ in range(100):
                connection.send_headers(connection.get_next_available_stream_id(), _request("/openapi.json"), True)
            writer.write(connection.data_to_send())
            await reader.read()
        finally:
            writer.close()

    await crowd(200, step)


async def unread_h1(port: int) -> None:
    """Requests in a row on HTTP/1.1, and not a byte of the answers taken."""

    async def step() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1_000)
        try:
            await asyncio.sleep(60)
        finally:
            writer.transport.abort()

    await crowd(200, step)


def _request(path: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    pseudo = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
    return [*pseudo, *more]


# Requests that cost much


def costly(body: bytes, *, callers: int = 2) -> Attack:
    """The same append over and over, with a key that may write."""

    async def attack(port: int) -> None:
        async def step() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(head("POST", "/v0/topics/small.q", len(body), key=SMALL))
                    for at in range(0, len(body), 1 << 20):
                        writer.write(body[at : at + (1 << 20)])
                        await writer.drain()
                    if not await reader.read(1 << 16):
                        return
            finally:
                writer.close()

        await crowd(callers, step)

    return attack


def deep_record() -> bytes:
    """A legal record of 1 MiB that is nested as deep as is allowed, over and over."""
    tower = b"[" * 500 + b"]" * 500
    towers = b",".join([tower] * ((1 << 20) // (len(tower) + 1) - 1))
    return b'{"records":[{"data":[' + towers + b"]}]}"


def strange_fields() -> bytes:
    """One small record and 63 MB of a field that nobody knows."""
    strange = b",".join([b'{"a":1,"a":2}'] * (63_000_000 // 14))
    return b'{"records":[{"data":1}],"strange":[' + strange + b"]}"


def broken_text() -> bytes:
    """Text that is broken at its very end."""
    return b'{"records":[' + b",".join([b'{"data":"\xc3\xa4"}'] * 4_000_000) + b'],"x":"\xff"}'


async def hpack_references(port: int) -> None:
    """A long header stored once and referred to for one byte each."""

    async def step() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            connection = H2Connection(H2Configuration(client_side=True))
            connection.initiate_connection()
            writer.write(connection.data_to_send())
            encoder = Encoder()
            number = 1
            while True:
                fields = _request("/nowhere", *[("x-filler", "v" * 3_900)] * 9)
                block = encoder.encode(fields)
                frame = len(block).to_bytes(3, "big") + b"\x01\x05" + number.to_bytes(4, "big") + block
                writer.write(frame)
                number += 2
                await writer.drain()
                if reader.at_eof():
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 16), 0.001)
        finally:
            writer.close()

    await crowd(4, step)


# Sockets that say nothing


def silent(count: int) -> Attack:
    """Connections that never send a byte."""

    async def attack(port: int) -> None:
        async def step() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await reader.read()
            finally:
                writer.close()

        await crowd(count, step, 0.5)

    return attack


async def tls_hello(port: int) -> None:
    """A TLS handshake that is begun and left, over and over."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def step() -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(outgoing.read())
            await reader.read(1)
            await reader.read()
        finally:
            writer.close()

    await crowd(500, step, 0.5)


# What a small key may use up


def greedy(path: str, body: Callable[[int], bytes]) -> Attack:
    """Requests that each leave something behind, as fast as they are answered."""

    async def attack(port: int) -> None:
        number = 0

        async def step() -> None:
            nonlocal number
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    number += 1
                    data = body(number)
                    writer.write(head("POST", path.format(number), len(data), key=SMALL) + data)
                    if not await reader.read(1 << 16):
                        return
            finally:
                writer.close()

        await crowd(2, step)

    return attack


async def busy(_: int) -> None:
    """Send nothing, and use a core as every other kind does: what the machine itself costs an honest client."""
    while True:
        pass


async def busy_twice(_: int) -> None:
    """Send nothing, and use two cores, as a kind does that keeps the server busy too."""
    parent = os.getpid()
    if os.fork():
        while True:
            pass
    while os.getppid() == parent:
        pass
    os._exit(0)


KINDS: dict[str, Attack] = {
    "a busy process, no attack": busy,
    "two busy processes, no attack": busy_twice,
    "half-sent bodies, no key": half_sent(""),
    "half-sent bodies, a small key": half_sent(SMALL),
    "HTTP/2 answers not taken": unread_h2,
    "HTTP/1.1 answers not taken": unread_h1,
    "a deep record of 1 MiB": lambda port: costly(deep_record())(port),
    "63 MB of unknown fields": lambda port: costly(strange_fields())(port),
    "60 MB of broken text": lambda port: costly(broken_text())(port),
    "HPACK references": hpack_references,
    "silent sockets": silent(2_000),
    "silent TLS sockets": silent(2_000),
    "TLS handshakes left": tls_hello,
    "watch sessions": greedy("/v0/watch?lenient=true", lambda number: b'{"topics":{"small.q":{"tail":true}}}'),
    "topics": greedy("/v0/topics/small.{}", lambda number: b'{"records":[{"data":1}]}'),
    "idempotency keys": greedy(
        "/v0/topics/small.q", lambda number: b'{"idempotency_key":"%d","records":[{"data":1}]}' % number
    ),
}
"""By what it does to the server. Those whose name has TLS in it are for a server that speaks it."""


def main(arguments: Sequence[str]) -> None:
    kind, port = arguments
    asyncio.run(KINDS[kind](int(port)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1:])
