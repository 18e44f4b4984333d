"""`make bench-upkeep`: small durable produces and turns of the loop while the broker looks after itself.

With so many live jobs, in several shapes, one small fsync produce is sent every five milliseconds: while nothing else
happens, while a checkpoint is made, and while a segment with the base of the topic is trimmed. Turns are measured in
CPU time of the loop's thread, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.measure import Row, calibrate, report
from tenure import Broker, Record, Settings
from tenure.cli.commands.serve import _settle_memory

_EVERY_S = 0.005
_QUIET_S = 3.0
_DAY_MS = 86_400_000
_BATCH = 500


async def _put(broker: Broker, count: int, make: Callable[[int], Record | bytes], **options: Any) -> None:
    for start in range(0, count, _BATCH):
        answers = [broker.produce("q", [make(start + i)], **options) for i in range(_BATCH)]
        await answers[-1]


async def ready(broker: Broker, count: int) -> None:
    """Jobs put one by one, a fifth of them under a lease of one."""
    await _put(broker, count, lambda i: b"x" * 100)
    for _ in range(0, count // 5, _BATCH):
        claims = [broker.claim("q", node="w") for _ in range(_BATCH)]
        await claims[-1]


async def delayed(broker: Broker, count: int) -> None:
    """Jobs that wait for a day."""
    await _put(broker, count, lambda i: Record(data=b"x", delay_ms=_DAY_MS + i))


async def nacked(broker: Broker, count: int) -> None:
    """Jobs that failed once and wait for a day."""
    await _put(broker, count, lambda i: b"x")
    for _ in range(0, count, 1000):
        claim = await broker.claim("q", node="w", max_count=1000)
        await broker.nack("q", node="w", seqs=claim.seqs, delay_ms=_DAY_MS)


async def unique(broker: Broker, count: int) -> None:
    """Jobs with a unique key each."""
    await _put(broker, count, lambda i: Record(data=b"x", unique_key=f"order-{i}"))


async def tagged(broker: Broker, count: int) -> None:
    """Jobs with one of five thousand tags."""
    await _put(broker, count, lambda i: Record(data=b"x", tag=f"user-{i % 5000}"))


async def topics(broker: Broker, count: int) -> None:
    """A tenth as many topics, with a job each."""
    for start in range(0, count // 10, _BATCH):
        names = [f"tenant-{start + i:06d}" for i in range(_BATCH)]
        answers = [broker.produce(name, [b"x" * 100], config={"type": "queue"}) for name in names]
        await answers[-1]


SHAPES: dict[str, Callable[[Broker, int], Awaitable[None]]] = {
    shape.__name__: shape for shape in (ready, delayed, nacked, unique, tagged, topics)
}


class Watch:
    """Latencies of produces and CPU times of turns, over one stretch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.latencies: list[float] = []
        self.turns: list[float] = []

    async def during(self, work: Awaitable[None]) -> dict[str, float]:
        """Watch while a piece of work runs."""
        self.latencies, self.turns = [], []
        running = asyncio.ensure_future(work)
        beating = asyncio.ensure_future(self._beat())
        puts, due = [], time.perf_counter()
        while not running.done():
            due += _EVERY_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            puts.append(asyncio.ensure_future(self._produce(due)))
        await asyncio.gather(running, *puts)
        beating.cancel()
        latencies = sorted(self.latencies)
        return {
            "p50_ms": latencies[len(latencies) // 2] * 1000,
            "p99_ms": latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] * 1000,
            "turn_ms": max(self.turns) * 1000,
        }

    async def _produce(self, due: float) -> None:
        await self._broker.produce("small", [b"p" * 100])
        self.latencies.append(time.perf_counter() - due)

    async def _beat(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.0005)
            now = time.thread_time()
            self.turns.append(now - before)
            before = now


async def measure(shape: str, count: int) -> dict[str, dict[str, float]]:
    """Fill a broker, then watch it at rest, with a checkpoint in the making, and while its first segment is trimmed."""
    home = tempfile.mkdtemp(prefix="tenure-upkeep-")
    settings = Settings(checkpoint_bytes=1 << 60, spare_segments=1 << 20, topics_max=0)
    broker = await Broker.open(home, settings=settings)
    try:
        await broker.put_topic("q", {"type": "queue", "lease_ms": _DAY_MS})
        await broker.put_topic("small", {"type": "queue", "durability": "fsync"})
        await SHAPES[shape](broker, count)
        await broker.synced()
        await asyncio.sleep(0.5)
        _settle_memory()  # as the server does: a collection of the garbage of a million jobs is no upkeep
        watch, checkpoints = Watch(broker), broker._upkeep._checkpoints
        assert checkpoints is not None
        quiet = await watch.during(asyncio.sleep(_QUIET_S))
        made = await watch.during(checkpoints.make())
        await _roll(broker)
        trimmed = await watch.during(broker._upkeep._trim())
        return {"quiet": quiet, "checkpoint": made, "trim": trimmed}
    finally:
        await broker.close()
        shutil.rmtree(home)


async def _roll(broker: Broker) -> None:
    while len(broker._engine.log.segments()) < 3:
        await broker.produce("filler", [b"." * 900_000])
        await broker.delete_records("filler", before_seq=1 << 40)
    await broker.synced()


def rows(shape: str, found: dict[str, dict[str, float]]) -> list[Row]:
    """Return the lines of one shape: the longest turn, and p99 beside that of a quiet broker."""
    turn_bar, quiet_ms = 200.0 if shape == "topics" else 50.0, found["quiet"]["p99_ms"]
    lines = [(f"{shape}: quiet", f"p99 {quiet_ms:.2f} ms, turn {found['quiet']['turn_ms']:.1f} ms", "", True)]
    for work in ("checkpoint", "trim"):
        p99_ms, turn_ms = found[work]["p99_ms"], found[work]["turn_ms"]
        lines.append(
            (f"{shape}: longest turn, {work}", f"{turn_ms:.1f} ms", f"≤ {turn_bar:.0f} ms", turn_ms <= turn_bar)
        )
        ratio = p99_ms / quiet_ms
        lines.append((f"{shape}: p99, {work}", f"{p99_ms:.2f} ms, {ratio:.1f} × quiet", "≤ 3 ×", ratio <= 3))
    return lines


def main() -> None:
    """Run every shape in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.upkeep", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="live jobs")
    parser.add_argument("--one", choices=SHAPES, help=argparse.SUPPRESS)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help=f"any of {', '.join(SHAPES)}")
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(asyncio.run(measure(arguments.one, arguments.jobs))))
        return
    print(f"calibration: {calibrate() / 1e6:.1f} M loop turns/s")
    for shape in arguments.shapes:
        command = [sys.executable, "-m", "bench.upkeep", "--one", shape, "--jobs", str(arguments.jobs)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        report(f"upkeep with {arguments.jobs} live jobs", rows(shape, found))


if __name__ == "__main__":
    main()
