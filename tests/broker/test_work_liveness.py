"""Which work streams are fed: judged by what each one reads and by what is settled of its own jobs (fault 24)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tenure import Broker
from tenure.broker.serving.streams import WorkStream
from tenure.core.events import Extended, decode
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, numbers, start, turn

LEASE_MS = 1_000


async def run_out(clock: ManualClock) -> None:
    clock.advance(LEASE_MS + 1)
    await turn()


async def test_a_stuck_stream_burns_one_delivery_though_its_node_lives_elsewhere(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, "a", jobs=10, lease_ms=LEASE_MS, max_deliveries=5, dead_letter="a.dead")
    await make_queue(broker, "b", lease_ms=LEASE_MS)
    stuck, alive = broker.work("a", node="w", max_count=10), broker.work("b", node="w")
    for _ in range(20):
        await broker.produce("b", [b"tick"])
        claim = await anext(alive)
        assert (await broker.ack("b", node="w", seqs=claim.seqs)).count == 1
        await run_out(clock)
    assert len(stuck._given) == 1
    assert (numbers(broker, "a")["ready"], numbers(broker, "a")["dead_lettered"]) == (10, 0)
    claim = await anext(stuck)
    assert [claim.deliveries(seq) for seq in claim.seqs] == [2] * 10
    assert (await broker.ack("a", node="w", lease_id=claim.lease_id)).count == 10, "what it reads, it holds"


async def test_a_stuck_stream_is_not_kept_alive_by_another_one_of_its_node_on_the_same_queue(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
    stuck = broker.work("q", node="w")
    alive = broker.work("q", node="w")
    await broker.produce("q", [b"2"])
    read = await anext(stuck)
    for _ in range(5):
        claim = await anext(alive)
        assert (await broker.ack("q", node="w", lease_id=claim.lease_id)).count == 1
        await broker.produce("q", [b"more"])
        await run_out(clock)
    assert read.seqs == [1]
    assert stuck.wants() == 0


async def test_what_a_slow_reader_gets_is_never_a_lease_that_is_over(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
    stream = broker.work("q", node="slow")
    await run_out(clock)
    assert (await broker.claim("q", node="other")).seqs == [1]
    reading = await start(anext(stream))
    assert not reading.done()
    await run_out(clock)
    claim = await reading
    assert (claim.seqs, claim.deliveries(1)) == ([1], 3)


async def test_a_lease_that_ran_out_unnoticed_is_not_read_either(broker: Broker, clock: ManualClock) -> None:
    """Nothing has let time pass on the queue when the reader comes."""
    await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
    stream = broker.work("q", node="slow")
    await turn()
    clock._boot_ms += LEASE_MS + 1  # no alarm has rung yet
    clock._wall_ms += LEASE_MS + 1
    claim = await anext(stream)
    assert claim.deliveries(1) == 2
    assert claim.deadline == clock.wall_ms() + LEASE_MS


async def test_jobs_that_were_lost_before_they_were_read_are_left_out(broker: Broker) -> None:
    await make_queue(broker, jobs=3)
    stream = broker.work("q", node="w", max_count=3)
    await broker.delete_records("q", seqs=[2])
    assert (await anext(stream)).seqs == [1, 3]


async def test_a_stream_that_reads_nothing_holds_no_more_than_it_asked_for(broker: Broker) -> None:
    await make_queue(broker)
    stream = broker.work("q", node="w", max_count=3)
    for _ in range(10):
        await broker.produce("q", [b"x"])
    assert sum(len(answer.reply.jobs) for answer in stream._given) == 3
    assert numbers(broker)["in_flight"] == 3


async def test_a_job_settled_through_another_queue_of_the_node_is_no_sign_of_life(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
    await make_queue(broker, "other", jobs=1)
    stream = broker.work("q", node="w")
    await anext(stream)
    waiting = await start(anext(stream))
    await run_out(clock)
    assert (await broker.extend("other", node="w", seqs=[1], lease_ms=LEASE_MS)).skipped == [1]
    await broker.ack("q", node="somebody else", seqs=[1])
    await turn()
    assert not waiting.done()
    assert (await broker.extend("q", node="w", seqs=[1], lease_ms=LEASE_MS)).skipped == [1]
    await turn()
    assert waiting.done(), "what it no longer holds is enough to show that it lives"


async def test_a_lease_that_the_broker_prolonged_for_a_slow_disk_is_no_sign_of_life(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=LEASE_MS, leases_durable=True)
        await broker.synced()
        log.gate.clear()
        stream = broker.work("q", node="w")
        reading = await start(anext(stream))
        clock.advance(LEASE_MS - 100)
        await turn()
        log.gate.set()
        await reading
        assert any(isinstance(decode(kind, body), Extended) for kind, _, _, body in log.replay() if kind >= 16)
        waiting = await start(anext(stream))
        await run_out(clock)
        await run_out(clock)
        assert not waiting.done(), "its worker has said nothing"
        waiting.cancel()


async def test_a_reader_that_gives_up_while_its_claim_is_synced_gives_it_back(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=1, leases_durable=True)
        await broker.synced()
        log.gate.clear()
        stream = broker.work("q", node="w")
        reading = await start(anext(stream))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert stream.held_count == 1, "given back, and given again"
        log.gate.set()
        assert (await anext(stream)).deliveries(1) == 2


@pytest.mark.parametrize("seed", range(10))
async def test_what_a_stream_counts_is_what_it_holds(seed: int, clock: ManualClock) -> None:
    random = Random(seed)
    async with await Broker.open(MemoryLog(), clock=clock) as broker:
        await make_queue(broker, jobs=40, lease_ms=LEASE_MS, max_deliveries=3, dead_letter="dead")
        streams: list[WorkStream] = []
        for _ in range(150):
            await _do_something(broker, streams, random)
            clock.advance(random.choice([0, 0, 10, 400]))
            await turn()
            queue = broker._state.topics["q"].queue
            assert queue is not None
            for stream in streams:
                held = sum(len(queue.held(number)) for number in stream.leases)
                assert stream.held_count == held <= stream.max_count
                assert all(queue.held(number) for number in stream.leases)
        for stream in streams:
            stream.close()
        assert not broker._serving.streams._lent
        assert broker._engine.listeners == []
        assert broker._engine.state.ended is None


async def _do_something(broker: Broker, streams: list[WorkStream], random: Random) -> None:
    node, seqs = f"w{random.randrange(3)}", random.sample(range(1, 80), 5)
    match random.randrange(10):
        case 0:
            streams.append(broker.work("q", node=node, max_count=random.randint(1, 6)))
        case 1 if streams:
            streams.pop(random.randrange(len(streams))).close()
        case 2 if streams:
            streams.pop(random.randrange(len(streams))).detach()
        case 3 | 4 if streams:
            reading = await start(anext(random.choice(streams)))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        case 5:
            await broker.ack("q", node=node, seqs=seqs)
        case 6:
            await broker.nack("q", node=node, seqs=seqs, dead=random.random() < 0.3)
        case 7:
            await broker.extend("q", node=node, seqs=seqs, lease_ms=random.choice([500, 3_000]))
        case 8:
            await broker.delete_records("q", before_seq=random.randrange(30))
        case _:
            await broker.produce("q", [b"x"] * random.randint(1, 4))


@pytest.mark.parametrize("stream_count", [3, 60])
async def test_an_ack_looks_at_the_stream_that_held_the_job_and_not_at_all_of_them(
    broker: Broker, stream_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: every stream is full and jobs wait, so an ack makes room in one of them."""
    await make_queue(broker)
    streams = [broker.work("q", node=f"w{number}", max_count=5) for number in range(stream_count)]
    for _ in range(5 * stream_count + 1_000):
        broker.produce("q", [b"x"])
    await turn()
    looks, wants = 0, WorkStream.wants

    def counted(stream: WorkStream) -> int:
        nonlocal looks
        looks += 1
        return wants(stream)

    monkeypatch.setattr(WorkStream, "wants", counted)
    acked = 0
    for stream in streams[:3]:
        claim = await anext(stream)
        acked += (await broker.ack("q", node=stream.node, seqs=claim.seqs)).count
        assert stream.held_count == 5, "and it is given another one"
    assert acked == 3
    assert looks <= 9
    for stream in streams:
        stream.close()
