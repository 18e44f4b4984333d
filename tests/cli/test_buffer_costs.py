"""The page about costs counts the requests that are really made, and its money follows from the prices it states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenure.buffer import BufferSettings, Consumer, Producer
from tests.cli.test_reference import rows
from tests.kit.doc_blocks import ROOT

PAGE = (ROOT / "docs" / "how-to" / "what-the-buffer-costs.md").read_text()
DAY_S, MONTH_DAYS = 86_400, 30


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


def test_the_table_of_flush_intervals_follows_from_the_prices() -> None:
    write, read = prices()
    intervals = [row for row in section("Producing") if row[0].endswith(" s")]
    assert len(intervals) == 6
    for interval, flushes, requests, month, ten in intervals:
        count = DAY_S / seconds(interval)
        cost = MONTH_DAYS * count * (2 * write + read)
        assert (amount(flushes), amount(requests)) == (count, 3 * count)
        assert amount(month) == pytest.approx(cost, abs=0.005)
        assert amount(ten) == pytest.approx(10 * cost, abs=0.005)


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
