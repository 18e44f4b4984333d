"""What lies on the disk is not what was written: torn, out of order, flipped, missing, swapped or of another time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random

import msgspec
import pytest

from tenure import Broker
from tenure.broker.salvage.rebuild import rebuild
from tenure.contract.replies import Grant
from tenure.core.events import KINDS, Claimed
from tenure.errors import Corrupt
from tenure.log import checkpoint
from tenure.log.frame import HEADER_BYTES as SEAL_BYTES
from tenure.log.segment import HEAD_BYTES, segment_name
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import CrashMode, PowerLoss, SimDisk
from tests.faults.scenarios import SCENARIOS, old_segments, started
from tests.faults.world import (
    SETTINGS,
    Ledger,
    Session,
    check_fold,
    drain,
    picture,
    picture_of,
    records,
    refold,
    survive,
)
from tests.kit import run

World = tuple[SimDisk, Ledger, ManualClock]


def opened(seed: int = 1) -> Session:
    session = Session(SimDisk(seed), Ledger(), ManualClock())
    session.queue(lease_ms=1000)
    session.produce(3)
    session.sync()
    session.ack(session.claim(1))
    session.sync()
    return session


def reopened(disk: SimDisk, session: Session) -> Session:
    """Open a world in which only what was synced is promised."""
    ledger = deepcopy(session.ledger)
    ledger.close_books(power_lost=True)
    return Session(disk, ledger, deepcopy(session.clock))


def test_fault_2_power_loss_drops_every_unsynced_byte_and_nothing_else() -> None:
    session = opened()
    kept = session.ledger.sent - session.ledger.released
    session.produce(5)
    session.claim(2)
    session.write()
    world = session.disk.crash("lost")
    assert set(records(reopened(world, session).engine, "q")) == kept
    survive(session.disk.crash("lost"), session.ledger, session.clock, power_lost=True)


@pytest.mark.parametrize("seed", range(150))
def test_fault_1_2_random_lives_with_many_crashes_lose_nothing(seed: int) -> None:
    """Faults 1, 2, 44: produce, claim, ack, nack, trim, checkpoint in any order, then a crash, eight times over."""
    random, ledger, clock = Random(seed), Ledger(), ManualClock()
    disk = SimDisk(seed)
    for _ in range(8):
        session = Session(disk, ledger, clock)
        live(session, random)
        power_lost = random.random() < 0.7
        disk = disk.crash("any", seed=random.getrandbits(32)) if power_lost else disk.kill()
        if random.random() < 0.3:
            clock.reboot(off_ms=random.choice((0, 500, 5000)))
        survive(disk.kill(), ledger, deepcopy(clock), power_lost=power_lost)
        ledger.close_books(power_lost=power_lost)


def live(session: Session, random: Random) -> None:
    if "q" not in session.engine.state.topics:
        session.queue(lease_ms=1000, max_deliveries=4, dead_letter="dead")
    held = []
    for _ in range(random.randrange(40)):
        choice = random.random()
        if choice < 0.35:
            session.produce(random.choice((1, 1, 3)), size=random.choice((0, 50, 700)))
        elif choice < 0.55:
            held.append(session.claim(random.choice((1, 2, 5)), node=random.choice("abc")))
        elif choice < 0.70 and held:
            settle(session, held.pop(random.randrange(len(held))), random)
        elif choice < 0.80:
            session.write()
        elif choice < 0.90:
            session.sync()
        elif choice < 0.94:
            session.trim()
        elif choice < 0.96:
            session.checkpoint()
        else:
            session.clock.advance(random.choice((10, 600, 1500)))


def settle(session: Session, claim: Grant, random: Random) -> None:
    """Ack or nack what is still held; what ran out meanwhile is not the caller's any more."""
    queue = session.engine.state.topics["q"].queue
    assert queue is not None
    session.engine.state.pass_time(session.engine.state.topics["q"], session.engine.now())
    if queue.lease(claim.lease) is None:
        return
    if random.random() < 0.7:
        session.ack(claim)
    else:
        session.nack(claim, delay_ms=random.choice((None, 0, 300)))


def test_fault_3_power_loss_right_after_a_birth_leaves_something_that_boots() -> None:
    """Fault 3: the directory, a topic, a segment: after the loss a file is whole or not there, and nothing is cleaned
    by hand.
    """
    worlds = 0

    def crash_all(session: Session) -> None:
        nonlocal worlds
        for mode in ("lost", "torn", "reordered", "kept"):
            for seed in range(20):
                worlds += 1
                world = session.disk.crash(mode, seed=seed)
                survive(world, session.ledger, deepcopy(session.clock), power_lost=True)

    session = Session(SimDisk(1), Ledger(), ManualClock())
    crash_all(session)
    session.queue()
    crash_all(session)
    session.produce(1)
    session.write()
    crash_all(session)
    before = len(session.log.segments())
    while len(session.log.segments()) == before:
        session.produce(1, size=500)
    crash_all(session)
    assert worlds == 320


@pytest.mark.parametrize("mode", ["lost", "torn", "reordered", "kept"])
@pytest.mark.parametrize("name", ["roll", "checkpoint", "trim"])
def test_fault_4_names_that_no_directory_sync_made_durable_are_not_needed(name: str, mode: CrashMode) -> None:
    """Fault 4: power is lost at every directory sync of a roll, a checkpoint and a drop, before it took effect."""
    scenario = next(each for each in SCENARIOS if each.name == name)
    first, books, time = started(scenario, seed=2)
    disk = first.crash("lost", seed=1)
    calls: list[int] = []
    sync_dir = disk.sync_dir

    def noting(name: str) -> None:
        calls.append(disk.operations + 1)
        sync_dir(name)

    disk.sync_dir = noting  # type: ignore[method-assign]
    scenario.story(Session(disk, deepcopy(books), deepcopy(time)))
    assert len(calls) > 2
    for call in calls:
        disk, ledger, clock = first.crash("lost", seed=1), deepcopy(books), deepcopy(time)
        disk.fail_at(call, "crash")
        with pytest.raises(PowerLoss):
            scenario.story(Session(disk, ledger, clock))
        survive(disk.crash(mode, seed=call), ledger, clock, power_lost=True)


def test_fault_3_a_segment_born_without_its_first_batch_still_stands_alone_later() -> None:
    """Fault 3: power goes between a roll and its first write; then every segment before it is dropped."""
    session = Session(SimDisk(1), Ledger(), ManualClock())
    session.queue(lease_ms=1000)
    session.call(run.put_topic, "gone", {})
    session.call(run.delete_topic, "gone")
    session.route("copier", source="log", dest="copied")
    session.sync()
    while len(session.log.segments()) == 1:
        session.produce(1, size=500)
    born = session.log.segments()[-1].number
    sync = session.log.begin_sync()  # publishes the new segment, in which nothing has been written yet
    sync.run()
    session.log.end_sync(sync)
    session = reopened(session.disk.crash("lost"), session)
    assert session.log.segments()[-1].number == born
    while session.log.segments()[0].number < born:
        session.produce(2, size=400)
        session.sync()
        session.ack(session.claim(10))
        session.trim()
    check_fold(session.engine)
    session.sync()
    again = reopened(session.disk.crash("lost"), session)
    assert again.engine.state.routers["copier"].source == "log"
    assert again.engine.state.next_topic_id == session.engine.state.next_topic_id
    survive(session.disk.crash("lost"), session.ledger, session.clock, power_lost=True)


def unsynced(session: Session, count: int) -> list[tuple[int, int]]:
    """Write batches that nobody synced; give the bytes of each in the last segment."""
    places = []
    for _ in range(count):
        start = session.log.position().offset
        session.produce(2)
        session.write()
        places.append((start, session.log.position().offset))
    return places


def last_file(session: Session) -> str:
    return segment_name(session.log.segments()[-1].number)


@pytest.mark.parametrize("cut_file", [False, True], ids=["zeros behind", "file cut short"])
def test_fault_5_a_frame_torn_at_every_length_is_cut_off_and_reported_once(cut_file: bool) -> None:
    session = opened()
    [(start, end)] = unsynced(session, 1)
    name, content = last_file(session), session.disk.content(last_file(session))
    kept = session.ledger.sent - session.ledger.released
    torn = set(sorted(kept, key=lambda payload: int(payload.strip(b'".')))[-2:])
    for cut in range(end - start):
        world = session.disk.kill()
        part = content[: start + cut]
        world.put(name, part if cut_file else part + bytes(SETTINGS.segment_bytes - len(part)))
        first = reopened(world, session)
        assert set(records(first.engine, "q")) == kept - torn
        assert first.log.report is not None
        assert first.log.report.torn_bytes == len(part.rstrip(b"\0")) - start if part[start:].strip(b"\0") else True
        first.close()
        second = reopened(world, session)
        assert second.log.report is not None
        assert second.log.report.torn_bytes == 0, "reported once"
        second.close()
        survive(world, session.ledger, deepcopy(session.clock), power_lost=True)


def test_fault_6_a_hole_before_a_whole_frame_is_torn_and_the_later_frame_never_comes_back() -> None:
    session = opened()
    first, second, third = unsynced(session, 3)
    promised = set(records(session.engine, "q"))
    for hole in (first, second):
        world = session.disk.kill()
        content = bytearray(world.content(last_file(session)))
        content[hole[0] : hole[1]] = bytes(hole[1] - hole[0])
        world.put(last_file(session), bytes(content) + bytes(SETTINGS.segment_bytes - len(content)))
        again = reopened(world, session)
        found = records(again.engine, "q")
        assert len(found) == (2 if hole is first else 4)
        assert set(found) <= set(session.ledger.sent)
        again.produce(1)
        again.close()
        assert len(records(reopened(world, session).engine, "q")) == len(found) + 1, "a later frame was resurrected"
        survive(world.kill(), again.ledger, deepcopy(session.clock), power_lost=True)
    assert third[0] == second[1]
    assert promised == set(records(session.engine, "q"))


def middle(session: Session) -> range:
    """The bits of the first segment's frames that are certainly witnessed: everything before its last batch."""
    return range(HEAD_BYTES * 8, session.log.segments()[0].used_bytes * 8)


def several_segments(seed: int = 1) -> Session:
    session = Session(SimDisk(seed), Ledger(), ManualClock())
    old_segments(session)
    assert len(session.log.segments()) > 2
    return session


def test_fault_7_a_flipped_bit_is_refused_with_its_place_and_salvage_says_what_it_costs() -> None:
    """Fault 7: no start, no silent cut; what is whole can be saved into another directory, the rest is listed."""
    session = several_segments()
    session.log.seal()
    random = Random(7)
    for number in range(60):
        segment = session.log.segments()[number % 3]
        bit = random.randrange(HEAD_BYTES * 8, segment.used_bytes * 8)
        world = session.disk.kill()
        world.flip_bit(segment_name(segment.number), bit)
        before = world.content(segment_name(segment.number))
        with pytest.raises(Corrupt) as refused:
            reopened(world, session)
        assert refused.value.detail["file"] == segment_name(segment.number)
        assert refused.value.detail["offset"] <= bit // 8 < refused.value.detail["end"]
        assert world.content(segment_name(segment.number)) == before, "refused, and yet changed"
        target = SimDisk(number)
        report = rebuild(world.kill(), target, clock=session.clock, settings=SETTINGS).found
        assert [problem for problem in report.problems if problem.last_batch >= problem.first_batch]
        saved = reopened(target, session)
        check_fold(saved.engine)
        assert set(drain(saved.engine, saved.clock)) <= session.ledger.sent


async def test_fault_7_a_broker_does_not_start_on_a_damaged_log() -> None:
    session = several_segments()
    session.close()
    session.disk.flip_bit(segment_name(1), 2000)
    before = {name: session.disk.content(name) for name in session.disk.names()}
    with pytest.raises(Corrupt) as refused:
        await Broker.open(session.disk, clock=session.clock, settings=SETTINGS)
    assert refused.value.detail["file"] == segment_name(1)
    assert before == {name: session.disk.content(name) for name in session.disk.names()}


def test_fault_7_14_a_flip_met_while_running_costs_its_own_jobs_and_no_others() -> None:
    """Faults 7, 14: a claim parks the jobs of the damaged frame with the reason and goes on; a read says where."""
    session = opened()
    session.produce(1)
    session.sync()
    place = session.log.position().offset
    bad = session.produce(2)
    session.sync()
    good = session.produce(2)
    session.close()
    session = reopened(session.disk, session)  # what was just appended would be answered from memory
    session.disk.flip_bit(last_file(session), (place + 60) * 8)
    with pytest.raises(Corrupt) as unreadable:
        run.diff(session.engine, "q", from_seq=4)
    assert unreadable.value.detail["file"] == last_file(session)
    assert [record.data for record in run.diff(session.engine, "q", from_seq=6).records] == good
    claim = session.claim(100)
    assert not set(bad) & {job.data for job in claim.jobs}
    assert set(good) <= {job.data for job in claim.jobs}
    queue = session.engine.state.topics["q"].queue
    assert queue is not None
    assert sorted(queue.parked) == [5, 6]
    assert all(reason.startswith("unreadable") for reason in queue.parked.values())
    session.ack(claim)
    session.sync()
    with pytest.raises(Corrupt):
        reopened(session.disk.crash("lost"), session)


@pytest.mark.parametrize(
    "config",
    [
        {"ttl_ms": 1_000},
        {"cap_records": 3},
        {"cap_bytes": 600, "discard": "reject"},
        {"max_deliveries": 1, "dead_letter": "dead"},
        {"max_deliveries": 1, "dead_letter": "dead", "dlq_strategy": "block_and_dlq"},
    ],
    ids=["ttl", "cap", "full", "letters", "letters and parked"],
)
@pytest.mark.parametrize("acked", [False, True], ids=["alone", "beside one that was acked"])
async def test_fault_7_14_one_damaged_record_stops_no_command_and_no_trimming(
    config: dict[str, object], acked: bool
) -> None:
    """Faults 7, 14: of a topic with a TTL, a cap or dead letters, on a log that is trimmed all the while."""
    disk, clock = SimDisk(1), ManualClock()
    settings = msgspec.structs.replace(SETTINGS, frame_cache_bytes=1)
    marker = b'"the one that decays"'
    async with await Broker.open(disk, clock=clock, settings=settings) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": 500, **config})
        await broker.produce("q", [b"0", marker])
        if acked:
            await broker.ack("q", node="w", seqs=(await broker.claim("q", node="w")).seqs)
    async with await Broker.open(disk, clock=clock, settings=settings) as broker:
        flip(disk, marker)
        clock.advance(900)
        for number in range(60):
            await broker.produce("q", [b"%d" % number])
            claim = await broker.claim("q", node="w", max_count=2)
            if claim.jobs:
                await broker.ack("q", node="w", seqs=claim.seqs[:1])
            await broker.produce("busy", [b"." * 1_500], config={"durability": "fsync"})
            await broker.delete_records("busy", before_seq=1 << 40)
            clock.advance(600)
            assert broker.topic("q").head_seq >= number
            assert len(broker._engine.log.segments()) < 12, "trimming goes on"
        await broker.delete_records("q", before_seq=1 << 40)
        assert broker.topic("q").count == 0


def flip(disk: SimDisk, marker: bytes) -> None:
    for name in disk.names():
        if name.endswith(".log") and marker in disk.content(name):
            disk.flip_bit(name, (disk.content(name).index(marker) + 3) * 8)


@pytest.mark.parametrize("number", [5, 17])
def test_fault_14_a_read_error_is_an_error_for_that_range_and_everything_else_is_served(number: int) -> None:
    """Fault 14: EIO on one segment."""
    session = several_segments(number)
    oldest = segment_name(session.log.segments()[0].number)
    open_, pread = session.disk.open, session.disk.pread
    bad: set[int] = set()

    def remembering(name: str, *, write: bool = False) -> int:
        file = open_(name, write=write)
        if name == oldest:
            bad.add(file)
        return file

    def failing(file: int, count: int, offset: int) -> bytes:
        if file in bad:
            raise OSError(5, "Input/output error")
        return pread(file, count, offset)

    session = reopened(session.disk.crash("lost"), session)
    open_, pread = session.disk.open, session.disk.pread
    session.disk.open, session.disk.pread = remembering, failing  # type: ignore[method-assign]
    session.log._files.forget(1)
    with pytest.raises(Corrupt) as refused:
        records(session.engine, "kept")
    assert refused.value.code == "unreadable"
    assert refused.value.detail["file"] == oldest
    claim = session.claim(2)
    assert len(claim.jobs) == 2
    session.produce(1)
    session.ack(claim)
    session.sync()
    session.disk.pread = pread  # type: ignore[method-assign]
    assert len(records(session.engine, "kept")) == 2
    survive(session.disk.crash("lost"), session.ledger, session.clock, power_lost=True)


def test_fault_8_a_flip_in_the_last_batch_shows_once_the_log_is_sealed() -> None:
    """Fault 8: before the seal, the last synced batch is taken for a torn tail: that is the documented window."""
    session = opened()
    start = session.log.position().offset
    session.produce(2)
    session.sync()
    name, end = last_file(session), session.log.position().offset
    for bit in range(start * 8, end * 8, 7):
        world = session.disk.crash("lost")
        world.flip_bit(name, bit)
        assert len(records(reopened(world, session).engine, "q")) == 2, "the window: cut off as torn"
    session.log.seal()
    for bit in range(start * 8, end * 8, 7):
        world = session.disk.crash("lost")
        world.flip_bit(name, bit)
        with pytest.raises(Corrupt):
            reopened(world, session)


def empty(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]


def newer(data: bytes) -> bytes:
    return data[:8] + (99).to_bytes(4, "little") + data[12:]


@pytest.mark.parametrize("damage", [empty, cut, flipped, newer, None], ids=["empty", "cut", "flipped", "newer", "gone"])
def test_fault_9_a_bad_checkpoint_is_passed_over_and_the_log_alone_is_enough(
    damage: Callable[[bytes], bytes] | None,
) -> None:
    session = several_segments()
    session.checkpoint()
    session.produce(2)
    session.sync()
    expected = picture(session.engine)[1:]
    for victims in ("newest", "all"):
        world = session.disk.crash("lost")
        names = sorted(name for name in world.names() if name.endswith(".checkpoint"))
        assert names
        for name in names if victims == "all" else names[-1:]:
            world.remove(name) if damage is None else world.put(name, damage(world.content(name)))
        again = reopened(world, session)
        assert picture_of(again.engine.state, session.engine.now())[1:] == expected
        survive(world.kill(), session.ledger, deepcopy(session.clock), power_lost=True)


def test_fault_9_a_checkpoint_newer_or_older_than_the_log_is_told_apart() -> None:
    """Fault 9: a checkpoint of a future that was lost is not believed; one of the past is caught up from the log."""
    session = opened()
    session.checkpoint()
    old = {name: session.disk.content(name) for name in session.disk.names() if name.endswith(".checkpoint")}
    past = session.disk.crash("lost")
    session.produce(5)
    session.checkpoint()
    future = {name: session.disk.content(name) for name in session.disk.names() if name.endswith(".checkpoint")}
    for name, content in future.items():
        past.put(name, content)
    again = reopened(past, session)
    assert len(records(again.engine, "q")) == 2
    check_fold(again.engine)
    present = session.disk.crash("lost")
    for name in future:
        present.remove(name)
    for name, content in old.items():
        present.put(name, content)
    again = reopened(present, session)
    assert len(records(again.engine, "q")) == 7
    check_fold(again.engine)


def test_fault_9_a_whole_checkpoint_that_makes_no_sense_is_passed_over() -> None:
    """Fault 9: its checksum is right, its content is another program's."""
    session = several_segments()
    session.sync()
    for payload in (b"", b"nonsense", session.engine.checkpoint()[:-5]):
        checkpoint.save(session.disk, session.log.position(), payload)
        again = reopened(session.disk.crash("lost"), session)
        assert picture_of(again.engine.state, session.engine.now())[1:] == picture(session.engine)[1:]


def test_fault_9_checkpoints_without_any_segment_are_not_a_new_log() -> None:
    """Missing data is reported, never answered with "OK, empty"."""
    session = several_segments()
    session.checkpoint()
    session.close()
    for name in session.disk.names():
        if name.startswith("segments/"):
            session.disk.remove(name)
    with pytest.raises(Corrupt):
        reopened(session.disk, session)
    assert [name for name in session.disk.names() if name.endswith(".checkpoint")], "missing data deletes nothing"


def missing(disk: SimDisk, name: str, other: str) -> None:
    disk.remove(name)


def truncated(disk: SimDisk, name: str, other: str) -> None:
    disk.put(name, disk.content(name)[:-40])


def duplicated(disk: SimDisk, name: str, other: str) -> None:
    disk.put(name, disk.content(other))


def swapped(disk: SimDisk, name: str, other: str) -> None:
    one, two = disk.content(name), disk.content(other)
    disk.put(name, two)
    disk.put(other, one)


@pytest.mark.parametrize("harm", [missing, truncated, duplicated, swapped])
@pytest.mark.parametrize("with_checkpoint", [False, True], ids=["bare log", "with a checkpoint"])
def test_fault_10_a_middle_segment_that_is_not_itself_is_refused(
    harm: Callable[[SimDisk, str, str], None], with_checkpoint: bool
) -> None:
    session = several_segments()
    if with_checkpoint:
        session.checkpoint()
    session.close()
    two, three = (segment_name(info.number) for info in session.log.segments()[1:3])
    harm(session.disk, two, three)
    with pytest.raises(Corrupt):
        reopened(session.disk, session)


def test_fault_10_an_old_copy_of_a_segment_is_refused() -> None:
    session = opened()
    name = last_file(session)
    copy = session.disk.content(name)
    while last_file(session) == name:
        session.produce(2, size=300)
        session.sync()
    session.close()
    session.disk.put(name, copy + bytes(SETTINGS.segment_bytes - len(copy)))
    with pytest.raises(Corrupt):
        reopened(session.disk, session)


@pytest.mark.parametrize("page", [64, 512, 4096])
@pytest.mark.parametrize("with_checkpoint", [False, True], ids=["bare log", "with a checkpoint"])
def test_fault_10_a_page_restored_as_zeros_is_refused_or_an_error_for_its_records(
    page: int, with_checkpoint: bool
) -> None:
    """Fault 10: a backup tool left holes. Behind a checkpoint frames are only read when asked for: then they say so."""
    session = several_segments()
    if with_checkpoint:
        session.checkpoint()
    session.produce(2)
    session.close()
    segments, tried = session.log.segments(), 0
    found = {name: set(records(session.engine, name)) for name in session.engine.state.topics}
    for info in segments:
        name = segment_name(info.number)
        content = session.disk.content(name).ljust(info.used_bytes, b"\0")
        end = info.used_bytes - (SEAL_BYTES if info is segments[-1] else 0)
        for start in range(0, end, page):
            hole = min(start + page, end)  # what covers the seal too is a log that ends earlier
            world = session.disk.kill()
            world.put(name, content[:start] + bytes(hole - start) + content[hole:])
            tried += 1
            try:
                again = reopened(world, session)
            except Corrupt:
                continue
            assert with_checkpoint, f"{name} opens with a hole at {start}"
            for topic, expected in found.items():
                assert readable(again, topic) <= expected
            claim = again.claim(100)
            assert {job.data for job in claim.jobs} <= found["q"]
            again.ack(claim)
            again.sync()
    assert tried >= 3


def readable(session: Session, name: str) -> set[bytes]:
    """What a reader gets that skips what cannot be read."""
    found: set[bytes] = set()
    cursor = 0
    for _ in range(1000):
        try:
            page = run.diff(session.engine, name, from_seq=cursor)
        except Corrupt as error:
            cursor = error.detail["next_from_seq"]
            continue
        found.update(record.data for record in page.records)
        cursor = page.next_from_seq
        if page.caught_up:
            return found
    raise AssertionError("reading does not come to an end")


@pytest.mark.parametrize("with_checkpoint", [False, True], ids=["bare log", "with a checkpoint"])
def test_fault_10_files_restored_without_their_preallocated_zeros_open_and_go_on(with_checkpoint: bool) -> None:
    """Fault 10: every file is as long as what was written to it, and not a byte longer."""
    session = several_segments()
    if with_checkpoint:
        session.checkpoint()
    session.produce(2)
    session.close()
    for info in session.log.segments():
        name = segment_name(info.number)
        session.disk.put(name, session.disk.content(name)[: info.used_bytes])
    expected = picture(session.engine)[1:]
    again = reopened(session.disk, session)
    assert picture_of(again.engine.state, session.engine.now())[1:] == expected
    sent = again.produce(3, size=1500)
    again.close()
    assert set(sent) <= set(records(reopened(again.disk.crash("lost"), again).engine, "q"))


def test_fault_20_crashes_in_recovery_trimming_and_checkpoints_several_times_in_a_row() -> None:
    """Fault 20: each opening gets a little further before the power goes; the state is the same at every stop."""
    session = several_segments()
    session.checkpoint()
    session.produce(2)
    session.write()
    disk, clock = session.disk.crash("torn", seed=1), deepcopy(session.clock)
    ledger = deepcopy(session.ledger)
    ledger.close_books(power_lost=True)
    random = Random(1)
    for stop in range(2, 120, 3):
        disk.fail_at(disk.operations + stop, "crash")
        with pytest.raises(PowerLoss):
            keep_opening(disk, ledger, clock)
        disk = disk.crash("any", seed=random.getrandbits(32))
        survive(disk.kill(), ledger, deepcopy(clock), power_lost=True)


def keep_opening(disk: SimDisk, ledger: Ledger, clock: ManualClock) -> None:
    while True:
        session = Session(disk, deepcopy(ledger), deepcopy(clock))
        session.trim()
        session.checkpoint()
        session.log.close()


def test_the_refold_used_here_really_looks_at_the_log() -> None:
    """A check of the check: an event that only the log has changes the refolded state."""
    session = opened()
    kind = next(kind for kind, event in KINDS.items() if event is Claimed)
    assert any(frame[0] == kind for frame in session.log.replay())
    assert picture_of(refold(session.engine), session.engine.now()) == picture(session.engine)
    session.engine.state.topics["q"].head_seq += 1
    with pytest.raises(AssertionError):
        check_fold(session.engine)
