"""What each event counts for and touches, on an engine without a loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure import Settings
from tenure.broker.engine import Engine
from tenure.broker.observing.tally import TALLIES
from tenure.core.events import (
    KINDS,
    Appended,
    BaseBegun,
    BasePart,
    Carried,
    ClockSet,
    Opened,
    RouterDeleted,
    RouterPut,
    StateCarried,
    TopicCarried,
    TopicPut,
)
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit import run


@pytest.fixture
def engine(clock: ManualClock) -> Engine:
    """A queue of six jobs, two of them held."""
    engine = Engine(MemoryLog(), clock=clock, settings=Settings())
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue", "dead_letter": "dead"})
    run.produce(engine, "q", [b"%d" % seq for seq in range(6)])
    run.claim(engine, "q", "w", 2, lease_ms=1000)
    engine.changed_topics.clear()
    return engine


TOUCHING: dict[str, Callable[[Engine], object]] = {
    "produce": lambda engine: run.produce(engine, "q", [b"1"]),
    "ack": lambda engine: run.ack(engine, "q", "w", [1]),
    "nack": lambda engine: run.nack(engine, "q", "w", [1]),
    "dead letter": lambda engine: run.nack(engine, "q", "w", [1], dead=True),
    "an earlier deadline": lambda engine: run.extend(engine, "q", "w", [1], lease_ms=100),
    "delete": lambda engine: run.delete_records(engine, "q", seqs=[3]),
    "patch": lambda engine: run.patch_topic(engine, "q", {"lease_ms": 5000}),
    "release": lambda engine: run.release(engine, engine.state.topics["q"], [engine.state.next_lease - 1]),
}
QUIET: dict[str, Callable[[Engine], object]] = {
    "claim": lambda engine: run.claim(engine, "q", "w"),
    "a later deadline": lambda engine: run.extend(engine, "q", "w", [1], lease_ms=60_000),
    "look": lambda engine: run.topic_info(engine, "q"),
    "an ack of what is not held": lambda engine: run.ack(engine, "q", "v", [1]),
}


@pytest.mark.parametrize("how", TOUCHING)
def test_what_may_make_jobs_claimable_touches_its_queue(engine: Engine, how: str) -> None:
    topic = engine.state.topics["q"]
    TOUCHING[how](engine)
    assert topic in engine.changed_topics


@pytest.mark.parametrize("how", QUIET)
def test_what_makes_nothing_claimable_touches_nothing(engine: Engine, how: str) -> None:
    QUIET[how](engine)
    assert not engine.changed_topics


def test_a_topic_that_goes_is_touched_so_that_those_who_wait_are_turned_away(engine: Engine) -> None:
    topic = engine.state.topics["q"]
    run.delete_topic(engine, "q")
    assert topic in engine.changed_topics


def test_a_look_that_lets_a_lease_run_out_touches_its_queue_and_counts_the_jobs(
    engine: Engine, clock: ManualClock
) -> None:
    clock.advance(1001)
    run.topic_info(engine, "q")
    assert engine.changed_topics == {engine.state.topics["q"]}
    assert engine.metrics.expired == 2


def test_leases_that_ran_out_before_the_log_was_opened_are_not_counted_again(clock: ManualClock) -> None:
    log = MemoryLog()
    engine = Engine(log, clock=clock, settings=Settings())
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue"})
    run.produce(engine, "q", [b"1"])
    run.claim(engine, "q", "w", lease_ms=1000)
    clock.advance(1001)
    run.claim(engine, "q", "w", lease_ms=1000)
    engine.write()
    again = Engine(log.reopen(), clock=clock, settings=Settings())
    again.recover()
    assert (again.metrics.expired, again.changed_topics) == (0, set())


def test_every_event_has_a_tally_or_a_reason_for_none() -> None:
    """Appends and puts are noted after their fold; what is rewritten, opened or routed counts for nothing."""
    without = {Appended, TopicPut, Opened, ClockSet, RouterPut, RouterDeleted, Carried, TopicCarried, StateCarried}
    without |= {BaseBegun, BasePart}
    assert set(KINDS.values()) - set(TALLIES) == without
