"""Frames that decay, or that the disk does not give back, while the broker runs: under every kind of topic, with
trimming behind them and a restart at the end (faults 7, 14, 41).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import asdict

from tenure import Record
from tenure.broker.durability import trim
from tenure.broker.engine import Engine
from tenure.broker.records import Reader
from tenure.broker.salvage.rebuild import rebuild
from tenure.core.events import Carried, Event, Evicted
from tenure.core.state.frame_index import find
from tenure.core.state.invariants import invariants
from tenure.errors import Closed, Corrupt, Indeterminate, Overloaded, TenureError
from tenure.log.memory import MemoryLog
from tenure.log.segment import segment_name
from tenure.settings import Settings
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import Ledger, Session, check_fold, events_of, picture, picture_of, records
from tests.kit import run
from tests.kit.brokers import datas, seqs

SETTINGS = Settings(segment_bytes=8192, spare_segments=1, trim_step_bytes=2048, frame_cache_bytes=1)
HARMS = ["flip", "EIO"]
RESTARTS = ["log", "checkpoint"]


class World:
    """One engine on a simulated disk, and the harm that can be done to it."""

    def __init__(self) -> None:
        self.session = Session(SimDisk(1), Ledger(), ManualClock(), settings=SETTINGS)

    @property
    def engine(self) -> Engine:
        return self.session.engine

    @property
    def clock(self) -> ManualClock:
        return self.session.clock

    def reopen(self, *, checkpoint: bool = True) -> None:
        """Restart on what is on the disk; with a checkpoint, what lies before it is read only when it is asked for."""
        if checkpoint:
            self.session.checkpoint()
        self.session.sync()
        disk = self.session.disk.crash("lost")
        if not checkpoint:
            for name in disk.names():
                if name.endswith(".checkpoint"):
                    disk.remove(name)
        self.session = Session(disk, Ledger(), deepcopy(self.clock), settings=SETTINGS)

    def harm(self, name: str, seq: int, *, how: str) -> None:
        """Make the frame of a record unreadable; nothing of it is kept in memory."""
        self.reopen()
        topic = self.engine.state.topics[name]
        at, index = find(topic.frame_index, seq)
        entry = topic.frame_index[at]
        segment, start = segment_name(entry.segment), entry.offsets[index]
        if how == "flip":
            self.session.disk.flip_bit(segment, (start + 40) * 8)
        else:
            refuse_reads(self.session.disk, segment, start, start + 41)
        with pytest.raises(Corrupt):
            self.engine.reader.records(topic, [seq, 1])

    def churn(self) -> None:
        """Work off another queue until every segment there is has been trimmed away."""
        last = self.session.log.segments()[-1].number
        for _ in range(200):
            run.produce(self.engine, "busy", [b"x" * 1500], config={"type": "queue"})
            run.claim(self.engine, "busy", node="w", auto_ack=True)
            self.session.sync()
            try:
                self.session.trim()
            except Corrupt:  # the disk refuses: give it time
                self.clock.advance(trim.PATIENCE_MS)
            if self.session.log.segments()[0].number > last:
                break
        assert self.session.log.segments()[0].number > last, "trimming has stopped"
        assert len(self.session.log.segments()) < 8
        invariants(self.engine.state)
        check_fold(self.engine)

    def look(self, name: str) -> dict[str, Any]:
        """Everything that only looks at a queue; none of it may fail. Returns the counts."""
        engine = self.engine
        for state in ("ready", "in_flight", "delayed", "parked"):
            run.jobs(engine, name, state=state)
        run.leases(engine, name)
        run.strip(engine, name)
        engine.meters_of(name)
        counts = run.topic_info(engine, name).queue
        assert counts is not None
        return asdict(counts)


def refuse_reads(disk: SimDisk, name: str, start: int, end: int) -> None:
    """Let reads that begin in a range of a file fail with EIO, and others end before it, as a bad sector does."""
    pread, bad = disk.pread, disk._inodes[name]

    def reading(file: int, count: int, offset: int) -> bytes:
        if disk._files[file] is bad:
            if start <= offset < end:
                raise OSError(5, "Input/output error")
            if offset < start:
                count = min(count, start - offset)
        return pread(file, count, offset)

    disk.pread = reading  # type: ignore[method-assign]


def make(name: str = "q", *puts: Sequence[bytes | Record], type: str = "queue", **config: Any) -> World:
    world = World()
    run.put_topic(world.engine, name, {"type": type, **config})
    for put in puts:
        run.produce(world.engine, name, put)
    return world


# Weights


def test_what_cannot_be_read_weighs_its_share_of_the_frame() -> None:
    world = make("q", [b"a" * 10, b"b" * 20, b"c" * 30], [b"whole"])
    topic = world.engine.state.topics["q"]
    world.harm("q", 2, how="flip")
    topic, reader = world.engine.state.topics["q"], world.engine.reader
    assert list(reader.sizes(topic, 1, 5)) == [(1, 20), (2, 20), (3, 20), (4, 5)]
    assert reader.weigh(topic, [2, 1]) == 20
    assert reader.weigh(topic, [1, 1, 3, 2]) == 45
    for seq in (2, 1, 3):
        run.delete_records(world.engine, "q", seqs=[seq])
    assert (topic.count, topic.bytes) == (1, 5), "acks one by one take no more than the frame weighs"
    invariants(world.engine.state)


def test_a_topic_never_weighs_less_than_nothing() -> None:
    """The heavy record went before the frame decayed: the guess for the light one is too much."""
    world = make("q", [b"h" * 500, b"l"], [b"z"])
    run.delete_records(world.engine, "q", seqs=[1])
    world.harm("q", 2, how="flip")
    run.delete_records(world.engine, "q", seqs=[2])
    topic = world.engine.state.topics["q"]
    assert (topic.count, topic.bytes) == (1, 0)
    invariants(world.engine.state)
    run.delete_records(world.engine, "q", seqs=[3])
    invariants(world.engine.state)


def test_too_few_file_handles_are_no_damage() -> None:
    """Overloaded: the same request works later; nothing was guessed."""
    world = make("q", [b"a" * 10, b"b" * 30])
    world.reopen()
    topic, disk = world.engine.state.topics["q"], world.session.disk
    pread = disk.pread

    def scarce(file: int, count: int, offset: int) -> bytes:
        raise OSError(24, "Too many open files")

    disk.pread = scarce  # type: ignore[method-assign]
    with pytest.raises(Overloaded):
        world.engine.reader.weigh(topic, [2, 1])
    disk.pread = pread  # type: ignore[method-assign]
    assert world.engine.reader.weigh(topic, [2, 1]) == 30


def test_the_tables_that_are_kept_are_bounded() -> None:
    world = make("q", *([b"a", b"bb"] for _ in range(12)))
    world.engine.reader.tables_max = 4
    topic = world.engine.state.topics["q"]
    for first in range(1, 24, 2):
        assert world.engine.reader.weigh(topic, [first, 1]) == 1
        assert len(world.engine.reader._tables) <= 4
    assert len(world.engine.reader._tables) == 4


# Working on


@pytest.mark.parametrize("how", HARMS)
def test_a_finished_job_whose_frame_decayed_is_acked_and_nacked(how: str) -> None:
    world = make("q", [b"1", b"2", b"3"], [b"4"], max_deliveries=5)
    assert run.claim(world.engine, "q", node="w", max_count=4).reply.seqs == [1, 2, 3, 4]
    world.harm("q", 1, how=how)
    assert run.ack(world.engine, "q", node="w", seqs=[1]).reply.count == 1
    assert run.nack(world.engine, "q", node="w", seqs=[2]).reply.count == 1
    assert run.nack(world.engine, "q", node="w", seqs=[3], dead=True).reply.count == 1
    assert world.look("q")["in_flight"] == 1
    invariants(world.engine.state)


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("max_count", [1, 2, 10])
def test_a_claim_goes_on_behind_the_jobs_that_it_parks(how: str, max_count: int) -> None:
    world = make("q", [b"bad", b"bad"], [b"good"])
    world.harm("q", 1, how=how)
    assert run.claim(world.engine, "q", node="w", max_count=max_count).reply.seqs == [3]
    assert world.look("q")["parked"] == 2
    assert all(str(item.reason).startswith("unreadable") for item in run.jobs(world.engine, "q", state="parked").items)
    with pytest.raises(Corrupt):
        run.job(world.engine, "q", 1)
    assert run.delete_records(world.engine, "q", seqs=[1, 2]).reply.deleted == 2


def test_a_claim_buries_a_bounded_number_of_unreadable_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole stretch is damaged: one claim parks some of it and has those who wait looked at again."""
    monkeypatch.setattr("tenure.core.decide.claim.LETTERS_MAX", 4)
    world = make("q", [b"bad"] * 10, [b"good"])
    world.harm("q", 1, how="flip")
    found = [run.claim(world.engine, "q", node="w").reply.seqs for _ in range(3)]
    assert found == [[], [], [11]]
    assert world.engine.changed_topics
    assert world.engine.metrics.dead_lettered == world.look("q")["dead_lettered"] == 10


@pytest.mark.parametrize("how", HARMS)
def test_a_read_serves_what_is_in_front_of_the_damage_and_names_what_to_skip(how: str) -> None:
    world = make("log", [b"1"], [b"2", b"3"], [b"4"], [b"5"], type="log")
    world.harm("log", 3, how=how)
    before = run.diff(world.engine, "log")
    assert (datas(before.records), before.next_from_seq, before.caught_up) == ([b"1"], 1, False)
    with pytest.raises(Corrupt) as refused:
        run.diff(world.engine, "log", from_seq=1)
    assert (refused.value.detail["first_seq"], refused.value.detail["last_seq"]) == (2, 3)
    assert refused.value.detail["file"]
    behind = run.diff(world.engine, "log", from_seq=refused.value.detail["next_from_seq"])
    assert (datas(behind.records), behind.caught_up) == ([b"4", b"5"], True)


def test_a_tombstone_in_front_of_the_damage_is_told_first() -> None:
    world = make("log", *([b"%d" % number] for number in range(1, 6)), type="log", cap_records=3)
    world.harm("log", 3, how="flip")
    gap = run.diff(world.engine, "log")
    assert gap.tombstone is not None
    assert (gap.tombstone.gap_to, gap.records, gap.next_from_seq) == (2, [], 2)
    with pytest.raises(Corrupt):
        run.diff(world.engine, "log", from_seq=2)
    assert datas(run.diff(world.engine, "log", from_seq=3).records) == [b"4", b"5"]


# Caps and time to live


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_damaged_record_is_evicted_when_its_time_has_come(how: str, restart: str) -> None:
    """Every command on the topic works before, at and after that time; produce does not raise after it appended."""
    world = make("q", [b"bad"], ttl_ms=10_000)
    world.clock.advance(5_000)
    run.produce(world.engine, "q", [b"good"])
    world.harm("q", 1, how=how)
    assert world.look("q")["ready"] == 2
    assert run.topic_info(world.engine, "q").queue.oldest_ready_ms == 5_000  # type: ignore[union-attr]
    world.clock.advance(6_000)
    produced = run.produce(world.engine, "q", [b"more"]).reply
    assert (produced.first_seq, produced.head_seq) == (3, 3)
    assert world.look("q")["ready"] == 2
    assert datas(run.diff(world.engine, "q").records) == [b"good", b"more"]
    world.churn()
    world.reopen(checkpoint=restart == "checkpoint")
    assert run.claim(world.engine, "q", node="w", max_count=9).reply.seqs == [2, 3]


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("config", [{"cap_records": 3}, {"cap_bytes": 60}], ids=["records", "bytes"])
def test_a_cap_takes_damaged_records_in_their_turn(how: str, config: dict[str, Any]) -> None:
    world = make("log", [b"." * 20] * 2, [b"." * 20], type="log", **config)
    world.harm("log", 1, how=how)
    for number in range(4, 8):
        assert run.produce(world.engine, "log", [b"%020d" % number]).reply.first_seq == number
    topic = world.engine.state.topics["log"]
    assert (topic.count, topic.bytes) == (3, 60)
    assert seqs(run.diff(world.engine, "log", from_seq=4).records) == [5, 6, 7]
    world.churn()
    world.reopen(checkpoint=False)
    assert world.engine.state.topics["log"].bytes == 60


@pytest.mark.parametrize("error", [Closed, Overloaded, Indeterminate])
@pytest.mark.parametrize("config", [{"cap_records": 1}, {"ttl_ms": 10_000}], ids=["cap", "ttl"])
def test_an_eviction_that_cannot_be_logged_never_fails_a_command(
    error: type[TenureError], config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("log", [b"1"], type="log", **config)
    world.clock.advance(20_000)
    commit_all = Engine.commit_all

    def failing(engine: Engine, events: list[Event]) -> int:
        if any(isinstance(event, Evicted) for event in events):
            raise error("no")
        return commit_all(engine, events)

    monkeypatch.setattr(Engine, "commit_all", failing)
    assert run.produce(world.engine, "log", [b"2"]).reply.first_seq == 2
    assert datas(run.diff(world.engine, "log").records) == [b"1", b"2"]
    assert run.topic_info(world.engine, "log").count == 2
    monkeypatch.undo()
    topic = world.engine.state.topics["log"]
    run.evict_over_ttl(world.engine, topic, world.engine.now())
    run.evict_over_cap(world.engine, topic, world.engine.now())
    assert topic.count == 1, "it is made good later"


# Dead letters


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("strategy", ["skip", "block_and_dlq"])
def test_only_the_unreadable_ones_of_a_pass_of_dead_letters_are_parked(how: str, strategy: str) -> None:
    world = make("q", [b"1"], [b"bad", b"bad"], [b"4"], max_deliveries=1, dead_letter="dead", dlq_strategy=strategy)
    run.claim(world.engine, "q", node="w", max_count=4, lease_ms=1_000)
    world.harm("q", 2, how=how)
    world.clock.advance(60_000)
    assert run.claim(world.engine, "q", node="w").reply.seqs == []
    assert datas(run.diff(world.engine, "dead").records) == [b"1", b"4"]
    parked = {item.seq: item.reason for item in run.jobs(world.engine, "q", state="parked").items}
    assert sorted(parked) == ([2, 3] if strategy == "skip" else [1, 2, 3, 4])
    assert all(str(parked[seq]).startswith("max_deliveries; unreadable: ") for seq in (2, 3))
    world.churn()
    with pytest.raises(Corrupt):
        run.job(world.engine, "q", 2)
    assert run.delete_records(world.engine, "q", before_seq=9).reply.count == 0


@pytest.mark.parametrize("how", HARMS)
def test_a_redrive_passes_over_letters_that_cannot_be_read(how: str) -> None:
    world = make("q", [b"1"], [b"2"], [b"3"], dead_letter="dead")
    for seq in (1, 2, 3):
        run.claim(world.engine, "q", node="w")
        run.nack(world.engine, "q", node="w", seqs=[seq], dead=True)
    world.harm("dead", 2, how=how)
    assert run.redrive(world.engine, "dead").reply.seqs == [1, 3]
    assert datas(run.claim(world.engine, "q", node="w", max_count=9).reply.jobs) == [b"1", b"3"]
    assert world.engine.state.topics["dead"].count == 1, "it stays"


@pytest.mark.parametrize("how", HARMS)
def test_a_redrive_by_tag_passes_over_parked_jobs_that_cannot_be_read(how: str) -> None:
    world = make("q", *([Record(data=b"%d" % seq, tag="t")] for seq in (1, 2, 3)), dlq_strategy="block")
    run.claim(world.engine, "q", node="w", max_count=3)
    run.nack(world.engine, "q", node="w", seqs=[1, 2, 3], dead=True)
    world.harm("q", 2, how=how)
    assert run.redrive(world.engine, "q", match=["tag", "Eq", "t"]).reply.seqs == [1, 3]


# Routers


@pytest.mark.parametrize("how", HARMS)
def test_a_router_passes_over_damage_and_counts_it_as_missed(how: str) -> None:
    world = World()
    run.put_router(world.engine, "r", source="from", dest="to")
    run.produce(world.engine, "from", [b"1"])
    run.produce(world.engine, "from", [b"bad", b"bad"])
    run.produce(world.engine, "from", [b"4"])
    world.harm("from", 2, how=how)
    world.session.forward("from")
    router = run.get_router(world.engine, "r")
    assert (router.cursor, router.forwarded, router.missed) == (4, 2, 2)
    found = run.diff(world.engine, "to")
    assert datas(found.records) == [b"1", b"4"]
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.missed_estimate) == ("source_trim", 2)
    world.churn()
    run.produce(world.engine, "from", [b"5"])
    world.session.forward("from")
    assert datas(run.diff(world.engine, "to").records) == [b"1", b"4", b"5"]


# Trimming behind it


def states(world: World) -> World:
    """One frame with a job acked, one in flight, one delayed, one parked, one ready; and healthy frames around it."""
    engine = world.engine
    run.put_topic(engine, "q", {"type": "queue", "dlq_strategy": "block", "lease_ms": 10**7})
    run.produce(engine, "q", [b"before"])
    run.produce(engine, "q", [b"%d" % seq * 50 for seq in range(2, 7)])
    run.produce(engine, "q", [b"behind"])
    run.claim(engine, "q", node="w", max_count=5)
    run.ack(engine, "q", node="w", seqs=[2])
    run.nack(engine, "q", node="w", seqs=[4], delay_ms=10**6)
    run.nack(engine, "q", node="w", seqs=[5], dead=True, reason="poison")
    return world


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("restart", [*RESTARTS, None])
@pytest.mark.parametrize("turns", [1, 2])
def test_unreadable_jobs_outlive_their_segment_where_they_stood(
    how: str, restart: str | None, turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = states(World())
    world.harm("q", 3, how=how)
    before, weight = world.look("q"), world.engine.state.topics["q"].bytes
    for _ in range(turns):
        world.churn()
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [(record.name, "topic q: the payload of seqs 3..6 is lost" in record.message) for record in told] == [
        ("tenure.broker", True)
    ], "said once"
    if restart is not None:
        world.reopen(checkpoint=restart == "checkpoint")
    engine = world.engine
    assert world.look("q") | {"oldest_ready_ms": 0} == before
    assert engine.state.topics["q"].bytes == weight
    assert sum(isinstance(event, Carried) and event.lost is not None for event in events_of(engine)) == 1
    for seq in (3, 4, 5, 6):
        with pytest.raises(Corrupt) as refused:
            run.job(engine, "q", seq)
        assert refused.value.code == "unreadable"
    assert run.ack(engine, "q", node="w", seqs=[1, 3]).reply.count == 2
    assert datas(run.claim(engine, "q", node="w", max_count=9).reply.jobs) == [b"behind"]
    assert sorted(item.seq for item in run.jobs(engine, "q", state="parked").items) == [5, 6]
    assert run.delete_records(engine, "q", seqs=[4, 5, 6]).reply.deleted == 3
    assert engine.state.topics["q"].bytes == len(b"behind")
    invariants(engine.state)
    check_fold(engine)


def test_unreadable_neighbours_are_carried_together() -> None:
    """A bad stretch of single puts must not weigh more rewritten than it did."""
    world = make("log", *([b"%03d" % number] for number in range(30)), type="log")
    for seq in range(5, 25):
        world.harm("log", seq, how="flip")
    world.churn()
    lost = [event for event in events_of(world.engine) if isinstance(event, Carried) and event.lost is not None]
    assert sum(len(event.seqs) for event in lost) == 20
    assert len(lost) <= 2
    assert seqs(run.diff(world.engine, "log").records) == [1, 2, 3, 4]
    assert seqs(run.diff(world.engine, "log", from_seq=24).records) == list(range(25, 31))


def test_a_read_that_the_disk_refuses_for_a_while_loses_nothing() -> None:
    """Trimming waits a minute before it gives up what may be whole, and the log then goes on as if nothing happened."""
    world = make("log", [b"1"], [b"2"], type="log")
    world.harm("log", 2, how="EIO")
    topic, engine, disk = world.engine.state.topics["log"], world.engine, world.session.disk
    for waited_ms in (0, trim.PATIENCE_MS - 1):
        world.clock.advance(waited_ms)
        with pytest.raises(Corrupt):
            trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    del disk.pread
    world.churn()
    assert datas(run.diff(engine, "log").records) == [b"1", b"2"]


def test_a_segment_that_the_disk_refuses_is_waited_for_once_and_not_frame_by_frame() -> None:
    world = make("log", [b"1"], [b"2"], type="log")
    world.reopen()
    topic, engine = world.engine.state.topics["log"], world.engine
    [entry] = topic.frame_index
    refuse_reads(world.session.disk, segment_name(entry.segment), entry.offsets[0], entry.offsets[1] + 41)
    with pytest.raises(Corrupt):
        trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    world.clock.advance(trim.PATIENCE_MS)
    trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    del world.session.disk.pread
    [lost] = [event for event in events_of(engine) if isinstance(event, Carried)]
    assert (lost.seqs, lost.tss_ms, lost.blobs) == ([1, 2], [0, 0], b"")


@pytest.mark.parametrize("how", HARMS)
def test_lost_records_still_have_their_weight_and_their_age(how: str) -> None:
    """Carried without a payload, they weigh what they did and are evicted when their time has come."""
    world = make("log", [b"bad"] * 2, type="log", ttl_ms=10_000)
    world.harm("log", 1, how=how)
    world.churn()
    topic = world.engine.state.topics["log"]
    assert (topic.count, topic.bytes, world.engine.reader.weigh(topic, [1, 2])) == (2, 6, 6)
    world.clock.advance(11_000)
    assert run.topic_info(world.engine, "log").count == 0


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("turns", [1, 2])
def test_salvage_lists_lost_records_and_copies_none_of_them(how: str, turns: int) -> None:
    world = states(World())
    world.harm("q", 3, how=how)
    for _ in range(turns):
        world.churn()
    world.session.sync()
    target = SimDisk(2)
    report = rebuild(world.session.disk.crash("lost"), target, clock=world.clock, settings=SETTINGS)
    [kept] = [topic for topic in report.topics if topic.topic == "q"]
    assert (kept.lost, kept.records, report.complete) == ([(3, 6)], 2, False)
    saved = Session(target, Ledger(), world.clock, settings=SETTINGS)
    assert records(saved.engine, "q") == [b"before", b"behind"]


def test_salvage_keeps_a_record_that_another_frame_still_has() -> None:
    """The disk refused one read, the record was carried as lost, and its segment has not been dropped yet."""
    world = make("log", [b"1"], type="log")
    world.harm("log", 1, how="EIO")
    topic, engine = world.engine.state.topics["log"], world.engine
    with pytest.raises(Corrupt):
        trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    world.clock.advance(trim.PATIENCE_MS)
    trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    world.session.sync()
    disk = world.session.disk.crash("lost")
    with pytest.raises(Corrupt):
        run.diff(Session(disk.kill(), Ledger(), world.clock, settings=SETTINGS).engine, "log")
    report = rebuild(disk, SimDisk(2), clock=world.clock, settings=SETTINGS)
    assert [topic.lost for topic in report.topics] == [[]]


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_restart_gives_the_state_that_was_left(restart: str) -> None:
    """Guessed weights stand in the events: replayed, with or without a checkpoint, they give the same state."""
    world = states(World())
    world.harm("q", 3, how="flip")
    run.ack(world.engine, "q", node="w", seqs=[3])
    run.delete_records(world.engine, "q", seqs=[6])
    world.churn()
    expected, now = picture(world.engine)[1:], world.engine.now()
    world.reopen(checkpoint=restart == "checkpoint")
    assert picture_of(world.engine.state, now)[1:] == expected


def test_a_frame_that_is_kept_in_memory_needs_no_disk() -> None:
    """What was just appended is carried whole although its bytes have decayed meanwhile."""
    engine = Engine(MemoryLog(segment_bytes=2048), clock=ManualClock(), settings=Settings(segment_bytes=2048))
    engine.recover()
    run.produce(engine, "log", [b"1"])
    topic = engine.state.topics["log"]
    engine.log.read = _unreadable  # type: ignore[method-assign]
    trim._carry_frames(engine, topic, topic.frame_index[0], trim._Budget(engine))
    del engine.log.read
    assert datas(Reader(engine.log, 0).records(topic, [1, 1])) == [b"1"]


def _unreadable(location: int) -> tuple[int, int, bytes]:
    raise Corrupt("no", location=location)
