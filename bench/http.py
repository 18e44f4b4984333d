"""`make bench-http`: the server against its bars, in one run, server and load on the same two cores."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench.measure import Row, calibrate, report

CONNECTIONS = 64
SECONDS = 2.5
STREAMS = 1_000
ROW = b'{"data":"' + b"x" * 240 + b'"}'
SINGLE = b'{"records":[' + ROW + b"]}"
MANY = b'{"records":[' + b",".join([ROW] * 1_000) + b"]}"


class Job(msgspec.Struct):
    """As much of a claimed job as an ack needs."""

    seq: int = msgspec.field(name="$seq")


class Claimed(msgspec.Struct):
    """As much of a claim's answer as an ack needs."""

    claimed: list[Job]


# Processes


@contextmanager
def process(*command: str) -> Iterator[tuple[int, int]]:
    """A server on a free port: (port, process id). It is stopped by its process id."""
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield int(found[1]), child.pid
                break
        else:
            raise SystemExit("the server did not start")
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(20)


def tenure(home: str) -> list[str]:
    return ["-m", "tenure.cli.main", "serve", "--data", f"{home}/data", "--port", "0", "--log-level", "warning"]


# Load


def message(method: str, path: str, body: bytes = b"") -> bytes:
    """One request's bytes."""
    fields = ("host: 127.0.0.1", "accept: */*, text/event-stream")
    fields += ("content-type: application/json", f"content-length: {len(body)}")
    return "\r\n".join((f"{method} {path} HTTP/1.1", *fields, "", "")).encode() + body


class Caller(asyncio.Protocol):
    """Sends the same request over and over, one at a time, and counts the answers."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._buffer = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0:
            return
        start = self._buffer.index(b"content-length: ") + 16
        length = int(self._buffer[start : self._buffer.index(b"\r\n", start)])
        if len(self._buffer) >= at + 4 + length:
            assert self._buffer.startswith(b"HTTP/1.1 20"), self._buffer[:200]
            self._buffer = b""
            self.answers += 1
            self._transport.write(self._request)


async def load(port: int, request: bytes) -> float:
    """Answers per second over many connections, each with one request under way."""
    loop = asyncio.get_running_loop()
    callers = [Caller(request) for _ in range(CONNECTIONS)]
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(0.5)
    before, started = sum(caller.answers for caller in callers), time.perf_counter()
    await asyncio.sleep(SECONDS)
    rate = (sum(caller.answers for caller in callers) - before) / (time.perf_counter() - started)
    for caller in callers:
        caller._transport.abort()
    return rate


class Client:
    """One plain client on one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request and give the body of its answer."""
        self._socket.sendall(message(method, path, body))
        data = self._socket.recv(1 << 20)
        while (at := data.find(b"\r\n\r\n")) < 0:
            data += self._socket.recv(1 << 20)
        start = data.index(b"content-length: ") + 16
        length = int(data[start : data.index(b"\r\n", start)])
        parts, got = [data[at + 4 :]], len(data) - at - 4
        while got < length:
            part = self._socket.recv(1 << 20)
            parts.append(part)
            got += len(part)
        assert data.startswith(b"HTTP/1.1 20"), data[:300]
        return b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


# The bars


def single_produce(home: str) -> list[Row]:
    """One record a request: against the bare echo, and how many syncs the requests share."""
    echo = rate = 0.0
    with process("-m", "bench.echo") as (echo_port, _), process(*tenure(home)) as (port, _):
        client = Client(port)
        client.call("PUT", "/v0/topics/m", b'{"type":"queue","durability":"memory"}')
        client.call("PUT", "/v0/topics/f", b'{"type":"queue","durability":"fsync"}')
        for _ in range(3):  # in turns, so that both meet the same weather
            echo = max(echo, uvloop.run(load(echo_port, message("POST", "/echo", SINGLE))))
            rate = max(rate, uvloop.run(load(port, message("POST", "/v0/topics/m", SINGLE))))
        before = _totals(client)
        synced = uvloop.run(load(port, message("POST", "/v0/topics/f", SINGLE)))
        after = _totals(client)
    ratio = rate / echo
    shared = (after["syncs"] - before["syncs"]) / (after["produced"] - before["produced"])
    return [
        (
            "single produce, memory class, against the echo",
            f"{ratio:.2f} ({rate:,.0f} / {echo:,.0f} per s)",
            "≥ 0.35",
            ratio >= 0.35,
        ),
        (
            "syncs per request, fsync class, 64 connections",
            f"{shared:.3f} ({synced:,.0f} per s)",
            "≤ 0.05",
            shared <= 0.05,
        ),
    ]


def _totals(client: Client) -> dict[str, float]:
    text = client.call("GET", "/v0/metrics").decode()
    found = {}
    for name in ("syncs", "produced"):
        number = re.search(rf"^tenure_{name}_total (\S+)$", text, re.MULTILINE)
        assert number is not None, name
        found[name] = float(number[1])
    return found


def batches(home: str) -> list[Row]:
    """A thousand jobs a call, synced, from one Python client."""
    rounds = 150
    with process(*tenure(home)) as (port, _):
        client, decoder = Client(port), msgspec.json.Decoder(Claimed)
        client.call("PUT", "/v0/topics/q", b'{"type":"queue","durability":"fsync"}')
        started = time.perf_counter()
        for _ in range(rounds):
            client.call("POST", "/v0/topics/q?return_seqs=false", MANY)
        produced = rounds * 1_000 / (time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(rounds):
            claimed = decoder.decode(client.call("POST", "/v0/topics/q/claim", b'{"node":"w","max":1000}')).claimed
            seqs = [job.seq for job in claimed]
            client.call("POST", "/v0/topics/q/ack", msgspec.json.encode({"node": "w", "seqs": seqs}))
        settled = rounds * 1_000 / (time.perf_counter() - started)
    return [
        ("produce, 1,000 jobs a call, fsync, one client", f"{produced:,.0f} jobs/s", "≥ 250,000", produced >= 250_000),
        ("claim and ack, 1,000 a call, fsync, one client", f"{settled:,.0f} jobs/s", "≥ 150,000", settled >= 150_000),
    ]


def streams(home: str) -> list[Row]:
    """A thousand idle work streams: what each costs, and how long a job takes to reach one."""
    with process(*tenure(home)) as (port, pid):
        client = Client(port)
        client.call("PUT", "/v0/topics/w", b'{"type":"queue","durability":"disk"}')
        before = _resident_bytes(pid)
        each, p99 = uvloop.run(_stream_figures(port, pid, before))
    return [
        ("memory of an idle work stream", f"{each / 1000:.1f} kB", "< 25 kB", each < 25_000),
        ("a job reaches one of 1,000 streams, p99", f"{p99 * 1000:.2f} ms", "≤ 5 ms", p99 <= 0.005),
    ]


async def _stream_figures(port: int, pid: int, before: int) -> tuple[float, float]:
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    readers, writers = [], []
    for number in range(STREAMS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(message("GET", f"/v0/topics/w/work?node=n{number}&max=1"))
        readers.append(asyncio.create_task(_listen(reader, arrivals)))
        writers.append(writer)  # a writer that nobody keeps closes its connection
    await asyncio.sleep(1)
    each = (_resident_bytes(pid) - before) / STREAMS
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request, waits = message("POST", "/v0/topics/w", SINGLE), []
    for _ in range(500):
        started = time.perf_counter()
        writer.write(request)
        waits.append(await asyncio.wait_for(arrivals.get(), 10) - started)
        await reader.read(1 << 16)
    for task in readers:
        task.cancel()
    return each, sorted(waits)[int(len(waits) * 0.99)]


async def _listen(reader: asyncio.StreamReader, arrivals: asyncio.Queue[float]) -> None:
    while data := await reader.read(1 << 16):
        if b"event: job" in data:
            arrivals.put_nowait(time.perf_counter())


def _resident_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    rows: list[Row] = []
    for part in (single_produce, batches, streams):
        with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
            rows += part(home)
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    report("bench-http", rows)


if __name__ == "__main__":
    main()
