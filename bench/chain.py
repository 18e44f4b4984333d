"""`make bench-chain`: a log whose home is a store against its bars, as ratios in one run.

A store in memory whose creates take 20 ms stands for a bucket in the same region; a SeaweedFS on this machine stands
for itself. Every part runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench.measure import Row, best_of, calibrate, report
from bench.slow_store import SlowStore, quantile
from tenure import Broker, Client
from tenure.chain.open import open_shipped
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.clock import SystemClock
from tenure.log.disk import PosixDisk
from tenure.log.log import SEGMENT_BYTES
from tenure.objects.store import ObjectStore, open_store
from tests.kit.restartable_server import Serving, until
from tests.kit.seaweed import KEYS, Seaweed

DATA = b'"' + b"x" * 254 + b'"'
PUT_MS = 20.0
SECONDS = 5.0
WARM_UP_S = 1.0
MILLION = 1_000_000
_SWITCH_S = 10e-6  # as `tenure serve` sets it


def opener(store: ObjectStore, home: Path) -> Callable[[], ShippedLog]:
    """Return what a broker opens its log with."""
    return lambda: open_shipped(
        store,
        PosixDisk(home),
        settings=ChainSettings(silence_ms=3, hint_ms=1),
        clock=SystemClock(),
        segment_bytes=SEGMENT_BYTES,
    )


# Throughput, in process, one create of 20 ms under way


async def rates(home: Path, kind: str, where: str) -> dict[str, float]:
    """Jobs a second, and processor time per job, of callers that wait for durability."""
    store = SlowStore(PUT_MS)
    data: Any = opener(store, home) if where == "home" else home
    async with await Broker.open(data) as broker:
        store.is_slow = True
        await broker.put_topic("q", {"type": "queue", "durability": "fsync", "lease_ms": 86_400_000})
        callers, size, turn = _KINDS[kind]
        found = await _measure(partial(turn, broker), callers, size=size)
    return found | {"calibration": calibrate(), "put_ms": quantile(store.took_ms, 0.5) if store.took_ms else 0.0}


async def _measure(turn: Callable[[], Awaitable[None]], callers: int, *, size: int) -> dict[str, float]:
    """Let so many callers take turns for some seconds, after a warm-up."""
    done, is_over = 0, False

    async def call() -> None:
        nonlocal done
        while not is_over:
            await turn()
            done += size

    calling = [asyncio.create_task(call()) for _ in range(callers)]
    await asyncio.sleep(WARM_UP_S)
    before, started, cpu = done, time.perf_counter(), time.process_time()
    await asyncio.sleep(SECONDS)
    jobs, wall_s, cpu_s = done - before, time.perf_counter() - started, time.process_time() - cpu
    is_over = True
    await asyncio.gather(*calling)
    return {"rate": jobs / wall_s, "cpu_us": cpu_s / max(1, jobs) * 1e6}


async def _produce(broker: Broker, size: int) -> None:
    await broker.produce("q", [DATA] * size)


async def _live(broker: Broker) -> None:
    await broker.produce("q", [DATA] * 100)
    claim = await broker.claim("q", node="w", max_count=100)
    if claim.seqs:
        await broker.ack("q", node="w", seqs=claim.seqs)


_KINDS: dict[str, tuple[int, int, Callable[[Broker], Awaitable[None]]]] = {
    "singles": (2_048, 1, lambda broker: _produce(broker, 1)),
    "hundreds": (64, 100, lambda broker: _produce(broker, 100)),
    "lives": (64, 100, _live),
}


# Latency, open loop


async def latency(home: Path) -> dict[str, float]:
    """Acks at 1,000 a second, each sent at its time whatever became of those before it."""
    store, count = SlowStore(PUT_MS), 8_000
    async with await Broker.open(opener(store, home)) as broker:
        await broker.put_topic("q", {"type": "queue", "durability": "fsync", "lease_ms": 86_400_000})
        seqs: list[int] = []
        while len(seqs) < count:
            await broker.produce("q", [DATA] * 1_000)
            seqs += (await broker.claim("q", node="w", max_count=1_000)).seqs
        store.is_slow = True
        took_ms: list[float] = []

        async def ack(seq: int, due: float) -> None:
            await broker.ack("q", node="w", seqs=[seq])
            took_ms.append((time.perf_counter() - due) * 1000)

        started, acking = time.perf_counter(), []
        for number, seq in enumerate(seqs):
            due = started + number / 1_000
            while (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            acking.append(asyncio.create_task(ack(seq, due)))
        await asyncio.gather(*acking)
    shares = {"p50": 0.5, "p99": 0.99}
    ours = {name: quantile(took_ms, share) for name, share in shares.items()}
    puts = {f"put_{name}": quantile(store.took_ms, share) for name, share in shares.items()}
    return ours | puts


# Over HTTP, on SeaweedFS


@contextmanager
def seaweed() -> Iterator[Seaweed]:
    """A SeaweedFS of this run."""
    os.environ |= KEYS
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        server = Seaweed(Path(home))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def http_rates(store: Seaweed, home: Path) -> dict[str, float]:
    """Jobs a second of one client, 1,000 a call, on a server with a home and on one without, in turns."""
    servers = {
        "home": Serving(home / "cache", settings={"home": store.url("http")}),
        "local": Serving(home / "local"),
    }
    found: dict[str, list[float]] = {name: [] for name in servers}
    try:
        for server in servers.values():
            server.start()
            until(lambda server=server: server.call("GET", "/v0/ready").status_code == 200, "ready")  # type: ignore[misc]
            server.ok("PUT", "/v0/topics/q", {"type": "queue", "durability": "fsync"})
        for _ in range(5):
            for name, server in servers.items():
                found[name].append(_http_rate(server.address))
    finally:
        for server in servers.values():
            server.close()
    return {name: sorted(rates)[len(rates) // 2] for name, rates in found.items()}


def _http_rate(address: str) -> float:
    with Client(address) as client:
        client.produce("q", [DATA] * 1_000)
        calls, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS / 2:
            client.produce("q", [DATA] * 1_000)
            calls += 1
        return calls * 1_000 / (time.perf_counter() - started)


# Starts


async def fill(home: Path, url: str) -> dict[str, float]:
    """A home with a million jobs, and a directory beside it, closed in good order."""
    async with await Broker.open(opener(open_store(url), home)) as broker:
        await broker.put_topic("q", {"type": "queue"})
        for _ in range(0, MILLION, 1_000):
            await broker.produce("q", [DATA] * 1_000)
        size = sum(segment.used_bytes for segment in broker._engine.log.segments())
    return {"bytes": size}


_OPEN = """
import asyncio, sys
from pathlib import Path
from bench.chain import opener
from tenure import Broker
from tenure.objects.store import open_store
async def main():
    broker = await Broker.open(opener(open_store(sys.argv[2]), Path(sys.argv[1])))
    assert broker.topic("q").count == 1_000_000
    await broker.close()
asyncio.run(main())
"""


def start_seconds(home: Path, url: str) -> tuple[float, float]:
    """Return the seconds, and processor seconds, of a process that gets the million jobs ready and ends."""
    started, before = time.perf_counter(), _children_cpu_s()
    subprocess.run([sys.executable, "-c", _OPEN, str(home), url], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started, _children_cpu_s() - before


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def starts(store: Seaweed, home: Path) -> dict[str, float]:
    """A restart on the same directory, and a start on an empty one."""
    url = store.url("starts")
    size = _run(fill(home / "first", url))["bytes"]
    warm_s, warm_cpu_s = min(start_seconds(home / "first", url) for _ in range(3))
    cold: list[tuple[float, float]] = []
    for number in range(2):
        cold.append(start_seconds(home / f"cold-{number}", url))
        shutil.rmtree(home / f"cold-{number}")
    bare = best_of(2, lambda: subprocess.run([sys.executable, "-c", "import bench.chain"], check=True))
    cold_s, cold_cpu_s = min(cold)
    times = {"warm_s": warm_s, "warm_cpu_s": warm_cpu_s, "cold_s": cold_s, "cold_cpu_s": cold_cpu_s}
    return {"bytes": size, "import_s": bare, **times}


# Putting it together


def _run(work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    sys.setswitchinterval(_SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def run_part(name: str, *arguments: str) -> dict[str, float]:
    """Run one part in a process and a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        command = [sys.executable, "-m", "bench.chain", name, home, *arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def part(name: str, home: Path, arguments: list[str]) -> dict[str, float]:
    """What a child process does."""
    match name:
        case "rates":
            return _run(rates(home / "data", *arguments))
        case "latency":
            return _run(latency(home / "data"))
        case "http" | "starts":
            with seaweed() as store:
                return http_rates(store, home) if name == "http" else starts(store, home)
        case _:
            raise SystemExit(f"no part {name!r}")


def rate_rows() -> list[Row]:
    rows: list[Row] = []
    for kind, what, bar in (
        ("singles", "one by one, 2,048 callers", 40_000),
        ("hundreds", "in hundreds, 64 callers", 120_000),
        ("lives", "whole lives in hundreds, 64 callers", 80_000),
    ):
        ours, local = run_part("rates", kind, "home"), run_part("rates", kind, "local")
        measured = f"{ours['rate']:,.0f}/s ({ours['rate'] / local['rate']:.2f} of local, {ours['cpu_us']:.1f} µs each)"
        rows.append((what, measured, f"≥ {bar:,}/s", ours["rate"] >= bar))
    return rows


def latency_rows() -> list[Row]:
    found = run_part("latency")
    rows: list[Row] = []
    for name, bar in (("p50", 1.8), ("p99", 1.6)):
        ratio = found[name] / found[f"put_{name}"]
        measured = f"{ratio:.2f}× ({found[name]:.0f} / {found[f'put_{name}']:.0f} ms)"
        rows.append((f"ack at 1,000/s, {name} against the store's", measured, f"≤ {bar}×", ratio <= bar))
    return rows


def seaweed_rows() -> list[Row]:
    http, found = run_part("http"), run_part("starts")
    ratio, cold = http["home"] / http["local"], found["bytes"] / 1e6 / (found["cold_s"] - found["import_s"])
    warm = found["warm_s"]
    measured = f"{ratio:.2f} ({http['home']:,.0f} / {http['local']:,.0f} per s)"
    return [
        ("over HTTP on SeaweedFS, 1,000 a call, against local", measured, "≥ 0.5", ratio >= 0.5),
        (
            "cold start from SeaweedFS",
            f"{cold:.0f} MB/s ({found['cold_cpu_s']:.1f} s of CPU)",
            "≥ 150 MB/s",
            cold >= 150,
        ),
        ("restart with 1,000,000 jobs", f"{warm:.2f} s ({found['warm_cpu_s']:.1f} s of CPU)", "< 1.5 s", warm < 1.5),
    ]


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(part(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
        return
    rows = [*rate_rows(), *latency_rows(), *seaweed_rows()]
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    report("bench-chain", rows)


if __name__ == "__main__":
    main()
