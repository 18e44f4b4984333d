"""`make bench-buffer`: the buffer on the local store against its bars, in one run."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench.measure import Row, calibrate, report
from tenure.buffer import BufferSettings, Consumer, ObjectInfo, ObjectStore, Producer, open_store
from tenure.objects.store import Bytes

SIZES = {"100 B": 100, "1 kB": 1_000, "100 kB": 100_000}
BARS = {"100 B": 0.3, "1 kB": 0.4, "100 kB": 0.4}
TOTAL_BYTES = 192 << 20
ROUNDS = 5
LATENCY_S = 0.020
DICE = random.Random(1)


def entries_of(size: int, total: int) -> list[bytes]:
    """Entries as events are: half of each is text that repeats, half is not."""
    word = b'{"event":"page_view","user":"'
    filler = (word * (size // (2 * len(word)) + 1))[: size - size // 2]
    return [filler + DICE.randbytes(size // 2) for _ in range(total // size)]


# Produce → durable, against a bare write of the same bytes


async def produce(home: Path, entries: Sequence[bytes], per_call: int) -> tuple[float, list[bytes]]:
    """Seconds until everything is durable, and the objects that were written."""
    store = open_store(f"file://{home}")
    calls = [entries[first : first + per_call] for first in range(0, len(entries), per_call)]
    async with Producer(store) as producer:
        started = time.perf_counter()
        for call in calls:
            await producer.produce(call)
        await producer.flush()
        seconds = time.perf_counter() - started
    keys = [info.key async for info in store.list("data/")]
    return seconds, [await store.get(key, limit_bytes=1 << 30) for key in keys]


def bare(home: Path, objects: list[bytes]) -> float:
    """Seconds to write the same objects as plain files, each fsynced."""
    home.mkdir()
    started = time.perf_counter()
    for number, data in enumerate(objects):
        descriptor = os.open(home / str(number), os.O_WRONLY | os.O_CREAT)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - started


async def consume(home: Path, count: int) -> float:
    """Seconds to read and acknowledge everything serially."""
    started = time.perf_counter()
    async with Consumer(f"file://{home}", group="bench") as consumer:
        found = 0
        while (batch := await consumer.next_batch()) is not None:
            found += len(batch.entries)
            await consumer.ack(batch.seq)
    assert found == count
    return time.perf_counter() - started


async def durable(root: Path) -> list[Row]:
    rows: list[Row] = []
    for name, size in SIZES.items():
        entries = entries_of(size, TOTAL_BYTES)
        megabytes = sum(map(len, entries)) / 1e6
        ours, plain, read, stored = [], [], [], 0
        for turn in range(ROUNDS):
            home = root / f"{size}-{turn}"
            seconds, objects = await produce(home, entries, max(1, 100_000 // size))
            ours.append(seconds)
            plain.append(bare(root / f"bare-{size}-{turn}", objects))
            read.append(await consume(home, len(entries)))
            stored = sum(map(len, objects))
        ratio = min(plain) / min(ours)
        print(
            f"  {name:>6}: produce {len(entries) / min(ours):>11,.0f}/s {megabytes / min(ours):>5,.0f} MB/s, "
            f"consume {len(entries) / min(read):>11,.0f}/s {megabytes / min(read):>5,.0f} MB/s, "
            f"stored {stored / 1e6:,.0f} of {megabytes:,.0f} MB, bare write {stored / 1e6 / min(plain):,.0f} MB/s"
        )
        bar = BARS[name]
        what = f"produce → durable, {name} entries, of a bare fsynced write"
        rows.append((what, f"{ratio:.2f}", f"≥ {bar}", ratio >= bar))
    return rows


# Read-ahead


class Slow:
    """A store with 20 ms between a request and its answer."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.url = inner.url

    async def put_new(self, key: str, data: Bytes) -> None:
        await asyncio.sleep(LATENCY_S)
        await self._inner.put_new(key, data)

    async def put(self, key: str, data: Bytes) -> None:
        await asyncio.sleep(LATENCY_S)
        await self._inner.put(key, data)

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        await asyncio.sleep(LATENCY_S)
        return await self._inner.get(key, start=start, length=length, limit_bytes=limit_bytes)

    async def head(self, key: str) -> ObjectInfo:
        await asyncio.sleep(LATENCY_S)
        return await self._inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        await asyncio.sleep(LATENCY_S)
        async for info in self._inner.list(prefix, start_after):
            yield info

    async def copy(self, source: str, target: str) -> None:
        await asyncio.sleep(LATENCY_S)
        await self._inner.copy(source, target)

    async def delete(self, keys: Sequence[str]) -> None:
        await asyncio.sleep(LATENCY_S)
        await self._inner.delete(keys)

    async def now_ms(self) -> int:
        await asyncio.sleep(LATENCY_S)
        return await self._inner.now_ms()


async def read_ahead(root: Path) -> list[Row]:
    store = open_store(f"file://{root}/ahead")
    batches = 100
    async with Producer(store, settings=BufferSettings(flush_interval_ms=1)) as producer:
        for _ in range(batches):
            await (await producer.produce([DICE.randbytes(1_000)] * 1_000)).durable()
    slow: ObjectStore = Slow(store)
    async with Consumer(slow, group="serial", collect=False) as consumer:
        started = time.perf_counter()
        while (batch := await consumer.next_batch()) is not None:
            await consumer.ack(batch.seq)
        await consumer.flush()
        serial = time.perf_counter() - started
    async with Consumer(slow, group="ahead", collect=False) as consumer:
        started = time.perf_counter()
        handle, turns = consumer.fetch_handle(), asyncio.Semaphore(4)

        async def fetch(descriptor) -> int:  # type: ignore[no-untyped-def]
            async with turns:
                return (await handle.fetch(descriptor)).seq

        while descriptors := await consumer.next_descriptors(25):
            await consumer.ack_through(max(await asyncio.gather(*map(fetch, descriptors))))
        ahead = time.perf_counter() - started
    print(f"  {batches} batches of 1 MB, 20 ms per request: serial {serial:.2f} s, four fetchers {ahead:.2f} s")
    ratio = serial / ahead
    return [("read-ahead with 4 fetchers against serial, at 20 ms", f"{ratio:.1f}×", "≥ 2×", ratio >= 2)]


# From produce to consumed


async def latency(root: Path) -> None:
    store = open_store(f"file://{root}/latency")
    took: list[float] = []
    settings = BufferSettings(flush_interval_ms=100, poll_ms=10)
    async with Producer(store, settings=settings) as producer, Consumer(store, settings=settings) as consumer:

        async def write() -> None:
            for _ in range(1_000):
                await producer.produce([str(time.perf_counter()).encode()])
                await asyncio.sleep(0.005)

        writing = asyncio.create_task(write())
        while len(took) < 1_000:
            batch = await consumer.next_batch(wait_ms=1_000)
            if batch is not None:
                now = time.perf_counter()
                took += [now - float(entry) for entry in batch.entries]
                await consumer.ack(batch.seq)
        await writing
    took.sort()
    print(f"  produce → consumed at 100 ms flush: p50 {took[500] * 1000:.0f} ms, p99 {took[990] * 1000:.0f} ms")


async def main() -> int:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as home:
        root = Path(home)
        print(f"calibration: {calibrate() / 1e6:.1f} M loop turns/s")
        rows = await durable(root)
        rows += await read_ahead(root)
        await latency(root)
    report("The buffer, local store", rows)
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
