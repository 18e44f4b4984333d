"""`make bench-core`: the engine against its bars, in one run.

Every part runs in a process of its own, so that one part's memory and warmed-up caches are not another's.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.measure import Row, anonymous_bytes, best_of, calibrate, report
from tenure import Broker, Record, Settings
from tenure.log.disk import PosixDisk
from tenure.log.log import FileLog

DATA = b'"' + b"x" * 254 + b'"'
MILLION = 1_000_000


# Durable append against the bare disk


def durable_append(home: Path) -> dict[str, float]:
    """1,000 × 256 bytes, made durable: by the log, and by a bare writev + fdatasync of the same bytes."""
    records = [DATA] * 1_000
    fd = os.open(home / "bare", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 64 << 20)
    disk = PosixDisk(home / "log")
    log = FileLog.open(disk)
    for _ in log.replay():
        pass
    body = b"".join(records)
    ours: list[float] = []
    bare: list[float] = []
    for turn in range(150):
        started = time.perf_counter()
        os.lseek(fd, turn * 264_000, os.SEEK_SET)
        os.writev(fd, records)
        os.fdatasync(fd)
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        log.append_one(20, 1, body)
        log.sync()
        ours.append(time.perf_counter() - started)
    log.close()
    os.close(fd)
    return {"ratio": _median(bare) / _median(ours), "bare_us": _median(bare) * 1e6, "ours_us": _median(ours) * 1e6}


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


# The whole life of a job


async def life(home: Path) -> dict[str, float]:
    """Produce, claim, ack: in batches of 1,000, and one by one with 500 calls under way; disk class, one core."""
    async with await Broker.open(home) as broker:
        await broker.put_topic("many", {"type": "queue"})
        await broker.put_topic("one", {"type": "queue"})
        many = max([await _life_in_batches(broker, 200) for _ in range(5)])
        one = max([await _life_one_by_one(broker, 500, rounds=20) for _ in range(5)])
    return {"many": many, "one": one, "calibration": calibrate()}


async def _life_in_batches(broker: Broker, rounds: int) -> float:
    records = [DATA] * 1_000
    started = time.process_time()
    for _ in range(rounds):
        await broker.produce("many", records)
        claim = await broker.claim("many", node="w", max_count=1_000)
        settled = await broker.ack("many", node="w", seqs=claim.seqs)
        assert settled.count == 1_000
    return rounds * 1_000 / (time.process_time() - started)


async def _life_one_by_one(broker: Broker, width: int, *, rounds: int) -> float:
    started = time.process_time()
    for _ in range(rounds):
        for produced in [broker.produce("one", [DATA]) for _ in range(width)]:
            await produced
        claims = [await claim for claim in [broker.claim("one", node="w") for _ in range(width)]]
        for acked in [broker.ack("one", node="w", seqs=claim.seqs) for claim in claims]:
            assert (await acked).count == 1
    return rounds * width / (time.process_time() - started)


# Cost by depth


async def depth(home: Path) -> dict[str, float]:
    """Cost per job with a million waiting against ten thousand, for every step."""
    async with await Broker.open(home, settings=Settings(claim_max=1_000)) as broker:
        for name, waiting in (("shallow", 10_000), ("deep", MILLION)):
            await broker.put_topic(name, {"type": "queue", "lease_ms": 86_400_000})
            await _fill(broker, name, waiting, size=1_000, tag=True)
        costs: dict[str, dict[str, float]] = {"shallow": {}, "deep": {}}
        for _ in range(7):  # in turns, so that both meet the same weather
            for name in ("shallow", "deep"):
                for step, seconds in (await _steps(broker, name)).items():
                    costs[name][step] = min(costs[name].get(step, 1e9), seconds)
    return {step: costs["deep"][step] / costs["shallow"][step] for step in costs["deep"]}


async def _steps(broker: Broker, name: str) -> dict[str, float]:
    """Seconds per step for 300 single jobs at the present depth; every job that is taken is put back by a new one."""
    width, seconds = 300, {}

    async def timed(step: str, calls: Callable[[], list[Awaitable[Any]]]) -> list[Any]:
        gc.collect()
        started = time.process_time()
        answers = [await call for call in calls()]
        seconds[step] = time.process_time() - started
        return answers

    produced = await timed("produce", lambda: [broker.produce(name, [DATA]) for _ in range(width)])
    claims = await timed("claim", lambda: [broker.claim(name, node="w") for _ in range(width)])
    held = [claim.seqs for claim in claims]
    await timed("extend", lambda: [broker.extend(name, node="w", seqs=s, lease_ms=80_000_000) for s in held])
    await timed("nack", lambda: [broker.nack(name, node="w", seqs=s) for s in held])
    claims = [await broker.claim(name, node="w") for _ in range(width)]
    await timed("ack", lambda: [broker.ack(name, node="w", seqs=claim.seqs) for claim in claims])
    await _fill(broker, name, width, size=1, tag=True, first=produced[-1].last_seq + 1)
    tags = [f"t-{produced[-1].last_seq + 1 + i}" for i in range(width)]
    await timed("delete by tag", lambda: [broker.delete_records(name, match=tag) for tag in tags])
    return seconds


async def _fill(broker: Broker, name: str, jobs: int, *, size: int, tag: bool = False, first: int = 1) -> None:
    answer: Awaitable[Any] | None = None
    for start in range(first, first + jobs, size):
        if tag:
            records: list[Any] = [Record(data=DATA, tag=f"t-{start + i}") for i in range(size)]
        else:
            records = [DATA] * size
        answer = broker.produce(name, records)
        if not (start // size) % max(1, 200 // size):  # no more than a few hundred jobs wait for one write
            await answer
    if answer is not None:
        await answer


# Memory


async def memory(home: Path, kind: str) -> dict[str, float]:
    """RssAnon that a million queued jobs cost, above an empty broker."""
    async with await Broker.open(home) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": 86_400_000})
        await _fill(broker, "warm", 20_000, size=100)
        await broker.delete_topic("warm")
        before = await _settled_bytes()
        await _MEMORY[kind](broker)
        return {"bytes": await _settled_bytes() - before}


async def _settled_bytes() -> int:
    """Memory once a checkpoint that may be under way is written, and free heap that the C library keeps is given
    back.
    """
    await asyncio.sleep(2)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return anonymous_bytes()


async def _plain(broker: Broker, size: int) -> None:
    await _fill(broker, "q", MILLION, size=size)


async def _tagged(broker: Broker) -> None:
    await _fill(broker, "q", MILLION, size=1_000, tag=True)


async def _delayed(broker: Broker) -> None:
    for _ in range(MILLION // 1_000):
        await broker.produce("q", [Record(data=DATA, delay_ms=3_600_000)] * 1_000)


async def _keyed(broker: Broker) -> None:
    for start in range(0, MILLION, 500):
        for answer in [broker.produce("q", [DATA], idempotency_key=f"key-{start + i}") for i in range(500)]:
            await answer


async def _leased(broker: Broker, size: int) -> None:
    await _fill(broker, "q", MILLION, size=1_000)
    width = max(1, 200 // size)
    for _ in range(0, MILLION, size * width):
        for claim in [broker.claim("q", node="w", max_count=size) for _ in range(width)]:
            await claim


async def _topics(broker: Broker) -> None:
    for start in range(0, 99_990, 1_000):
        for answer in [broker.put_topic(f"t{start + i}", {"type": "queue"}) for i in range(min(1_000, 99_990 - start))]:
            await answer


_MEMORY: dict[str, Callable[[Broker], Awaitable[None]]] = {
    "batches of 1,000": lambda broker: _plain(broker, 1_000),
    "one by one": lambda broker: _plain(broker, 1),
    "tags": _tagged,
    "delays": _delayed,
    "keys": _keyed,
    "leases of 1,000": lambda broker: _leased(broker, 1_000),
    "leases of 1": lambda broker: _leased(broker, 1),
    "topics": _topics,
}


# Restart


async def fill(home: Path, size: int) -> dict[str, float]:
    """A directory with a million jobs, closed in good order."""
    async with await Broker.open(home) as broker:
        await broker.put_topic("q", {"type": "queue"})
        await _fill(broker, "q", MILLION, size=size)
    return {}


_OPEN = """
import asyncio, sys
from tenure import Broker
async def main():
    broker = await Broker.open(sys.argv[1])
    assert broker.topic("q").count == 1_000_000
    print("open", flush=True)
asyncio.run(main())
"""


def restart_seconds(home: Path) -> float:
    """Seconds from starting a process until it has a million jobs ready."""
    return best_of(
        3, lambda: subprocess.run([sys.executable, "-c", _OPEN, str(home)], check=True, stdout=subprocess.DEVNULL)
    )


# Putting it together


def run_part(name: str, *arguments: str) -> dict[str, float]:
    """Run one part in a process and a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        command = [sys.executable, "-m", "bench.core", name, home, *arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def part(name: str, home: Path, arguments: list[str]) -> dict[str, float]:
    """What a child process does."""
    match name:
        case "durable_append":
            return durable_append(home)
        case "life":
            return asyncio.run(life(home / "data"))
        case "depth":
            return asyncio.run(depth(home / "data"))
        case "memory":
            return asyncio.run(memory(home / "data", arguments[0]))
        case _:
            raise SystemExit(f"no part {name!r}")


def restarts() -> list[Row]:
    rows: list[Row] = []
    for size, bar in ((100, 3.0), (1, 6.0)):
        with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
            data = Path(home) / "data"
            asyncio.run(fill(data, size))
            cached = restart_seconds(data)
            rows.append((f"restart from a checkpoint, batches of {size}", f"{cached:.2f} s", "≤ 1.0 s", cached <= 1.0))
            shutil.rmtree(data / "checkpoints")
            bare = restart_without_checkpoint(data)
            rows.append(
                (f"restart from the bare log, batches of {size}", f"{bare:.2f} s", f"≤ {bar:.0f} s", bare <= bar)
            )
    return rows


def restart_without_checkpoint(data: Path) -> float:
    """Each opening leaves a checkpoint only when it is closed in good order, which these processes never do."""
    return restart_seconds(data)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(part(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
        return
    rows: list[Row] = []
    append = run_part("durable_append")
    measured = f"{append['ratio']:.2f} ({append['ours_us']:.0f} / {append['bare_us']:.0f} µs)"
    rows.append(("durable append against writev + fdatasync", measured, "≥ 0.5", append["ratio"] >= 0.5))
    lives = run_part("life")
    turns = lives["calibration"]
    for what, key, bar in (
        ("a job's life in batches of 1,000", "many", 500_000),
        ("a job's life one by one", "one", 90_000),
    ):
        measured = f"{lives[key]:,.0f}/s ({turns / lives[key]:.0f} loop turns)"
        rows.append((what, measured, f"≥ {bar:,}/s", lives[key] >= bar))
    rows += [
        (f"cost at 1,000,000 against 10,000: {step}", f"{ratio:.2f}×", "≤ 1.2×", ratio <= 1.2)
        for step, ratio in run_part("depth").items()
    ]
    rows += memory_rows()
    rows += restarts()
    print(f"calibration: {turns / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    report("bench-core", rows)


def memory_rows() -> list[Row]:
    rows: list[Row] = []
    base = {}
    for kind in ("batches of 1,000", "one by one"):
        base[kind] = run_part("memory", kind)["bytes"] / 1e6
        rows.append((f"memory of 1,000,000 jobs, {kind}", f"{base[kind]:.0f} MB", "≤ 40 MB", base[kind] <= 40))
    bars = {"tags": 100, "delays": 100, "keys": 100, "leases of 1,000": 100, "leases of 1": 200}
    for kind, bar in bars.items():
        under = base["one by one" if kind == "keys" else "batches of 1,000"]
        more = run_part("memory", kind)["bytes"] / 1e6 - under
        rows.append((f"  more with {kind}", f"{more:.0f} MB", f"≤ {bar} MB", more <= bar))
    topic = run_part("memory", "topics")["bytes"] / 99_990
    rows.append(("an empty topic, tried with 99,990", f"{topic:.0f} B", "≤ 2,000 B", topic <= 2_000))
    return rows


if __name__ == "__main__":
    main()
