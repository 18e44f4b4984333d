"""The page about costs counts the requests that are really made, and its money follows from the prices it states."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.buffer import BufferMetrics, BufferSettings, Consumer, Producer
from tenure.limits import MIB
from tenure.testing.simstore import SimStore
from tests.buffer.virtual_time import in_virtual_time
from tests.chain.worlds.clock import MachineClock
from tests.cli.test_reference import rows
from tests.kit.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "how-to" / "what-the-buffer-costs.md").read_text()
DAY_S, MONTH_DAYS = 86_400, 30
LATENCY_MS = 20
CALLS_PER_S = 30
BAR = 60
"""Dollars a month for a producer of 30 MiB/s with default settings."""


def prices() -> tuple[float, float]:
    """The price of one write and of one read, as the page states them."""
    writes, reads = re.findall(r"\$([\d.]+) per 1,000", PAGE)
    return float(writes) / 1000, float(reads) / 1000


def section(title: str) -> list[list[str]]:
    return rows(PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0])


def amount(cell: str) -> float:
    return float(cell.strip("$").replace(",", ""))


def seconds(cell: str) -> float:
    return float(cell.removesuffix(" s"))


# What follows from the prices


def test_the_table_of_flush_intervals_follows_from_the_prices() -> None:
    write, read = prices()
    intervals = [row for row in section("Producing") if row[0].endswith(" s")]
    assert len(intervals) == 6
    for interval, flushes, requests, month in intervals:
        count = DAY_S / seconds(interval)
        assert (amount(flushes), amount(requests)) == (count, 3 * count)
        assert amount(month) == pytest.approx(MONTH_DAYS * count * (2 * write + read), abs=0.005)


def test_the_table_of_default_settings_follows_from_them_and_from_the_prices() -> None:
    write, read = prices()
    default = BufferSettings()
    per_s = {
        "100 MiB/s, nobody waits": 100 * MIB / default.flush_bytes,
        "30 MiB/s, nobody waits": 30 * MIB / default.flush_bytes,
        "up to 16 MiB/s, nobody waits": 1000 / default.flush_interval_ms,
        "callers wait for `durable()` all the time": 1000 / default.flush_awaited_ms,
        "idle": 0,
    }
    found = [row for row in section("Producing") if row[0].partition(":")[0] in per_s]
    assert len(found) == len(per_s)
    for load, flushes, month in found:
        count = DAY_S * per_s[load.partition(":")[0]]
        assert amount(flushes) == count
        assert amount(month) == pytest.approx(MONTH_DAYS * count * (2 * write + read), abs=0.005)


def test_the_table_of_batch_sizes_follows_from_the_prices() -> None:
    write, read = prices()
    sizes = [row for row in section("Producing") if row[0].endswith(" MB")]
    assert len(sizes) == 4
    for size, requests, cost in sizes:
        batches = 1000 / float(size.removesuffix(" MB"))
        assert amount(requests) == round(3 * batches)
        assert amount(cost) == pytest.approx(batches * (2 * write + read), abs=0.00005)


def test_the_table_of_poll_intervals_follows_from_the_prices() -> None:
    _, read = prices()
    for interval, requests, month in section("Consuming"):
        count = 2 * DAY_S / seconds(interval)
        assert amount(requests) == count
        assert amount(month) == pytest.approx(MONTH_DAYS * count * read, abs=0.005)


async def test_a_flush_a_look_and_an_acknowledgement_take_as_many_requests_as_the_page_says(tmp_path: Path) -> None:
    url = (tmp_path / "buffer").as_uri()
    async with Producer(url) as producer:
        before = dict(producer.metrics.requests)
        for _ in range(50):
            await producer.produce([b"x"])
            await producer.flush()
        assert made(producer.metrics.requests, before) == {"put_new": 100, "head": 50}
    settings = BufferSettings(ack_every=100)
    async with Consumer(url, settings=settings, collect=False) as consumer:
        await consumer.next_descriptors(50)
        before = dict(consumer.metrics.requests)
        assert await consumer.next_descriptors(50) == []
        assert made(consumer.metrics.requests, before) == {"get": 1, "head": 1}
        before = dict(consumer.metrics.requests)
        await consumer.ack_through(49)
        assert made(consumer.metrics.requests, before) == {"put_new": 1, "head": 1}


def made(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {kind: count - before.get(kind, 0) for kind, count in after.items() if count > before.get(kind, 0)}


# What is counted: default settings, virtual time, and a store that takes 20 ms


class Bill(NamedTuple):
    """What a process asked of the store, and what it did meanwhile."""

    writes: int
    reads: int
    batches: int
    conflicts: int

    @classmethod
    def of(cls, metrics: BufferMetrics) -> Bill:
        return cls(metrics.writes, metrics.reads, metrics.batches, metrics.conflicts)

    def since(self, before: Bill) -> Bill:
        return Bill(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def requests(self) -> int:
        return self.writes + self.reads

    def month(self, of_s: int) -> float:
        write, read = prices()
        return (self.writes * write + self.reads * read) * MONTH_DAYS * DAY_S / of_s


async def pipeline(clock: MachineClock, lasts_s: int) -> list[Bill]:
    """A producer of 30 MiB/s, by calls of 1 MiB that nobody waits for, and a consumer that follows it."""
    sim, call = SimStore(latency_ms=LATENCY_MS), bytes(MIB)
    async with Producer(sim, clock=clock) as producer, Consumer(sim, clock=clock) as consumer:

        async def consume() -> None:
            async for batch in consumer.batches():
                await consumer.ack(batch.seq)
                del sim.objects[batch.descriptor.location]  # it would stay for the grace hour

        before = [Bill.of(producer.metrics), Bill.of(consumer.metrics)]
        consuming, began_ms = asyncio.create_task(consume()), clock.boot_ms()
        for number in range(1, lasts_s * CALLS_PER_S + 1):
            await producer.produce([call])
            await asyncio.sleep((began_ms + 1000 * number / CALLS_PER_S - clock.boot_ms()) / 1000)
        after = [Bill.of(producer.metrics), Bill.of(consumer.metrics)]
        consuming.cancel()
    return [now.since(then) for now, then in zip(after, before, strict=True)]


@pytest.mark.parametrize("lasts_s", [60, pytest.param(600, marks=pytest.mark.full)])
def test_a_pipeline_of_30_mib_a_second_costs_what_the_page_says_and_its_producer_at_most_60_dollars(
    lasts_s: int,
) -> None:
    random.seed(1)
    bills = in_virtual_time(lambda clock: pipeline(clock, lasts_s))
    assert bills[0].batches >= 1.8 * lasts_s
    assert bills[0].month(lasts_s) <= BAR
    table = section("A pipeline of 30 MiB/s")
    for bill, (_, requests, month) in zip(bills, table, strict=False):
        assert amount(requests) == pytest.approx(bill.requests * DAY_S / lasts_s, rel=0.05)
        assert amount(month) == pytest.approx(bill.month(lasts_s), rel=0.05)
    producer, consumer, together = table
    assert [amount(cell) for cell in together[1:]] == [
        amount(one) + amount(other) for one, other in zip(producer[1:], consumer[1:], strict=True)
    ]


async def several(clock: MachineClock, count: int, lasts_s: int) -> Bill:
    """Producers that always have data to send, which began at different moments of a second."""
    sim = SimStore(latency_ms=LATENCY_MS)

    async def produce() -> Bill:
        async with Producer(sim, clock=clock) as producer:
            await asyncio.sleep(5 + random.random())
            before, until_ms = Bill.of(producer.metrics), clock.boot_ms() + 1000 * lasts_s
            while clock.boot_ms() < until_ms:
                await producer.produce([b"x"])
                await asyncio.sleep(random.uniform(0, 0.1))
            return Bill.of(producer.metrics).since(before)

    bills = await asyncio.gather(*(produce() for _ in range(count)))
    return Bill(*map(sum, zip(*bills, strict=True)))


@pytest.mark.parametrize("row", section("Several producers"), ids=lambda row: row[0])
def test_several_producers_cost_what_the_page_says_with_their_conflicts(row: list[str]) -> None:
    random.seed(1)
    lasts_s = 120
    bill = in_virtual_time(lambda clock: several(clock, int(row[0]), lasts_s))
    assert bill.requests / bill.batches == pytest.approx(amount(row[1]), rel=0.1)
    assert 100 * bill.conflicts / bill.batches == pytest.approx(amount(row[2]), abs=20)
    assert bill.month(lasts_s) == pytest.approx(amount(row[3]), rel=0.1)
