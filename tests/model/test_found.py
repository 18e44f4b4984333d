"""Commands that the machines found wrong once, one short test each."""

from __future__ import annotations

import pytest

from tenure import Conflict, Record
from tenure.broker.durability.trim import trim_due, trim_step
from tenure.testing import ManualClock
from tests.kit import run
from tests.model.test_replay import check_replay, drop_oldest, open_engine, open_queue, roll


def test_a_job_whose_lease_ran_out_is_evicted_by_a_cap_without_anybody_looking_first():
    clock = ManualClock()
    engine = open_queue(clock, cap_records=2)
    run.produce(engine, "q", [b"1"])
    run.claim(engine, "q", node="n")
    clock.advance(2_000)
    run.produce(engine, "q", [b"2", b"3"])
    assert [record.seq for record in run.diff(engine, "q").records] == [2, 3]


def test_records_past_their_ttl_do_not_keep_a_rejecting_topic_full():
    clock = ManualClock()
    engine = open_engine(clock)
    run.put_topic(engine, "t", {"ttl_ms": 1_000, "cap_records": 1, "discard": "reject"})
    run.produce(engine, "t", [b"1"])
    clock.advance(1_000)
    assert run.produce(engine, "t", [b"2"]).reply.first_seq == 2


def test_a_topic_whose_records_are_all_past_their_ttl_counts_as_empty():
    clock = ManualClock()
    engine = open_engine(clock)
    run.put_topic(engine, "t", {"ttl_ms": 1_000})
    run.produce(engine, "t", [b"1"])
    with pytest.raises(Conflict):
        run.delete_topic(engine, "t", if_empty=True)
    clock.advance(1_000)
    assert run.delete_topic(engine, "t", if_empty=True).reply == (True, [])


def test_a_redriven_job_is_not_redriven_into_the_queue_it_is_in():
    engine = open_queue(ManualClock(), dead_letter="dead")
    run.produce(engine, "q", [b"1"])
    run.claim(engine, "q", node="n")
    run.nack(engine, "q", node="n", seqs=[1], dead=True)
    assert run.redrive(engine, "dead").reply.seqs == [1]
    assert run.redrive(engine, "q").reply.seqs == []
    assert run.claim(engine, "q", node="n").reply.seqs == [2]


def test_a_redrive_evicts_over_the_cap_of_its_target_as_an_append_would():
    engine = open_queue(ManualClock(), dead_letter="dead", cap_records=1)
    run.produce(engine, "q", [b"1"])
    run.claim(engine, "q", node="n")
    run.nack(engine, "q", node="n", seqs=[1], dead=True)
    run.produce(engine, "q", [b"2"])
    run.redrive(engine, "dead")
    assert [record.seq for record in run.diff(engine, "q").records] == [3]


def test_rewritten_records_keep_their_age_though_their_neighbours_are_close():
    clock = ManualClock()
    engine = open_engine(clock)
    run.put_topic(engine, "t", {"ttl_ms": 10_000})
    for _ in range(6):
        run.produce(engine, "t", [b"."])
        clock.advance(1_000)
    roll(engine)
    drop_oldest(engine)
    clock.advance(6_000)  # the oldest is 12 s old, the youngest 7 s
    alive = [record.seq for record in run.diff(engine, "t").records]
    assert alive in ([4, 5, 6], [3, 4, 5, 6]), "a second of difference is granted, not more"
    check_replay(engine)


def test_trimming_comes_to_an_end_where_jobs_are_smaller_than_what_surrounds_them():
    engine = open_queue(ManualClock())
    for _ in range(100):
        run.produce(engine, "q", [b"1"] * 50)
    engine.sync()
    before = sum(segment.used_bytes for segment in engine.log.segments())
    assert trim_due(engine)
    while trim_due(engine):
        trim_step(engine)
    assert engine.rewritten_bytes < 4 * before
    assert check_replay(engine).topics["q"].count == 5_000


def test_a_job_with_a_past_is_counted_on_when_it_is_claimed_with_younger_ones_beyond_a_gap():
    engine = open_queue(ManualClock(), dead_letter="dead", max_deliveries=3)
    run.produce(engine, "q", [b"1"])
    run.claim(engine, "q", node="n")
    run.nack(engine, "q", node="n", seqs=[1], dead=True)
    run.redrive(engine, "dead", reset_deliveries=False)
    run.produce(engine, "q", [b"3", b"4"])
    run.delete_records(engine, "q", seqs=[3])
    claim = run.claim(engine, "q", node="n", max_count=2).reply
    assert [(seq, claim.deliveries(seq)) for seq in claim.seqs] == [(2, 2), (4, 1)]


@pytest.mark.parametrize("strategy", ["block", "block_and_dlq"])
def test_a_parked_job_keeps_its_unique_key_until_it_is_done(strategy: str):
    engine = open_queue(ManualClock(), dlq_strategy=strategy, dead_letter="dead")
    job = Record(data=b"1", unique_key="u")
    run.produce(engine, "q", [job])
    run.claim(engine, "q", node="n")
    run.nack(engine, "q", node="n", seqs=[1], dead=True)
    for _ in ("parked", "redriven in place"):
        again = run.produce(engine, "q", [job]).reply
        assert (again.deduped, again.first_seq) == (True, 1)
        check_replay(engine)
        run.redrive(engine, "q")
    run.claim(engine, "q", node="n")
    run.ack(engine, "q", node="n", seqs=[1])
    assert not run.produce(engine, "q", [job]).reply.deduped
    check_replay(engine)


@pytest.mark.parametrize("dead_letter", ["dead", None])
def test_a_job_that_leaves_as_a_dead_letter_frees_its_unique_key_and_a_redrive_does_not_take_it_again(
    dead_letter: str | None,
):
    engine = open_queue(ManualClock(), dead_letter=dead_letter)
    job = Record(data=b"1", unique_key="u")
    run.produce(engine, "q", [job])
    run.claim(engine, "q", node="n")
    run.nack(engine, "q", node="n", seqs=[1], dead=True)
    check_replay(engine)
    second = run.produce(engine, "q", [job]).reply
    assert (second.deduped, second.first_seq) == (False, 2)
    if dead_letter is not None:
        run.redrive(engine, "dead")
    assert engine.state.queue("q")[1].uniques == {"u": 2}
    run.claim(engine, "q", node="n")
    run.ack(engine, "q", node="n", seqs=[2])
    third = run.produce(engine, "q", [job]).reply
    assert not third.deduped, "the letter that came back has no key"
    check_replay(engine)
