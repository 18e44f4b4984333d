"""What was answered and what a restart rebuilds cannot differ: every event is folded again from the log."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tenure import Record, Settings, TenureError
from tenure.broker.engine import Engine
from tenure.contract.records import lease_id
from tenure.core.events import KINDS, BaseBegun, BasePart, Carried, StateCarried, TopicCarried, decode
from tenure.core.fold import fold
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.log.interface import Log
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit import run

RECORDS_100 = Settings(records_max=100)
SOON: dict[str, int] = {"begun_retry_ms": 40, "begun_retry_ms_max": 300, "suspects_wait_ms": 200, "losses_max": 4}


class Story:
    """A random walk through every command, on an engine of its own, which is opened again now and then."""

    def __init__(
        self, seed: int, *, log: Log | None = None, settings: Settings = RECORDS_100, may_restart: bool = True
    ) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.log: Log = MemoryLog() if log is None else log
        self.settings = msgspec.structs.replace(settings, **SOON)
        self.may_restart = may_restart
        self.engine = self.opened()
        self.engine.recover()
        self.halfway: tuple[bytes, Any] | None = None
        self.now = 0

    def opened(self) -> Engine:
        return Engine(self.log, clock=self.clock, settings=self.settings)

    def restart(self) -> None:
        """End the process and open the log again; the time between is in no event of it."""
        self.engine.write()
        assert isinstance(self.log, MemoryLog)
        self.log = self.log.reopen()
        self.clock.advance(self.random.choice([0, 50, 500]))
        self.engine = self.opened()
        self.engine.recover()

    def run(self, steps: int) -> None:
        for step in range(steps):
            if step == steps // 2:
                self.engine.write()
                self.halfway = dump_checkpoint(self.engine.state), self.log.position()
            try:
                self.step()
            except TenureError:
                continue
        self.now = self.engine.now()
        self.engine.write()

    def step(self) -> None:
        random, engine = self.random, self.engine
        name, node = random.choice(["q", "p", "t"]), random.choice("ab")
        seqs = random.sample(range(1, 60), random.randint(1, 12))
        match random.randrange(22):
            case 0:
                self.put(name)
            case 1 | 2 | 3:
                self.produce(name)
            case 4 | 5 | 6:
                run.claim(engine, name, node=node, max_count=random.randint(1, 9), lease_ms=random.choice([100, 900]))
            case 7 | 8:
                run.ack(engine, name, node=node, seqs=seqs)
            case 9:
                delay_ms = random.choice([None, 0, 200])
                run.nack(engine, name, node=node, seqs=seqs, delay_ms=delay_ms, dead=random.random() < 0.3)
            case 10:
                run.extend(engine, name, node=node, seqs=seqs, lease_ms=random.choice([100, 2000]))
            case 11:
                run.delete_records(engine, name, seqs=seqs[:2])
            case 12:
                run.redrive(engine, random.choice(["q", "p", "dead"]), reset_deliveries=random.random() < 0.5)
            case 13:
                self.route()
            case 14:
                self.clock.advance(random.choice([1, 50, 500]))
            case 15 | 16:
                group, count, lease_ms = random.choice([None, "g"]), random.randint(1, 9), random.choice([100, 900])
                options: dict[str, Any] = {"max_count": count, "lease_ms": lease_ms, "isolate": True, "group": group}
                run.claim(engine, name, node=node, suspects=random.random() < 0.4, **options)
            case 17:
                run.return_jobs(engine, name, node=node, seqs=seqs, delay_ms=random.choice([0, 200]), reason="drained")
            case 18 | 19:
                self.begin(name)
            case 20:
                if random.random() < 0.5:
                    run.end_node(engine, name, node=node, seqs=seqs, exit_code=random.choice([None, 137]))
                else:
                    queue = engine.state.queue(name)[1]
                    run.lose(engine, engine.state.topics[name], list(queue.leases.numbers_after(0, 2)))
            case _ if random.random() < 0.2:
                if self.may_restart:
                    self.restart()
            case _:
                self.clock.jump_wall(random.choice([-5000, 0, 5000]))
                if random.random() < 0.1:
                    run.delete_topic(engine, name)

    def begin(self, name: str) -> None:
        held = self.engine.state.queue(name)[1].in_flight
        if held:
            seq = self.random.choice(list(held))
            lease = self.engine.state.topics[name].queue.holder(seq)  # type: ignore[union-attr]
            assert lease is not None
            run.begin(self.engine, name, node=lease.node, seq=seq, lease_id=lease_id(lease.number))

    def put(self, name: str) -> None:
        random = self.random
        config: dict[str, Any] = {"max_deliveries": random.choice([0, 1, 3]), "cap_records": random.choice([0, 9, 30])}
        config["dlq_strategy"] = random.choice(["skip", "block", "block_and_dlq"])
        config["dead_letter"] = random.choice([None, "dead"])
        config["ttl_ms"] = random.choice([0, 0, 3000])
        config["retry_backoff"] = random.choice([None, {"min_ms": 40}])
        run.put_topic(self.engine, name, config | ({} if name == "t" else {"type": "queue"}))

    def produce(self, name: str) -> None:
        random = self.random
        records: list[bytes | Record] = [b"x" * random.randint(0, 9)]
        if random.random() < 0.5:
            records.append(Record(data=b"tagged", tag=random.choice(["a", "b"]), node="n"))
        if name != "t":
            records += [Record(data=b"d", delay_ms=random.choice([0, 300]))]
        key = random.choice([None, "k1", "k2"])
        client = {"client_id": "c", "client_seq": random.randint(0, 99)} if random.random() < 0.3 else {}
        run.produce(self.engine, name, records, idempotency_key=key, **client)  # type: ignore[arg-type]

    def route(self) -> None:
        random, engine = self.random, self.engine
        if random.random() < 0.5:
            filter = random.choice([None, "a"])
            run.put_router(engine, random.choice("rs"), source=random.choice("qp"), dest="t", filter=filter)
        elif random.random() < 0.1:
            run.delete_router(engine, random.choice("rs"))
        for topic in list(engine.state.topics.values()):
            run.forward(engine, topic)


def refold(log: Log, state: State, after: Any = None) -> State:
    for kind, _, location, body in log.replay(after):
        fold(state, decode(kind, body), location)
    return state


def at_one_time(now: int, *states: State) -> list[bytes]:
    """The states as bytes, after time has reached the same moment in each: expiry is no event."""
    for state in states:
        for topic in state.by_id.values():
            state.pass_time(topic, now)
        state.log_ms = now
    return [dump_checkpoint(state) for state in states]


@pytest.mark.parametrize("seed", range(30))
def test_folding_the_log_again_gives_the_state_that_was_answered_from(seed: int) -> None:
    story = Story(seed)
    story.run(250)
    assert story.halfway is not None
    checkpoint, position = story.halfway
    from_the_log = refold(story.log, State())
    from_the_checkpoint = refold(story.log, load_checkpoint(checkpoint), position)
    live, replayed, resumed = at_one_time(story.now, story.engine.state, from_the_log, from_the_checkpoint)
    assert replayed == live
    assert resumed == live
    assert from_the_log.live_bytes == story.engine.state.live_bytes
    assert from_the_log.live_bytes == sum(topic.bytes for topic in from_the_log.by_id.values())


@pytest.mark.parametrize("seed", range(12))
def test_a_fold_that_is_written_out_and_read_back_after_each_event_comes_to_the_same_state(seed: int) -> None:
    """So a replay may begin at any event of the log."""
    story = Story(seed)
    story.run(120)
    whole, again = State(), State()
    for kind, _, location, body in story.log.replay():
        event = decode(kind, body)
        fold(whole, event, location)
        fold(again, event, location)
        written = dump_checkpoint(whole)
        again = load_checkpoint(dump_checkpoint(again))
        assert dump_checkpoint(again) == written, event


def test_the_walks_meet_every_kind_of_event() -> None:
    """But for the three that trimming writes: those belong to its own tests."""
    met = set()
    for seed in range(30):
        story = Story(seed)
        story.run(250)
        met |= {KINDS[kind] for kind, _, _, _ in story.log.replay()}
    assert set(KINDS.values()) - met == {Carried, TopicCarried, StateCarried, BaseBegun, BasePart}


@pytest.mark.parametrize("seed", range(30))
def test_every_live_job_is_in_exactly_one_place(seed: int) -> None:
    story = Story(seed)
    for _ in range(25):
        story.run(10)
        for topic in story.engine.state.by_id.values():
            queue = topic.queue
            live = {seq for seq in range(1, topic.head_seq + 1) if not topic.is_dead(seq)}
            assert len(live) == topic.count
            if queue is None:
                continue
            places = [set(queue.in_flight), set(queue.reclaim), set(queue.delayed), set(queue.parked)]
            places.append(set(queue.suspects.ready))
            known = set().union(*places)
            assert sum(map(len, places)) == len(known), "in no two"
            assert known <= live, "and none that is gone"
            assert {seq for seq in live - known if seq < queue.cursor} == set(), "what is in none is fresh"
            assert sum(map(queue.held_count, queue.leases.numbers_after(0, 1_000))) == len(queue.in_flight)
            assert set(queue.uniques.values()) == set(queue.uniques_by_seq)


def test_an_event_of_a_topic_that_is_gone_changes_nothing() -> None:
    story = Story(1)
    story.run(200)
    state = State()
    for kind, _, location, body in story.log.replay():
        event = decode(kind, body)
        if hasattr(event, "topic") and not isinstance(event, KINDS[18] | KINDS[20]):
            fold(state, event, location)
    assert (state.topics, state.by_id) == ({}, {})
