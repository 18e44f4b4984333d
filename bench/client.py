"""`make bench-client`: clients and workers against their bars, in one run, server and load on the same two cores."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from bench.http import process, tenure
from bench.measure import Row, calibrate, report
from tenure.client.client import AsyncClient
from tenure.errors import NotFound

TASKS = 32
SECONDS = 2.0
DATA = {"to": "someone@example.com", "body": "x" * 200}
JOBS = 60_000
LATENCIES = 250
PATIENCE_S = 60.0

Put = Callable[[], Awaitable[object]]
Quantiles = tuple[float, float]
"""p99 and p50, in ms."""


# 32 tasks, one durable put at a time each


def single_puts(home: str) -> list[Row]:
    """The same puts, through a producer and without it, in turns."""
    with process(*tenure(home)) as (port, _):
        plain, gathered = uvloop.run(_single_puts(port))
    ratio = gathered / plain
    measured = f"{ratio:.1f} × ({gathered:,.0f} / {plain:,.0f} per s)"
    return [(f"{TASKS} tasks, single puts, fsync, producer against none", measured, "≥ 3 ×", ratio >= 3)]


async def _single_puts(port: int) -> tuple[float, float]:
    plain = gathered = 0.0
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        await client.put_topic("q", type="queue", durability="fsync")
        queue = client.queue("q")
        async with client.producer("q") as producer:
            for _ in range(3):  # in turns, so that both meet the same weather; the best of each
                plain = max(plain, await _rate(lambda: queue.put(DATA)))
                gathered = max(gathered, await _rate(lambda: producer.put(DATA)))
    return plain, gathered


async def _rate(put: Put) -> float:
    """Puts per second over all tasks."""
    end = time.perf_counter() + SECONDS

    async def caller() -> int:
        count = 0
        while time.perf_counter() < end:
            await put()
            count += 1
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*(caller() for _ in range(TASKS)))
    return sum(counts) / (time.perf_counter() - started)


# A worker in a process of its own


@contextmanager
def working(port: int, bell_port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`tenure worker` on the app beside this file. It is stopped by its process id."""
    variables = {"BENCH_URL": f"http://127.0.0.1:{port}", "BENCH_BELL_PORT": str(bell_port)}
    command = [
        str(Path(sys.executable).with_name("tenure")),
        "worker",
        "bench.worker_app:app",
        "--log-level",
        "warning",
    ]
    child = subprocess.Popen(command, env=os.environ | variables)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(40)


def worker_figures(home: str) -> list[Row]:
    """Jobs from put to acked, through one worker process; and how long one job takes to reach an idle worker."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bell, open(f"{home}/sync", "wb", buffering=0) as file:
        bell.bind(("127.0.0.1", 0))
        bell.setblocking(False)
        with process(*tenure(home)) as (port, _), working(port, bell.getsockname()[1]) as worker:
            rate, turns, rounds = uvloop.run(_worker_figures(port, bell, worker, file.fileno()))
    (p99, p50), (sync_p99, sync_p50) = min(rounds)  # the one that was disturbed least
    through = f"{rate:,.0f} jobs/s, at {turns / 1e6:.1f} M turns/s"
    reached = f"{p99:.2f} ms, p50 {p50:.2f}; a bare sync {sync_p99:.2f}, p50 {sync_p50:.2f}"
    return [
        ("put, handled and acked, fsync, one worker process", through, "≥ 10,000", rate >= 10_000),
        ("a put reaches the handler of an idle worker, p99", reached, "≤ 10 ms", p99 <= 10),
    ]


async def _worker_figures(
    port: int, bell: socket.socket, worker: subprocess.Popen[bytes], file: int
) -> tuple[float, float, list[tuple[Quantiles, Quantiles]]]:
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        await _until_declared(client, worker, "trivial", "latency")
        rate = max([await _through(client, JOBS) for _ in range(3)])
        turns = calibrate()
        rounds = [await _latencies(client, bell, file) for _ in range(3)]
    return rate, turns, rounds


async def _until_declared(client: AsyncClient, worker: subprocess.Popen[bytes], *queues: str) -> None:
    for queue in queues:
        while True:
            try:
                await client.topic(queue)
                break
            except NotFound:
                assert worker.poll() is None, "the worker ended"
                await asyncio.sleep(0.05)


async def _through(client: AsyncClient, count: int) -> float:
    """Jobs per second from the first put until all are acked, with the worker at it all the while."""
    started = time.perf_counter()
    async with client.producer("trivial") as producer:
        await producer.put_many([DATA] * count)
    while True:
        queue = (await client.topic("trivial")).queue
        assert queue is not None
        if queue.ready + queue.in_flight + queue.delayed == 0:
            return count / (time.perf_counter() - started)
        await asyncio.sleep(0.005)


async def _latencies(client: AsyncClient, bell: socket.socket, file: int) -> tuple[Quantiles, Quantiles]:
    """One job at a time, from rest, at random intervals; and beside each, what the disk alone takes."""
    waits, syncs = [], []
    for _ in range(LATENCIES):
        await asyncio.sleep(random.uniform(0.002, 0.04))
        waits.append(await _latency(client, bell))
        syncs.append(_sync(file))
    return _quantiles_ms(waits), _quantiles_ms(syncs)


def _quantiles_ms(waits: list[float]) -> Quantiles:
    ranked = sorted(waits)
    return ranked[int(len(ranked) * 0.99)] * 1000, ranked[len(ranked) // 2] * 1000


async def _latency(client: AsyncClient, bell: socket.socket) -> float:
    """Seconds from the call of put to the entry of the handler."""
    started = time.monotonic_ns()
    await client.queue("latency").put(DATA)
    entered = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(bell, 64), PATIENCE_S)
    return (int(entered) - started) / 1e9


def _sync(file: int) -> float:
    """Seconds that the disk takes for a few bytes: the part of a durable put that is nobody's here."""
    started = time.perf_counter()
    os.pwrite(file, b"x" * 300, 0)
    os.fdatasync(file)
    return time.perf_counter() - started


def main() -> None:
    rows: list[Row] = []
    for part in (single_puts, worker_figures):
        with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
            rows += part(home)
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    report("bench-client", rows)


if __name__ == "__main__":
    main()
