"""What a queue owes its users when things go wrong around it: faults 38-44."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import msgspec
import pytest

from tenure import Broker
from tenure.broker.durability import trim
from tenure.core.events import Appended, DeadLettered, decode
from tenure.core.fold import fold
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.errors import Closed, Conflict, Corrupt, LeaseLost, NotFound
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.test_damage import live
from tests.faults.world import SETTINGS, Ledger, Session, check_fold, events_of, picture, picture_of, records, survive
from tests.kit import run

LEASE_MS = 1_000


def opened(**config: Any) -> Session:
    session = Session(SimDisk(1), Ledger(), ManualClock())
    session.queue(lease_ms=LEASE_MS, **config)
    return session


def filled(count: int = 4, **config: Any) -> Session:
    session = opened(**config)
    session.produce(count)
    session.sync()
    return session


def judged(session: Session, *, copies: int = 1) -> None:
    check_fold(session.engine)
    session.sync()
    survive(session.disk.crash("lost"), session.ledger, deepcopy(session.clock), power_lost=True, copies=copies)


@pytest.mark.parametrize("restart", [False, True])
def test_fault_38_a_dead_worker_s_job_comes_back_with_one_delivery_more_and_one_holder(restart: bool) -> None:
    session = filled(2)
    first = session.claim(1, node="dies")
    assert first.deliveries(1) == 1
    session.sync()
    for life in (2, 3, 4):
        session.clock.advance(LEASE_MS + 1)
        if restart:
            session = Session(session.disk.kill(), Ledger(), session.clock)
        claim = session.claim(1, node=f"life-{life}")
        assert claim.seqs == [1], "work that came back goes first"
        assert claim.deliveries(1) == life
        assert session.claim(1, node="another").seqs in ([2], []), "one live holder"
        topic = session.engine.state.topics["q"]
        assert topic.queue is not None
        assert (lease := topic.queue.holder(1)) is not None
        assert lease.node == f"life-{life}"
        session.write()
    check_fold(session.engine)


def test_fault_39_poison_is_moved_in_one_log_write_with_its_removal() -> None:
    """Fault 39: cut the log at every byte of that write; the job is in exactly one of the two places."""
    session = filled(1, max_deliveries=2, dead_letter="dead")
    for _ in range(2):
        assert session.claim(1).deliveries(1) in (1, 2)
        session.clock.advance(LEASE_MS + 1)
    session.sync()
    start = session.log.position().offset
    assert not session.claim(1).jobs
    session.write()
    end = session.log.position().offset
    batches = [
        [type(decode(kind, body)) for kind, _, location, body in session.log.replay() if location & 0xFFFFFFFF >= start]
    ]
    assert Appended in batches[0]
    assert DeadLettered in batches[0]
    name = "segments/0000000001.log"
    content = session.disk.content(name)
    for cut in range(start, end + 1):
        world = session.disk.kill()
        world.put(name, content[:cut] + bytes(SETTINGS.segment_bytes - cut))
        again = Session(world, Ledger(), deepcopy(session.clock))
        in_queue = again.engine.state.topics["q"].count
        dead = again.engine.state.topics.get("dead")
        in_dead = dead.count if dead is not None else 0
        assert in_queue + in_dead == 1, f"cut at {cut}: {in_queue} in the queue, {in_dead} in the dead letters"
        assert (cut == end) == bool(in_dead)
    judged(session)


@pytest.mark.parametrize("strategy", ["skip", "block", "block_and_dlq"])
def test_fault_39_poison_is_never_dropped_whatever_the_strategy(strategy: str) -> None:
    session = filled(3, max_deliveries=1, dead_letter="dead", dlq_strategy=strategy)
    session.claim(2)
    session.clock.advance(LEASE_MS + 1)
    assert session.claim(10).seqs == [3]
    session.sync()
    info = run.topic_info(session.engine, "q").queue
    assert info is not None
    assert info.dead_lettered == 2
    assert info.parked == (0 if strategy == "skip" else 2)
    if strategy != "block":
        letter = run.diff(session.engine, "dead").records[0]
        assert letter.meta is not None
        assert msgspec.json.decode(letter.meta) == {
            "$dead_letter_from": "q",
            "$dead_letter_deliveries": 1,
            "$dead_letter_src_seq": 1,
            "$dead_letter_reason": "max_deliveries",
        }
    judged(session, copies=1 if strategy != "block_and_dlq" else 3)


def test_fault_39_a_full_dead_letter_topic_parks_the_job_instead_of_losing_it() -> None:
    session = filled(2, max_deliveries=1, dead_letter="dead")
    session.call(run.put_topic, "dead", {"cap_records": 1, "discard": "reject", "durability": "fsync"})
    session.claim(2)
    session.clock.advance(LEASE_MS + 1)
    assert not session.claim(2).jobs
    queue = session.engine.state.topics["q"].queue
    assert queue is not None
    session.sync()
    assert (records_of(session, "dead"), sorted(queue.parked)) == ([1], [2]), "as many as it has room for"
    check_fold(session.engine)
    assert session.engine.state.topics["q"].count + session.engine.state.topics["dead"].count == 2


def records_of(session: Session, name: str) -> list[int]:
    return [record.seq for record in run.diff(session.engine, name).records]


def test_fault_40_an_unknown_expired_foreign_or_reused_lease_is_skipped_without_an_event() -> None:
    session = filled(4)
    mine = session.claim(1)
    foreign = session.claim(1, node="other")
    gone = session.claim(1)
    session.ack(gone)
    session.write()
    before = events_of(session.engine)
    for seqs, lease_ids in (
        ([99], None),
        (foreign.seqs, None),
        (gone.seqs, None),
        (mine.seqs, ["lease_ffff"]),
        (mine.seqs, ["nonsense"]),
        (mine.seqs, [foreign.lease_id]),
        (mine.seqs, [gone.lease_id]),
        ([4], None),
    ):
        named = {"node": "w", "seqs": seqs, "lease_ids": lease_ids}
        assert run.ack(session.engine, "q", **named).reply.skipped == seqs  # type: ignore[arg-type]
        assert run.nack(session.engine, "q", **named).reply.skipped == seqs  # type: ignore[arg-type]
        assert run.extend(session.engine, "q", lease_ms=100, **named).reply.skipped == seqs  # type: ignore[arg-type]
        if seqs not in (gone.seqs, [99]):
            with pytest.raises(LeaseLost) as lost:
                run.ack(session.engine, "q", strict=True, **named)  # type: ignore[arg-type]
            assert lost.value.code == "precondition_failed"
            assert lost.value.detail["skipped"] == seqs
        else:
            assert run.ack(session.engine, "q", strict=True, **named).reply.skipped == seqs  # type: ignore[arg-type]
    assert run.ack(session.engine, "q", node="w", lease_id=foreign.lease_id).reply.count == 0
    assert events_of(session.engine) == before, "nothing was written"
    judged(session)


async def test_fault_41_a_damaged_or_closed_broker_says_so_and_never_answers_empty() -> None:
    disk, clock = SimDisk(1), ManualClock()
    broker = await Broker.open(disk, clock=clock, settings=SETTINGS)
    await broker.put_topic("q", {"type": "queue", "durability": "fsync"})
    await broker.produce("q", [b"1", b"2"])
    await broker.produce("log", [b"1", b"2"])
    place = broker._engine.log.position().offset
    await broker.produce("log", [b"3"])
    with pytest.raises(NotFound):
        broker.claim("nowhere", node="w")
    with pytest.raises(Conflict):
        broker.claim("log", node="w")
    await broker.close()
    for refused in (
        lambda: broker.claim("q", node="w"),
        lambda: broker.produce("q", [b"1"]),
        lambda: broker.diff("q"),
    ):
        with pytest.raises(Closed):
            refused()
    world = disk.crash("lost")
    async with await Broker.open(world, clock=clock, settings=SETTINGS) as again:
        world.flip_bit("segments/0000000001.log", (place + 50) * 8)
        before = await again.diff("log")
        assert [record.seq for record in before.records] == [1, 2]
        assert not before.caught_up, "there is more, and it is not served"
        with pytest.raises(Corrupt) as refused_read:
            await again.diff("log", from_seq=2)
        assert refused_read.value.detail["next_from_seq"] == 3
        assert (await again.claim("q", node="w", max_count=10)).seqs == [1, 2], "the other topic is served"
    for name in world.names():
        if name.endswith(".checkpoint"):  # with one, the bytes before it are read only when somebody asks for them
            world.remove(name)
    with pytest.raises(Corrupt):
        await Broker.open(world.crash("lost"), clock=clock, settings=SETTINGS)


def test_fault_41_a_claim_on_damaged_jobs_parks_them_in_sight() -> None:
    """Fault 41: the queue does not look empty: the damaged jobs are counted and listed with the reason."""
    session = filled(1)
    place = session.log.position().offset
    session.produce(2)
    session.close()
    session = Session(session.disk, deepcopy(session.ledger), session.clock)
    session.disk.flip_bit("segments/0000000001.log", (place + 60) * 8)
    assert session.claim(10).seqs == [1]
    info = run.topic_info(session.engine, "q")
    assert info.count == 3
    assert info.queue is not None
    assert info.queue.parked == 2
    listed = run.jobs(session.engine, "q", state="parked").items
    assert [job.seq for job in listed] == [2, 3]
    assert all("unreadable" in str(job.reason) for job in listed)


def test_fault_42_trimming_removes_nothing_unacknowledged_and_respects_leases_and_readers() -> None:
    session = opened()
    session.produce(3, size=300)
    held = session.ledger.payloads(0)
    session.sync()
    claim = session.claim(1, lease_ms=500_000)
    held += [job.data for job in claim.jobs]
    reader = run.diff(session.engine, "q", limit=1)
    for _ in range(40):
        session.produce(2, size=300)
        session.sync()
        done = session.claim(2)
        session.ack(done)
        session.trim()
        session.sync()
    assert session.log.segments()[0].number > 5, "old segments are gone"
    assert len(session.log.segments()) < 10
    left = records(session.engine, "q")
    assert held[0] in left
    assert session.engine.state.topics["q"].count == len(left) == 3
    rest = run.diff(session.engine, "q", from_seq=reader.next_from_seq)
    assert rest.tombstone is None, "what was acked is no loss"
    session.ack(claim)
    judged(session)


def test_fault_42_a_cap_evicts_only_what_nobody_holds_counted_and_with_a_tombstone() -> None:
    session = opened(cap_records=5)
    session.produce(5)
    session.sync()
    claim = session.claim(2)
    evicted = session.engine.metrics.evicted
    session.ledger.released.update(records(session.engine, "q"))
    session.ledger.released.update(session.produce(4))
    session.sync()
    assert session.engine.metrics.evicted - evicted == 4
    left = [record.seq for record in run.diff(session.engine, "q").records]
    assert left == [1, 2, 7, 8, 9], "leased jobs stay, the oldest others go"
    tombstone = run.diff(session.engine, "q", from_seq=0).tombstone
    assert tombstone is not None
    assert tombstone.reason == "cap"
    assert tombstone.gap_to == 6
    session.ack(claim)
    judged(session)


def test_fault_42_a_ttl_evicts_only_what_nobody_holds() -> None:
    session = opened(ttl_ms=5_000)
    session.produce(3)
    session.sync()
    claim = session.claim(1, lease_ms=60_000)
    session.ledger.released.update(records(session.engine, "q"))
    session.clock.advance(6_000)
    assert not session.claim(5, node="other").jobs
    assert [record.seq for record in run.diff(session.engine, "q").records] == [1]
    tombstone = run.diff(session.engine, "q").tombstone
    assert tombstone is not None
    assert tombstone.reason == "ttl"
    session.ack(claim)
    check_fold(session.engine)


@pytest.mark.parametrize("seed", range(25))
def test_fault_43_replay_twice_in_parts_and_with_a_checkpoint_anywhere_gives_equal_states(seed: int) -> None:
    random, session = Random(seed), Session(SimDisk(seed), Ledger(), ManualClock())
    for _ in range(3):
        live(session, random)
    session.write()
    frames = list(session.log.replay())
    now = session.engine.now()
    expected = picture(session.engine)

    def folded(state: State, part: list[tuple[int, int, int, bytes]]) -> State:
        for kind, _, location, body in part:
            fold(state, decode(kind, body), location)
        return state

    assert picture_of(folded(State(), frames), now) == expected
    assert picture_of(folded(State(), list(session.log.replay())), now) == expected
    for cut in sorted({0, len(frames), *(random.randrange(len(frames) + 1) for _ in range(12))}):
        first = folded(State(), frames[:cut])
        if first.orphans:
            continue  # a checkpoint is never taken before every base is known
        resumed = folded(load_checkpoint(dump_checkpoint(first)), frames[cut:])
        assert picture_of(resumed, now) == expected, f"with a checkpoint after frame {cut}"


@pytest.mark.parametrize("seed", range(10))
def test_fault_44_a_soak_through_crashes_loses_nothing_in_front_in_the_middle_or_at_the_end(seed: int) -> None:
    """Fault 44 on the simulated disk, with everything that moves records; real processes in tests/acceptance."""
    random, ledger, clock = Random(1000 + seed), Ledger(), ManualClock()
    disk = SimDisk(seed)
    for _ in range(12):
        session = Session(disk, ledger, clock)
        live(session, random)
        if random.random() < 0.5 and "dead" in session.engine.state.topics:
            session.call(run.redrive, "dead", limit=3)
        trim_some(session)
        power_lost = random.random() < 0.5
        disk = disk.crash("any", seed=random.getrandbits(32)) if power_lost else disk.kill()
        ledger.close_books(power_lost=power_lost)
    survive(disk.kill(), ledger, clock, power_lost=True)


def trim_some(session: Session) -> None:
    """Give back whatever is worth it, in small steps, with a produce between them."""
    while trim.trim_due(session.engine):
        session.call(trim.trim_step)
        payloads = session.ledger.payloads(1)
        batch = session.call(run.produce, "q", payloads).batch
        session.ledger.open.append((batch, "produce", payloads))
