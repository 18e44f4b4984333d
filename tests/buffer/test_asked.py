"""`stat` says what a buffer has cost: what producers, consumers and collectors asked, conflicts and polls included."""

from __future__ import annotations

import asyncio
import io

import msgspec
import pytest
from rich.console import Console

from tenure.buffer import Consumer, Producer, stat
from tenure.buffer.manifest import journal as journal_module
from tenure.buffer.manifest.format import Delta, checksum_of, encode
from tenure.cli.buffer.show import stat as show
from tenure.testing.simstore import SimStore
from tests.kit.buffers import QUICK, produced, quick

WRITES, READS = ("put_new", "put", "copy", "list"), ("get", "head")


def made(sim: SimStore) -> tuple[int, int]:
    """What the store was really asked, as it is billed."""
    return sum(map(sim.count, WRITES)), sum(map(sim.count, READS))


async def told(sim: SimStore) -> tuple[int | None, int | None]:
    """What `stat` says, asked of a copy so that the question is not counted."""
    copy = SimStore()
    copy.restore(sim.snapshot())
    found = await stat(copy, settings=QUICK)
    return found.writes_total, found.reads_total


async def test_every_request_up_to_a_commit_is_in_it(sim: SimStore):
    """The opening, the probe of the store, the batch, the commit itself, and after it polls that found nothing."""
    async with Producer(sim, settings=QUICK) as producer:
        for _ in range(3):
            await (await producer.produce([b"a"])).durable()
    assert await told(sim) == made(sim)
    async with Consumer(sim, settings=quick(ack_every=1), collect=False) as consumer:
        for _ in range(3):
            assert await consumer.next_batch() is not None
        for _ in range(50):
            assert await consumer.next_batch() is None
        await consumer.ack_through(2)
    assert await told(sim) == made(sim)


async def test_conflicts_and_what_they_cost_are_counted(sim: SimStore):
    """Naive: three requests a batch, by the number of commits, while producers that race make several times that."""
    async with Producer(sim, settings=QUICK) as first:
        producers = [first] + [await Producer.open(sim, settings=QUICK) for _ in range(4)]
        for _ in range(10):
            await asyncio.gather(*[(await each.produce([b"a"])).durable() for each in producers])
        for each in producers:
            await each.close()
        conflicts = sum(each.metrics.conflicts for each in producers)
    assert conflicts > 10
    found = await stat(sim, settings=QUICK)
    assert found.writes_total is not None
    assert found.reads_total is not None
    assert found.conflicts_total == conflicts
    assert found.requests_per_gb == (found.writes_total + found.reads_total) / (found.bytes_total / 1e9)
    naive = found.batches_total + 2 * (found.number + 1)
    assert found.writes_total + found.reads_total > 1.5 * naive


def older(delta: Delta) -> bytes:
    """The delta as a version wrote it that did not count."""
    document = msgspec.json.decode(encode(delta).partition(b"\n")[0])
    del document["requests"]
    body = msgspec.json.encode(document)
    return body + b'\n"%s"\n' % checksum_of(body).encode()


async def test_a_buffer_that_an_older_version_wrote_to_does_not_know_what_it_cost(
    sim: SimStore, monkeypatch: pytest.MonkeyPatch
):
    """Naive: 0, or the part that was counted."""
    await produced(sim, [b"a"])
    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "encode", older)
        await produced(sim, [b"b"])
    await produced(sim, [b"c"])
    found = await stat(sim, settings=QUICK)
    assert (found.next_seq, found.writes_total, found.reads_total, found.requests_per_gb) == (3, None, None, None)
    text = io.StringIO()
    show(Console(file=text, width=200), msgspec.to_builtins(found))
    assert "requests unknown" in text.getvalue()
