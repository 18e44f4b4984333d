"""The rows of `make bench-hostile` in which nothing is refused: one key uses all that it is granted, beside 50 clients.

The honest clients, a process of their own, append and claim twice a second. In the quiet seconds half of them keep
their connection; beside the load a third has connected before it, a third as it begins, and a third connects for each
round. A call's time includes its connection. `python -m bench.granted KIND` measures the kinds whose name has that.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.attacks import HONEST, SMALL, crowd, head
from bench.hosting import resident_bytes, server
from bench.measure import Row, calibrate, report

CLIENTS, EVERY_S = 50, 0.5
QUIET_S, LOADED_S = 4.0, 8.0
RATIO_MAX, P99_S_MIN = 10.0, 0.050
ABOVE_BYTES_MAX = (128 + 32 << 20) * 3 // 2
"""One and a half times `limits.unsent_bytes_total_max` and `memory_spare_bytes_max`, which these kinds have it keep."""
BIG, TEXT = 1_000_000, b'{"records":[{"data":"%b"}]}'


class Times(msgspec.Struct):
    """Seconds that the calls of all honest clients took, in order, and how many failed."""

    took_s: list[float]
    errors: int

    def at(self, part: float) -> float:
        """Return the time that this part of the calls did not exceed."""
        return self.took_s[min(int(len(self.took_s) * part), len(self.took_s) - 1)]


# Calls


class Line:
    """One connection, opened by the first call."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of one answer. Raises OSError, IncompleteReadError."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        self._writer.write(head(method, path, len(body), key=self._key) + body)
        found = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", found)
        return int(found[9:12]), await self._reader.readexactly(int(length[1]) if length else 0)

    def close(self) -> None:
        """Close it; the next call opens another one."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


async def fill(port: int, topics: int, records: list[bytes], meters: bool = False) -> None:
    """Make the honest queue, and what a load reads: topics under the small key's prefix and records in ``small.q``."""
    line = Line(port, HONEST)
    await line.call("PUT", "/v0/topics/honest", b'{"type":"queue","durability":"memory"}')
    await line.call("PUT", "/v0/topics/small.q", b'{"durability":"memory"}')
    for number in range(topics):
        await line.call("PUT", f"/v0/topics/small.{number}", b'{"type":"queue","durability":"memory"}')
        if meters:
            await line.call("POST", f"/v0/topics/small.{number}", TEXT % b"x")
    for body in records:
        status, answer = await line.call("POST", "/v0/topics/small.q", body)
        assert status < 300, answer
    line.close()


# Loads


Load = Callable[[int], Awaitable[None]]


def repeated(count: int, method: str, path: str, body: bytes = b"") -> Load:
    """Ask the same on so many connections, each again as soon as it is answered."""

    async def load(port: int) -> None:
        async def step() -> None:
            line = Line(port, SMALL)
            try:
                while True:
                    status, answer = await line.call(method, path, body)
                    assert status < 300, answer
            finally:
                line.close()

        await crowd(count, step)

    return load


async def knocking(port: int) -> None:
    """700 diffs in flight, and 300 connections that say nothing and are opened again and again."""

    async def knock() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.3)
        writer.close()

    await asyncio.gather(repeated(700, "POST", "/v0/topics/small.q/diff", b'{"limit":1}')(port), crowd(300, knock))


def unread(count: int, ask: Callable[[Line], Awaitable[bytes]]) -> Load:
    """Open so many requests and take none of their answers, while records of 900 kB come."""

    async def load(port: int) -> None:
        async def step() -> None:
            line = Line(port, SMALL)
            request = await ask(line)
            line.close()
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            _, writer = await asyncio.open_connection(sock=sock, limit=1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(request)
            try:
                await asyncio.sleep(6)
            finally:
                writer.transport.abort()

        async def feed() -> None:
            line = Line(port, SMALL)
            await asyncio.sleep(3)
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await line.call("POST", "/v0/topics/small.q", TEXT % (b"x" * 900_000))
                await asyncio.sleep(0.1)

        await asyncio.gather(feed(), crowd(count, step))

    return load


async def _poll(line: Line) -> bytes:
    _status, answer = await line.call("GET", "/v0/topics/small.q")
    body = b'{"from_seq":%d,"wait_ms":25000}' % json.loads(answer).get("head_seq", 0)
    return head("POST", "/v0/topics/small.q/diff", len(body), key=SMALL) + body


async def _watch(line: Line) -> bytes:
    _status, answer = await line.call("POST", "/v0/watch", b'{"topics":{"small.q":{"tail":true}}}')
    return head("GET", json.loads(answer).get("stream_url", "/"), 0, key=SMALL, more="accept: text/event-stream\r\n")


DIFF = ("POST", "/v0/topics/small.q/diff")
SMALLS = [b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 10_000)]
BIGS = [TEXT % (b"x" * BIG)]

KINDS: dict[str, tuple[Load, tuple[int, list[bytes], bool]]] = {
    "granted: 40 records of 1 MB, 32 at once": (repeated(32, *DIFF, b'{"limit":40}'), (0, BIGS * 40, False)),
    "granted: 900 records of 1 MB at once": (repeated(900, *DIFF, b'{"limit":1}'), (0, BIGS * 4, False)),
    "granted: 700 at once, 300 reopened": (knocking, (0, BIGS * 4, False)),
    "granted: 10,000 small records, 64 at once": (repeated(64, *DIFF, b'{"limit":10000}'), (0, SMALLS, False)),
    "granted: lists of 1,000 topics, 16 at once": (
        repeated(16, "GET", "/v0/topics?prefix=small.&page_size=1000&meters=true"),
        (1_000, [], True),
    ),
    "granted: metrics, 16 at once": (repeated(16, "GET", "/v0/metrics"), (2_000, [], True)),
    "granted: 900 watches not read": (unread(900, _watch), (0, BIGS, False)),
    "granted: long polls not read": (unread(900, _poll), (0, BIGS, False)),
    "granted: 10,000 tiny records, 16 at once": (repeated(16, "POST", "/v0/topics/small.q", SMALLS[0]), (0, [], False)),
    "granted: GET /v0/key, 64 at once": (repeated(64, "GET", "/v0/key"), (0, [], False)),
    "granted: GET /v0/key, 900 at once": (repeated(900, "GET", "/v0/key"), (0, [], False)),
}
"""By what it asks for: the load, and what `fill` makes for it."""


# The honest clients, a process of their own


async def be_honest(port: int) -> None:
    """Print the times of the quiet seconds, wait for a word, and print those beside the load."""
    lines = [Line(port, HONEST) for _ in range(CLIENTS)]
    kept = [one % 2 == 0 for one in range(CLIENTS)]
    print(msgspec.json.encode(await _live(lines, kept, QUIET_S)).decode(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for line in lines[CLIENTS // 3 :]:
        line.close()
    kept = [one < CLIENTS * 2 // 3 for one in range(CLIENTS)]
    print(msgspec.json.encode(await _live(lines, kept, LOADED_S)).decode(), flush=True)


async def _live(lines: list[Line], kept: list[bool], seconds: float) -> Times:
    times, until = Times([], 0), time.perf_counter() + seconds

    async def one(line: Line, keeps: bool) -> None:
        await asyncio.sleep(random.random() * EVERY_S)
        while time.perf_counter() < until:
            for path, body in (("", TEXT % b"x"), ("/claim", b'{"node":"honest","auto_ack":true}')):
                began_s = time.perf_counter()
                try:
                    status, _ = await line.call("POST", "/v0/topics/honest" + path, body)
                    times.errors += status >= 300
                except (OSError, asyncio.IncompleteReadError):
                    times.errors += 1
                    line.close()
                times.took_s.append(time.perf_counter() - began_s)
                if not keeps:
                    line.close()
            await asyncio.sleep(EVERY_S)

    await asyncio.gather(*map(one, lines, kept))
    times.took_s.sort()
    return times


# The bars


def measure(kind: str) -> list[Row]:
    """One kind of load: latency and errors of the honest clients, and the server's memory."""
    this = [sys.executable, "-m", "bench.granted"]
    with tempfile.TemporaryDirectory(prefix="tenure-granted-") as name, server(Path(name), tls=False) as (port, pid):
        asyncio.run(fill(port, *KINDS[kind][1]))
        with subprocess.Popen([*this, "honest", str(port)], stdin=-1, stdout=-1, text=True) as honest:
            assert honest.stdin is not None
            assert honest.stdout is not None
            quiet = msgspec.json.decode(honest.stdout.readline(), type=Times)
            before = peak = resident_bytes(pid)
            load = subprocess.Popen([*this, "load", kind, str(port)])
            try:
                honest.stdin.write("go\n")
                honest.stdin.flush()
                until = time.monotonic() + LOADED_S
                while time.monotonic() < until:
                    peak = max(peak, resident_bytes(pid))
                    time.sleep(0.05)
                beside = msgspec.json.decode(honest.stdout.readline(), type=Times)
                if load.poll() is not None:
                    raise SystemExit(f"the load {kind!r} ended by itself")
            finally:
                load.kill()
                load.wait(10)
    bar_s, above = max(RATIO_MAX * quiet.at(0.99), P99_S_MIN), peak - before
    met = beside.at(0.99) <= bar_s and not beside.errors and above <= ABOVE_BYTES_MAX
    figures = f"p50/p99/max {_ms(beside)} ms (quiet {_ms(quiet)}), {beside.errors} errors, {above >> 20:+d} MiB"
    return [(kind, figures, f"≤ {bar_s * 1e3:.0f} ms, 0, +{ABOVE_BYTES_MAX >> 20}", met)]


def _ms(times: Times) -> str:
    return "/".join(f"{times.at(part) * 1e3:.1f}" for part in (0.5, 0.99, 1.0))


def main() -> None:
    match sys.argv[1:]:
        case ["honest", port]:
            asyncio.run(be_honest(int(port)))
        case ["load", kind, port]:
            asyncio.run(KINDS[kind][0](int(port)))  # type: ignore[arg-type]
        case wanted:
            rows = [row for kind in KINDS if not wanted or wanted[0] in kind for row in measure(kind)]
            print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
            report("bench-hostile: 50 honest clients beside a key that uses all it is granted", rows)


if __name__ == "__main__":
    main()
