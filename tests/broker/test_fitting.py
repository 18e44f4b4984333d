"""`Reader.fitting`: the longest prefix of records that fits, at the cost of the index and of one frame at most."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from itertools import pairwise

import pytest

from tenure import Broker, Record, Settings
from tenure.broker import WorkStream
from tenure.broker.engine import Engine
from tenure.broker.records import Reader
from tenure.contract.replies import Settled
from tenure.core.state.ranges import each, to_runs
from tenure.log.log import FileLog
from tenure.log.segment import segment_name
from tenure.testing import ManualClock, SimDisk
from tests.broker.test_call_counts import trace
from tests.kit import run
from tests.kit.brokers import numbers


class CountingDisk(SimDisk):
    """A disk that counts its reads, and their bytes."""

    reads = read_bytes = 0

    def pread(self, file: int, count: int, offset: int) -> bytes:
        self.reads += 1
        self.read_bytes += count
        return super().pread(file, count, offset)


def opened(disk: SimDisk, settings: Settings | None = None) -> Engine:
    engine = Engine(FileLog.open(disk, segment_bytes=65_536), clock=ManualClock(), settings=settings or Settings())
    engine.recover()
    return engine


def longest_prefix(sizes: dict[int, int], seqs: list[int], bytes_max: int) -> list[int]:
    """The rule, one record after the other."""
    taken: list[int] = []
    for seq in seqs:
        bytes_max -= sizes[seq]
        if taken and bytes_max < 0:
            break
        taken.append(seq)
    return taken


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_longest_prefix_whatever_appends_the_records_came_in(seed: int) -> None:
    dice = random.Random(seed)
    engine = opened(SimDisk(seed))
    run.put_topic(engine, "q", {"type": "queue"})
    while engine.state.topics["q"].head_seq < 300:
        records: list[bytes | Record] = []
        for _ in range(dice.choice((1, 1, 2, 40))):
            data = b'"%s"' % (b"x" * dice.choice((1, 50, 3_000)))
            records.append(Record(data=data, meta=b"{}") if dice.random() < 0.2 else data)
        run.produce(engine, "q", records)
    topic = engine.state.topics["q"]
    dead = dice.sample(range(1, topic.head_seq), 60)
    run.delete_records(engine, "q", seqs=dead)
    alive = [seq for seq in range(1, topic.head_seq + 1) if seq not in dead]
    sizes = dict(engine.reader.sizes(topic, 1, topic.head_seq + 1))
    assert sorted(sizes) == alive
    for _ in range(50):
        seqs = sorted(dice.sample(alive, dice.randint(1, len(alive))))
        if dice.random() < 0.5:
            lo = dice.randrange(len(alive))
            seqs = alive[lo : lo + dice.randint(1, 100)]
        bytes_max = dice.choice((0, 1, 500, 5_000, 60_000, sum(map(sizes.__getitem__, seqs))))
        assert list(each(engine.reader.fitting(topic, to_runs(seqs), bytes_max))) == longest_prefix(
            sizes, seqs, bytes_max
        )


def test_what_fits_costs_the_same_however_many_appends_it_came_in() -> None:
    engine = opened(SimDisk(1))
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(2_000):
        run.produce(engine, "q", [b"1"])
    topic = engine.state.topics["q"]
    calls = [len(trace(partial(engine.reader.fitting, topic, [1, jobs], topic.bytes - 1))[1]) for jobs in (10, 1_000)]
    assert calls[0] == calls[1]


def test_it_reads_one_frame_however_many_jobs_are_asked_for() -> None:
    disk = CountingDisk(1)
    engine = opened(disk)
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(200):
        run.produce(engine, "q", [b'"%s"' % (b"x" * 998)] * 5)
    engine.sync()
    engine.log.close()
    engine = opened(disk)
    topic, before = engine.state.topics["q"], disk.reads
    assert engine.reader.fitting(topic, [1, 1_000], 10_000_000) == [1, 1_000]
    assert disk.reads == before, "the index alone shows that they fit"
    assert engine.reader.fitting(topic, [1, 1_000], 500_500) == [1, 500]
    assert engine.reader.fitting(topic, [1, 1_000], 502_500) == [1, 502]
    assert disk.reads - before <= 4


def test_a_read_and_a_redrive_read_no_more_than_they_answer_with_or_move() -> None:
    disk = CountingDisk(1)
    engine = opened(disk, Settings(diff_bytes_max=30_000, step_bytes_max=30_000))
    run.put_topic(engine, "q", {"type": "queue", "dead_letter": "dead"})
    for _ in range(50):
        run.produce(engine, "q", [b'"%s"' % (b"x" * 9_998)])
    while seqs := run.claim(engine, "q", node="w", max_count=9).reply.seqs:
        run.nack(engine, "q", node="w", seqs=seqs, dead=True)
    engine.sync()
    engine.log.close()
    engine = opened(disk, Settings(diff_bytes_max=30_000, step_bytes_max=30_000))
    before = disk.read_bytes
    assert len(run.diff(engine, "dead", limit=256).records) == 2
    assert disk.read_bytes - before < 60_000, "the records of the answer, and the one after them"
    before = disk.read_bytes
    assert run.redrive(engine, "dead", limit=1).reply.redriven == 1
    assert disk.read_bytes - before < 60_000


def test_a_read_that_leaves_out_large_records_passes_over_no_more_than_a_step_reads() -> None:
    disk, settings = CountingDisk(1), Settings(diff_bytes_max=30_000, step_bytes_max=30_000)
    engine = opened(disk, settings)
    run.put_topic(engine, "log", {"dedupe_node": True})
    for _ in range(50):
        run.produce(engine, "log", [b"x" * 10_000], "me")
    run.produce(engine, "log", [b"y"], "you")
    engine.sync()
    engine.log.close()
    engine = opened(disk, settings)
    from_seq, looks, found = 0, 0, list[int]()
    while from_seq < 51:
        before = disk.read_bytes
        reply = run.diff(engine, "log", from_seq=from_seq, node="me")
        assert disk.read_bytes - before < 120_000
        assert reply.next_from_seq > from_seq
        found += [record.seq for record in reply.records]
        from_seq, looks = reply.next_from_seq, looks + 1
    assert found == [51]
    assert looks > 10


@pytest.mark.parametrize("records", [1, 2, 50])
def test_what_large_appends_weigh_is_known_without_their_payload(records: int) -> None:
    """Evicting, deleting and acking some of many appends, each of which is larger than a read that counts as one."""
    disk, size = CountingDisk(1), 200_000 // records
    engine = opened(disk)
    run.put_topic(engine, "t", {})
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(20):
        for topic in ("t", "q"):
            run.produce(engine, topic, [b"x" * size] * records)
    claimed = run.claim(engine, "q", node="w", max_count=20).reply.seqs
    engine.sync()
    engine.log.close()
    engine, before = opened(disk), disk.read_bytes
    held = run.topic_info(engine, "t").bytes
    run.delete_records(engine, "t", seqs=list(range(1, 20 * records, max(records, 2))))
    assert held - run.topic_info(engine, "t").bytes == 10 * size if records == 1 else 20 * size
    run.put_topic(engine, "t", {"cap_records": 1})
    info = run.topic_info(engine, "t")
    assert (info.count, info.bytes) == (1, size)
    assert run.ack(engine, "q", node="w", seqs=claimed[1:]).reply.count == len(claimed) - 1
    assert run.topic_info(engine, "q").bytes == (20 * records - len(claimed) + 1) * size
    assert disk.read_bytes - before < 41 * 6_000, "one short read for each append"


def test_a_damaged_head_of_a_large_append_is_no_table_of_it() -> None:
    """Whatever bit of the head is flipped: what the index does not agree with is guessed, and nothing raises."""
    disk = SimDisk(1)
    engine = opened(disk)
    run.put_topic(engine, "t", {})
    run.produce(engine, "t", [b"x" * 30_000, b"y" * 20_000, b"z" * 50_000])
    engine.sync()
    topic = engine.state.topics["t"]
    [entry] = topic.frame_index
    name = segment_name(entry.segment)
    for bit in range(entry.offsets[0] * 8, (entry.offsets[0] + 120) * 8):
        disk.flip_bit(name, bit)
        reader = Reader(engine.log, 0)
        sizes = dict(reader.sizes(topic, 1, 4))
        assert sorted(sizes) == [1, 2, 3]
        assert min(sizes.values()) >= 0
        assert sum(sizes.values()) <= 100_000
        disk.flip_bit(name, bit)


async def test_a_reject_of_many_large_jobs_takes_as_many_turns_as_it_has_steps(clock: ManualClock) -> None:
    settings = Settings(claim_bytes_max=3_500, step_bytes_max=3_500, turn_ms_max=0)
    async with await Broker.open(clock=clock, settings=settings) as broker:
        await broker.put_topic("q", {"type": "queue", "dead_letter": "dead"})
        for _ in range(12):
            await broker.produce("q", [b'"%s"' % (b"x" * 998)])
        seqs = [seq for _ in range(4) for seq in (await broker.claim("q", node="w", max_count=9)).seqs]
        assert len(seqs) == 12
        rejecting = asyncio.ensure_future(await_it(broker.nack("q", node="w", seqs=seqs, dead=True)))
        counts = list[int]()
        while not rejecting.done():
            counts.append(broker.topic("dead").count if "dead" in broker.topics().items else 0)
            if counts[-1] == 6 and numbers(broker)["in_flight"] == 6:
                broker.ack("q", node="w", seqs=[seqs[-1]])
            await asyncio.sleep(0)
        reply = await rejecting
        assert (reply.count, reply.skipped) == (11, [12])
        assert max(later - first for first, later in pairwise(counts)) == 3
        assert (broker.topic("dead").count, numbers(broker)["in_flight"]) == (11, 0)


async def await_it(answer: Awaitable[Settled]) -> Settled:
    return await answer


async def test_a_stream_gets_all_it_wants_in_several_answers_and_so_do_those_beside_it(clock: ManualClock) -> None:
    settings = Settings(claim_bytes_max=2_500)
    async with await Broker.open(clock=clock, settings=settings) as broker:
        await broker.put_topic("q", {"type": "queue"})
        streams = [broker.work("q", node=f"n{number}", max_count=10) for number in range(2)]
        await broker.produce("q", [b'"%s"' % (b"x" * 998)] * 20)
        got = [[seq async for seq in ten(stream)] for stream in streams]
        assert sorted(got[0] + got[1]) == list(range(1, 21))


async def ten(stream: WorkStream) -> AsyncIterator[int]:
    """The first ten jobs of a stream, however many come at once."""
    left = 10
    async for grant in stream:
        for seq in grant.seqs:
            yield seq
        left -= len(grant.seqs)
        if not left:
            return


async def test_a_stream_that_is_not_read_holds_a_few_answers_and_goes_on_when_it_is(clock: ManualClock) -> None:
    async with await Broker.open(clock=clock, settings=Settings(claim_bytes_max=2_500)) as broker:
        await broker.put_topic("q", {"type": "queue"})
        for _ in range(20):
            await broker.produce("q", [b'"%s"' % (b"x" * 998)])
        stream = broker.work("q", node="w", max_count=1_000)
        for _ in range(100):
            await asyncio.sleep(0)
        held = numbers(broker)["in_flight"]
        assert held <= 6, "what is read next, as much after it, and the answer that passed that"
        got = [seq async for seq in ten(stream)]
        assert got == list(range(1, 11))


async def test_a_long_poll_and_the_next_share_what_came_together(clock: ManualClock) -> None:
    async with await Broker.open(clock=clock, settings=Settings(claim_bytes_max=2_500)) as broker:
        await broker.put_topic("q", {"type": "queue"})
        polls = [asyncio.ensure_future(broker.claim("q", node="w", max_count=9, wait_ms=10_000)) for _ in range(3)]
        await asyncio.sleep(0)
        await broker.produce("q", [b'"%s"' % (b"x" * 998)] * 6)
        grants = await asyncio.gather(*polls)
        assert sorted(seq for grant in grants for seq in grant.seqs) == [1, 2, 3, 4, 5, 6]
