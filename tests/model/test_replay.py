"""Replays that the machines found wrong once: a log must fold to the live state after any trimming."""

from __future__ import annotations

from typing import Any

from tenure import Record, Settings
from tenure.broker.durability.trim import trim_step
from tenure.broker.engine import Engine
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.log.memory import MemoryLog
from tenure.testing import ManualClock
from tests.kit import run
from tests.model.machine import assert_same, dumped, folded, let_pass

SEGMENT_BYTES = 4096


def open_engine(clock: ManualClock) -> Engine:
    settings = Settings(segment_bytes=SEGMENT_BYTES, spare_segments=1, trim_step_bytes=512)
    engine = Engine(MemoryLog(segment_bytes=SEGMENT_BYTES), clock=clock, settings=settings)
    engine.recover()
    return engine


def open_queue(clock: ManualClock, **config: Any) -> Engine:
    engine = open_engine(clock)
    run.put_topic(engine, "q", {"type": "queue", "lease_ms": 1_000, **config})
    return engine


def roll(engine: Engine, times: int = 1) -> None:
    """Fill the log with something else until it has gone on to a new segment."""
    wanted = len(engine.log.segments()) + times
    while len(engine.log.segments()) < wanted:
        run.produce(engine, "filler", [b"." * 500])


def drop_oldest(engine: Engine) -> None:
    run.delete_records(engine, "filler", before_seq=1 << 40)
    oldest = engine.log.segments()[0].number
    while engine.log.segments()[0].number == oldest:
        trim_step(engine)


def check_replay(engine: Engine) -> State:
    """Fold the log again and compare at the present time."""
    now = engine.now()
    engine.write()
    invariants(engine.state)
    replayed = folded(State(), list(engine.log.replay()))
    let_pass(replayed, now)
    let_pass(engine.state, now)
    invariants(replayed)
    assert_same(dumped(replayed, now), dumped(engine.state, now))
    return replayed


def test_a_topic_that_was_reconfigured_behind_its_base_is_not_a_new_one_once_the_base_is_trimmed():
    engine = open_queue(ManualClock())
    run.produce(engine, "q", [b"1", b"2", b"3"])
    roll(engine)
    run.put_topic(engine, "q", {"lease_ms": 500})
    claim = run.claim(engine, "q", node="n", max_count=2).reply
    run.ack(engine, "q", node="n", seqs=claim.seqs)
    roll(engine)
    drop_oldest(engine)
    replayed = check_replay(engine)
    assert replayed.topics["q"].count == 1
    assert replayed.topics["q"].config.lease_ms == 500


def test_leases_end_before_a_delete_of_their_jobs_in_a_replay_too():
    clock = ManualClock()
    engine = open_queue(clock)
    run.produce(engine, "q", [b"1", b"2"])
    run.claim(engine, "q", node="n", max_count=2)
    clock.advance(2_000)
    run.delete_records(engine, "q", seqs=[1])
    assert check_replay(engine).topics["q"].queue.expired == 2  # type: ignore[union-attr]


def test_jobs_that_wait_for_the_wall_clock_come_due_in_a_replay_that_starts_at_a_rewritten_base():
    clock = ManualClock()
    engine = open_queue(clock)
    clock.jump_wall(3_600_000)
    run.produce(engine, "q", [Record(data=b"1", deliver_at=clock.wall_ms() + 1_000)])
    roll(engine)
    drop_oldest(engine)
    clock.advance(1_000)
    assert run.claim(engine, "q", node="n").reply.seqs == [1]
    check_replay(engine)


def test_a_checkpoint_from_before_a_segment_was_dropped_does_not_lead_back_into_it():
    clock = ManualClock()
    engine = open_engine(clock)
    run.put_topic(engine, "t", {"cap_records": 3})
    run.produce(engine, "t", [b"1"])
    roll(engine)
    run.produce(engine, "t", [b"2"])  # dies before its segment goes: no event will say so
    roll(engine)
    run.produce(engine, "t", [b"3"])
    run.delete_records(engine, "t", seqs=[2])
    engine.sync()
    position, payload = engine.log.position(), engine.checkpoint()
    drop_oldest(engine)
    drop_oldest(engine)
    engine.sync()
    assert isinstance(engine.log, MemoryLog)
    again = Engine(engine.log.reopen(), clock=clock, settings=engine.settings)
    again.recover([(position, payload)])
    run.produce(again, "t", [b"4", b"5"])
    assert [record.seq for record in run.diff(again, "t").records] == [3, 4, 5]


def test_parts_of_a_lease_that_end_together_end_in_one_order_whether_or_not_they_were_written_out_between():
    clock = ManualClock()
    engine = open_queue(clock)
    run.produce(engine, "q", [b"1", b"2", b"3"])
    run.claim(engine, "q", node="n", max_count=3)
    run.extend(engine, "q", node="n", seqs=[2], lease_ms=5_000)
    run.extend(engine, "q", node="n", seqs=[1, 3], lease_ms=5_000)
    run.ack(engine, "q", node="n", seqs=[1])
    copied = load_checkpoint(dump_checkpoint(engine.state))
    now = engine.now() + 5_001
    for state in (engine.state, copied):
        let_pass(state, now)
    assert_same(dumped(copied, now), dumped(engine.state, now))
