"""State written out and read back: nothing is forgotten, and equal states give equal bytes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tenure import Record, Settings
from tenure.broker.engine import Engine
from tenure.contract.config import TopicConfig
from tenure.core.events import Claimed
from tenure.core.state import deadlines, deliveries
from tenure.core.state.invariants import invariants
from tenure.core.state.lease import Ended
from tenure.core.state.queue import Queue
from tenure.core.state.snapshot import (
    dump_checkpoint,
    dump_state,
    dump_topic,
    load_checkpoint,
    load_state,
    load_topic,
)
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit import run
from tests.kit.counted_steps import count_steps


@pytest.fixture
def engine() -> Engine:
    """An engine with something of everything in its state."""
    clock = ManualClock()
    engine = Engine(MemoryLog(), clock=clock, settings=Settings())
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue", "dlq_strategy": "block", "retry_backoff": {"min_ms": 50}})
    run.put_topic(engine, "c", {"type": "queue", "dlq_strategy": "block_and_dlq", "dead_letter": "d"})
    run.put_topic(engine, "t", {"cap_records": 3})
    run.produce(engine, "q", [b"%d" % number for number in range(20)])
    at = clock.wall_ms() + 10**8
    run.produce(engine, "q", [Record(data=b"", delay_ms=5000), Record(data=b"", deliver_at=at)])
    run.produce(engine, "q", [Record(data=b"", unique_key="u", tag="x")], idempotency_key="k")
    run.produce(engine, "t", [b"1", b"2", b"3", b"4"], client_id="c", client_seq=4)
    run.claim(engine, "q", node="a", max_count=8, claim_id="claim")
    run.extend(engine, "q", node="a", seqs=[2, 3], lease_ms=50_000)
    run.nack(engine, "q", node="a", seqs=[4], delay_ms=0, reason="no")
    run.nack(engine, "q", node="a", seqs=[5], delay_ms=700)
    run.nack(engine, "q", node="a", seqs=[6], dead=True)
    run.ack(engine, "q", node="a", seqs=[7])
    run.delete_records(engine, "q", seqs=[12])
    run.put_router(engine, "r", source="t", dest="u", filter="x")
    run.produce(engine, "c", [b"1", b"2", b"3"])
    run.claim(engine, "c", node="a", max_count=3)
    run.nack(engine, "c", node="a", seqs=[1, 2], dead=True)
    run.redrive(engine, "q", limit=1)
    clock.jump_wall(3600_000)
    run.claim(engine, "q", node="b", max_count=1)
    return engine


def test_a_checkpoint_reads_back_to_the_same_bytes(engine: Engine) -> None:
    dumped = dump_checkpoint(engine.state)
    loaded = load_checkpoint(dumped)
    assert dump_checkpoint(loaded) == dumped
    assert loaded.live_bytes == engine.state.live_bytes > 0
    assert loaded.idempotency_keys == 1
    assert loaded.next_lease == engine.state.next_lease
    assert loaded.holders == engine.state.holders
    assert loaded.wall_queues == engine.state.wall_queues


@pytest.mark.parametrize("name_of_queue", ["q", "c"])
def test_a_topic_that_was_read_back_behaves_as_before(engine: Engine, name_of_queue: str) -> None:
    topic = engine.state.topics[name_of_queue]
    loaded = load_topic(dump_topic(topic, now_ms=engine.state.log_ms))
    assert topic.queue is not None
    assert loaded.queue is not None
    for name in ("cursor", "acked_max", "deliveries", "parked", "copies", "deliveries_ended", "uniques", "claims"):
        assert getattr(loaded.queue, name) == getattr(topic.queue, name), name
    for name in ("reclaim", "delayed"):
        assert list(getattr(loaded.queue, name)) == list(getattr(topic.queue, name)), name
    numbers = topic.queue.leases.numbers_after(0, 100)
    assert numbers
    assert loaded.queue.leases.numbers_after(0, 100) == numbers
    for number in numbers:
        assert loaded.queue.held(number) == topic.queue.held(number)
        assert loaded.queue.lease(number) == topic.queue.lease(number)
    for later_ms in (0, 40_000, 60_000, 10**9):
        now, ended = engine.state.log_ms + later_ms, list[list[Ended]]()
        for queue in (loaded.queue, topic.queue):
            ended.append([])
            offset_ms, backoff = engine.state.wall_offset_ms, topic.config.retry_backoff
            queue.pass_time(now, wall_offset_ms=offset_ms, backoff=backoff, ended=ended[-1])
        assert ended[0] == ended[1]
        assert list(loaded.queue.reclaim) == list(topic.queue.reclaim)


def test_a_delay_by_the_wall_clock_is_planned_again_once_the_offset_is_known(engine: Engine) -> None:
    loaded = load_checkpoint(dump_checkpoint(engine.state))
    for before, after in zip(engine.state.by_id.values(), loaded.by_id.values(), strict=True):
        if before.queue is not None:
            assert after.queue is not None
            assert after.queue.next_change_ms == before.queue.next_change_ms


def test_the_facts_about_the_broker_travel_alone(engine: Engine) -> None:
    state = State()
    load_state(state, dump_state(engine.state))
    assert dump_state(state) == dump_state(engine.state)
    assert [router.name for router in state.routers_from["t"]] == ["r"]
    assert state.next_topic_id == engine.state.next_topic_id


def test_two_roads_to_the_same_state_give_the_same_bytes() -> None:
    """One acks its jobs in order, the other backwards and in pieces."""

    def build(order: list[list[int]]) -> bytes:
        clock = ManualClock()
        engine = Engine(MemoryLog(), clock=clock, settings=Settings())
        engine.recover()
        run.put_topic(engine, "q", {"type": "queue"})
        run.produce(engine, "q", [b"x"] * 10)
        run.claim(engine, "q", node="a", max_count=6)
        for part in order:
            run.ack(engine, "q", node="a", seqs=part)
        return dump_topic(engine.state.topics["q"], now_ms=engine.state.log_ms)

    assert build([[1, 2, 3, 5]]) == build([[5], [3], [2, 1]])


def extended_one_by_one(lease_count: int, jobs_each: int) -> Engine:
    engine = Engine(MemoryLog(), clock=ManualClock(), settings=Settings())
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue", "lease_ms": 60_000})
    run.produce(engine, "q", [b"x"] * lease_count * jobs_each)
    for _ in range(lease_count):
        for seq in run.claim(engine, "q", node="a", max_count=jobs_each).reply.seqs:
            run.extend(engine, "q", node="a", seqs=[seq], lease_ms=60_000 + seq)  # no two have one deadline
    return engine


def test_jobs_that_were_extended_one_by_one_come_back_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_STALE_MIN", 10)
    engine = extended_one_by_one(3, 40)
    loaded = load_checkpoint(dump_checkpoint(engine.state))
    invariants(loaded)
    based = State()
    based.add_topic(load_topic(dump_topic(engine.state.topics["q"], now_ms=engine.state.log_ms)))
    for state in (engine.state, loaded, based):
        state.pass_time(state.topics["q"], engine.state.log_ms + 10**9)
        queue = state.topics["q"].queue
        assert queue is not None
        assert (len(queue.in_flight), list(queue.reclaim)) == (0, list(range(1, 121)))


def test_a_restore_of_jobs_extended_one_by_one_costs_the_same_for_each() -> None:
    few, many = (dump_checkpoint(extended_one_by_one(count, 50).state) for count in (5, 40))
    assert count_steps(lambda: load_checkpoint(many)) < 1.1 * 8 * count_steps(lambda: load_checkpoint(few))


def with_leases(count: int, *, nodes: int, ended: Callable[[int], bool] = lambda _: False, shift: int = 0) -> Topic:
    """Return a queue with leases of one job each; ``shift`` leases came and went before."""
    topic = Topic(1, "q", TopicConfig(type="queue"))
    queue = topic.queue = Queue()
    topic.head_seq = topic.count = 2 * count
    for number in range(1, shift + 1):
        queue.hold(Claimed(1, 1, number, "gone", 10, [2 * count, 1]))
        queue.take_out(2 * count, 1)
    for seq in range(1, count + 1):
        queue.hold(Claimed(seq, 1, shift + seq, f"n{seq % nodes}", 1_000 + seq, [seq, 1]))
    for seq in range(1, count + 1):
        if ended(seq):
            queue.take_out(seq, 1)
    return topic


@pytest.mark.parametrize("nodes", [1, 2, 256, 257, 1_100])
@pytest.mark.parametrize("shift", [0, 1_000])
@pytest.mark.parametrize("kept", [1, 3, 100])
def test_leases_of_one_job_read_back_as_they_were(nodes: int, shift: int, kept: int) -> None:
    topic = with_leases(2_000, nodes=nodes, ended=lambda seq: seq % kept != 0, shift=shift)
    data = dump_topic(topic, now_ms=0)
    loaded = load_topic(data)
    assert dump_topic(loaded, now_ms=0) == data
    assert topic.queue is not None
    assert loaded.queue is not None
    seqs = range(1, 2_001)
    assert [loaded.queue.holder(seq) for seq in seqs] == [topic.queue.holder(seq) for seq in seqs]
    ended: tuple[list[Ended], list[Ended]] = [], []
    for queue, found in zip((topic.queue, loaded.queue), ended, strict=True):
        queue.pass_time(10_000, wall_offset_ms=0, backoff=None, ended=found)
    assert ended[0] == ended[1]
    assert len(ended[0]) == 2_000 // kept


def test_leases_are_written_alike_whatever_was_claimed_and_settled_between_them() -> None:
    def build(between: int) -> bytes:
        topic, queue = Topic(1, "q", TopicConfig(type="queue")), Queue()
        topic.queue, topic.head_seq, topic.count = queue, 10_000, 10_000
        for number in range(1, 301):
            for other in range(between):
                queue.hold(Claimed(0, 1, 20 * number + other, f"other-{other}", 50, [9_000, 1]))
                queue.take_out(9_000, 1)
            queue.hold(Claimed(number, 1, 20 * number + 10, f"n{number % 7}", 900, [number, 1]))
        queue.cursor = 9_001
        return dump_topic(topic, now_ms=0)

    assert build(0) == build(1) == build(7)


@pytest.mark.parametrize("kept", [1, 3])
def test_leases_of_one_job_are_written_in_less_than_ten_bytecodes_each(kept: int) -> None:
    few, many = (with_leases(count, nodes=20, ended=lambda seq: seq % kept != 0) for count in (1_024, 10_240))
    steps = count_steps(lambda: dump_topic(many, now_ms=0)) - count_steps(lambda: dump_topic(few, now_ms=0))
    assert steps < 10 * (10_240 - 1_024)


def test_the_parts_of_a_lease_are_written_in_an_order_that_does_not_depend_on_how_they_came_to_be() -> None:
    def build(*extends: list[int]) -> bytes:
        engine = extended_one_by_one(1, 1)
        run.produce(engine, "q", [b"x"] * 6)
        run.claim(engine, "q", node="a", max_count=6, claim_id="c")
        for seqs in extends:
            run.extend(engine, "q", node="a", seqs=seqs, lease_ms=90_000 + len(seqs))
        run.ack(engine, "q", node="a", seqs=[2])
        return dump_topic(engine.state.topics["q"], now_ms=engine.state.log_ms)

    assert build([3, 4], [7]) == build([7], [3, 4])
    assert build([3, 4, 5, 6, 7], [6]) == build([6], [3, 4, 5, 6, 7], [6])


def test_a_queue_is_known_to_wait_for_the_wall_clock_only_while_it_does() -> None:
    clock = ManualClock()
    engine = Engine(MemoryLog(), clock=clock, settings=Settings())
    engine.recover()
    state = engine.state
    for name, cancelled in (("due", False), ("cancelled", True)):
        run.put_topic(engine, name, {"type": "queue"})
        run.produce(engine, name, [Record(data=b"", deliver_at=clock.wall_ms() + 1_000)])
        assert state.topics[name].id in state.wall_queues
        if cancelled:
            run.delete_records(engine, name, seqs=[1])
        else:
            clock.advance(1_000)
            run.claim(engine, name, node="a")
        assert not state.wall_queues
        invariants(state)


def test_stories_weigh_the_same_after_a_restore(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for seq in run.claim(engine, "q", node="b", max_count=6).reply.seqs:
        run.nack(engine, "q", node="b", seqs=[seq], reason="r" * seq * 10)
    queue = engine.state.topics["q"].queue
    loaded = load_checkpoint(dump_checkpoint(engine.state)).topics["q"].queue
    assert queue is not None
    assert loaded is not None
    assert (loaded.deliveries_ended, loaded.deliveries_ended.size_bytes) == (
        queue.deliveries_ended,
        queue.deliveries_ended.size_bytes,
    )
    monkeypatch.setattr(deliveries, "ENDED_BYTES_MAX", queue.deliveries_ended.size_bytes - 1)
    lighter = load_checkpoint(dump_checkpoint(engine.state)).topics["q"].queue
    assert lighter is not None
    assert list(lighter.deliveries_ended) == list(queue.deliveries_ended)[1:], "a limit that was lowered holds at once"


def test_what_is_no_checkpoint_is_not_taken_for_one(engine: Engine) -> None:
    dumped = dump_checkpoint(engine.state)
    for damaged in (b"", dumped[:-1], b"\x00" + dumped):
        with pytest.raises(msgspec.DecodeError):
            load_checkpoint(damaged)
