"""Every disk call of every scenario fails once, in every way: the loop "fail at call 1, 2, 3 … until it passes"."""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from tenure.errors import Closed, Indeterminate, Overloaded, TenureError
from tenure.log import FileLog, checkpoint, writer
from tenure.log.features import FEATURES
from tenure.log.frame import HEADER_BYTES
from tenure.log.segment import segment_name
from tenure.testing.simdisk import CrashMode, Failure, PowerLoss, SimDisk
from tests.log.model import Model, open_log

Scenario = Callable[[SimDisk, Model], None]
FAILURES: tuple[Failure, ...] = ("crash", "EIO", "ENOSPC", "short")
WORLDS: tuple[CrashMode | None, ...] = (None, "lost", "torn", "reordered", "kept")


def opened(disk: SimDisk, model: Model) -> FileLog:
    """Open a log with one feature, however many there are: the list of them takes much of a segment of 2 KiB."""
    log, frames = open_log(disk, known=FEATURES[:1])
    model.check(log, frames)
    return log


def use(disk: SimDisk, model: Model, do: Callable[[FileLog], None]) -> None:
    """Open, do something, and record in the model what was acknowledged, also where a call fails."""
    log = opened(disk, model)
    try:
        do(log)
    finally:
        model.note(log)
    log.close()
    model.note(log)


def append_and_sync(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        for size in (0, 10, 100):
            model.append(log, [(20, 1, bytes(size)), (21, 2, b"x" * size)])
            log.write()
        model.note(log)
        log.sync()
        model.note(log)
        model.append(log, [(20, 1, b"after")])
        sync = log.begin_sync()
        log.write()
        sync.run()
        log.end_sync(sync)

    use(disk, model, do)


def roll(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        for number in range(12):
            model.append(log, [(20, number, bytes([number]) * 400)])
            model.note(log)
        model.append(log, [(20, 1, b"o" * 5000)])
        model.append(log, [(20, 1, b"behind it")])

    use(disk, model, do)


def seal(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        model.append(log, [(20, 1, b"x")])
        log.seal()
        model.note(log)
        log.seal()

    use(disk, model, do)


def drop(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        while len(log.segments()) < 4:
            model.append(log, [(20, 1, b"d" * 500)])
        for number in (1, 2):
            model.note(log)
            model.dropped = number
            log.drop(number)

    use(disk, model, do)


def save_checkpoints(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        for number in range(4):
            model.append(log, [(20, number, b"c")])
            log.sync()
            model.note(log)
            checkpoint.save(disk, log.position(), b"state %d" % number)

    use(disk, model, do)


def recover_a_torn_tail(disk: SimDisk, model: Model) -> None:
    def do(log: FileLog) -> None:
        model.append(log, [(20, 1, b"r" * 300)])
        log.sync()
        model.append(log, [(20, 2, b"torn" * 100)])
        log.write()

    use(disk, model, do)
    opened(disk, model).close()


SCENARIOS = [append_and_sync, roll, seal, drop, save_checkpoints, recover_a_torn_tail]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whatever_call_fails_the_log_reopens_with_all_it_promised(scenario: Scenario, failure: Failure) -> None:
    """Faults 1, 3, 4, 11, 12, 13 and 20: no call that fails loses a promise or leaves something to clean up by hand."""
    call = 0
    passed = False
    while not passed:
        call += 1
        for number, mode in enumerate(WORLDS):
            disk, model = SimDisk(call * 10 + number), Model()
            disk.fail_at(call, failure)
            with suppress(PowerLoss, TenureError):
                scenario(disk, model)
            passed = disk.operations < call
            world = disk.kill() if mode is None else disk.crash(mode)
            opened(world, model).close()
            opened(world.crash("lost"), model).close()
    assert call > 20


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recovery_that_fails_at_any_call_can_simply_be_repeated(scenario: Scenario, failure: Failure) -> None:
    """Fault 20: a crash leaves a torn tail and leftovers; then every call of the recovery fails once."""
    model = Model()
    disk = SimDisk(7)
    disk.fail_at(60, "crash")
    with suppress(PowerLoss):
        scenario(disk, model)
    for mode in ("torn", "reordered", "kept"):
        call = 0
        while True:
            call += 1
            mine = Model()
            mine.history, mine.synced_batch, mine.dropped = list(model.history), model.synced_batch, model.dropped
            world = disk.crash(mode, seed=5)
            world.fail_at(call, failure)
            with suppress(TenureError):
                open_log(world)[0].close()
            if world.operations < call:
                break
            opened(world.kill(), mine).close()


def test_power_lost_at_any_call_of_a_recovery_after_a_kill_raises_no_false_alarm() -> None:
    """Faults 1, 2 and 20: what the killed process left unsynced is synced before anything says that it was."""
    first = Model()
    disk = SimDisk(1, sector_bytes=16)
    log = opened(disk, first)
    for number in range(5):
        first.append(log, [(20, number, bytes([number]) * 30)])
        log.write()
    killed = disk.kill()
    call, finished = 0, False
    while not finished:
        call += 1
        for seed in range(30):
            model = Model()
            model.history = list(first.history)
            world = killed.kill()
            world.fail_at(call, "crash")
            try:
                opened(world, model)
                finished = True
            except PowerLoss:
                pass
            opened(world.crash("reordered", seed=seed), model)
    assert call > 10


@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
def test_a_failed_sync_is_never_tried_again_and_nothing_more_is_written(failure: Failure) -> None:
    """Fault 13: callers that wait get Indeterminate; the log refuses appends and still reads."""
    disk, model = SimDisk(1), Model()
    log = opened(disk, model)
    [first] = model.append(log, [(20, 1, b"safe")])
    log.sync()
    [second] = model.append(log, [(20, 1, b"unknown")])
    log.write()
    sync = log.begin_sync()
    disk.fail_at(disk.operations + 1, failure)
    sync.run()
    with pytest.raises(Indeterminate):
        log.end_sync(sync)
    assert isinstance(log.failed, Indeterminate)
    disk.sync = disk.pwrite = forbidden  # type: ignore[method-assign, assignment]
    for urgent in (False, True):
        with pytest.raises(Closed):
            log.append([(20, 1, b"x")], urgent=urgent)
    for attempt in (log.sync, log.begin_sync, log.seal):
        with pytest.raises(Closed):
            attempt()
    assert log.read(first)[2] == b"safe"
    assert log.read(second)[2] == b"unknown"
    assert [body for *_, body in log.replay()] == [b"safe", b"unknown"]
    log.close()
    assert not world_has(disk.crash("lost"), b"unknown")


def test_what_was_pending_when_a_sync_failed_is_never_written() -> None:
    """Fault 13: its batch would follow batches that may be missing on the disk."""
    disk, model = SimDisk(1), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"unknown")])
    log.write()
    sync = log.begin_sync()
    log.append([(20, 1, b"pending")])
    disk.fail_at(disk.operations + 1, "EIO")
    sync.run()
    with pytest.raises(Indeterminate):
        log.end_sync(sync)
    disk.pwrite = forbidden  # type: ignore[method-assign, assignment]
    with pytest.raises(Closed):
        log.write()


def forbidden(*_: object) -> None:
    raise AssertionError("a disk that failed was written to again")


def world_has(world: SimDisk, body: bytes) -> bool:
    log, frames = open_log(world)
    log.close()
    return any(frame[3] == body for frame in frames)


def test_what_a_failed_sync_left_in_memory_is_written_again_before_it_is_believed() -> None:
    """Fault 13: after a failed sync the pages look clean; a restart that only syncs again would acknowledge nothing."""
    disk, model = SimDisk(2), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"limbo")])
    disk.fail_at(disk.operations + 2, "EIO")
    with pytest.raises(Indeterminate):
        log.sync()
    world = disk.kill()
    log = opened(world, model)
    assert [frame[3] for _, frame in model.history] == [b"limbo"]
    assert log.synced_batch >= 2
    model.note(log)
    opened(world.crash("lost"), model)
    assert [frame[3] for _, frame in model.history] == [b"limbo"]


def test_a_failed_write_stops_the_log_but_not_reads_of_what_was_pending() -> None:
    """Fault 13, for a write: no more appends, while frames that never reached the disk can still be read."""
    disk, model = SimDisk(3), Model()
    log = opened(disk, model)
    [location] = model.append(log, [(20, 1, b"pending")])
    disk.fail_at(disk.operations + 1, "EIO")
    with pytest.raises(Indeterminate):
        log.write()
    with pytest.raises(Closed):
        log.append([(20, 1, b"x")])
    assert log.read(location)[2] == b"pending"
    log.close()
    opened(disk.kill(), model)


def test_a_sync_that_failed_on_another_thread_is_not_hidden_by_a_roll() -> None:
    """Fault 13: the kernel reports a failure once; a later sync of the same file neither succeeds nor publishes the
    segment after it, whose name would say that all before it is durable.
    """
    disk, model = SimDisk(4), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"a" * 1000)])
    log.write()
    sync = log.begin_sync()
    disk.fail_at(disk.operations + 1, "EIO")
    sync.run()
    model.append(log, [(20, 1, b"b" * 1500)])
    with pytest.raises(Indeterminate):
        log.sync()
    assert log.failed is not None
    assert segment_name(2) not in disk.names()
    with pytest.raises(Indeterminate):
        log.end_sync(sync)
    assert log.synced_batch == 1
    for mode in ("lost", "torn", "reordered", "kept"):
        opened(disk.crash(mode), copy.deepcopy(model))


def fill(model: Model, log: FileLog, body: bytes, *, urgent: bool = False) -> str:
    """Append until there is no more room; give the code of the refusal."""
    while True:
        try:
            model.append(log, [(20, 1, body)], urgent=urgent)
        except Overloaded as error:
            return error.code
        log.write()


def rewrite_oldest(model: Model, log: FileLog) -> None:
    """Append again what the oldest segment holds besides acks, as emptying it does."""
    oldest = [frame for _, frame in model.history if frame[2] >> 32 == log.segments()[0].number]
    for _, topic, _, body in [frame for frame in oldest if frame[3][:1] == b"f"]:
        location = log.append([(20, topic, body)], reclaim=True)[0]
        model.history.append((log.pending_batch, (20, topic, location, body)))


def test_a_full_disk_refuses_an_append_and_changes_nothing_until_space_returns() -> None:
    """Fault 12: a clear error, acks from the room kept for them, reads go on, and it recovers by itself."""
    disk, model = SimDisk(5, capacity_bytes=5 * 2048 + 100), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 300) == "disk_full"
    assert len(log.segments()) == 3
    before = (log.pending_batch, log.written_batch, log.position(), log.segments(), list(log.replay()))
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"f" * 300)])
    assert before == (log.pending_batch, log.written_batch, log.position(), log.segments(), list(log.replay()))
    assert log.crowded
    for number in range(20):
        model.append(log, [(20, 1, b"ack %d" % number)], urgent=True)
    log.sync()
    assert all(log.read(frame[2])[2] == frame[3] for _, frame in model.history)
    model.dropped = 1
    log.drop(1)
    log.sync()
    model.append(log, [(20, 1, b"f" * 300)])
    log.close()
    model.note(log)
    opened(disk.crash("lost"), model)


def test_an_urgent_append_longer_than_what_is_kept_is_taken_while_the_disk_has_room() -> None:
    """A batch of dead letters is urgent, and may be longer than a segment: a queue would be full for ever."""
    disk, model = SimDisk(7, capacity_bytes=100_000), Model()
    log = opened(disk, model)
    for _ in range(3):
        model.append(log, [(20, 1, b"f" * 9_000)], urgent=True)
        model.append(log, [(20, 1, b"an ack")], urgent=True)
        log.sync()
    assert all(log.read(frame[2])[2] == frame[3] for _, frame in model.history)
    before = (log.pending_batch, log.position(), log.segments())
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"f" * 90_000)], urgent=True)
    assert before == (log.pending_batch, log.position(), log.segments())
    model.append(log, [(20, 1, b"an ack")], urgent=True)
    log.sync()
    model.note(log)
    opened(disk.crash("lost"), model).close()


def test_acks_may_use_a_segment_of_room_and_leave_one_to_reclaim_space_in() -> None:
    """Fault 12: the last room is for emptying the oldest segment, which gives a whole one back."""
    disk, model = SimDisk(6, capacity_bytes=5 * 2048 + 100), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 300) == "disk_full"
    used = sum(segment.used_bytes for segment in log.segments())
    assert fill(model, log, b"a" * 20, urgent=True) == "disk_full"
    assert sum(segment.used_bytes for segment in log.segments()) > used + 0.8 * 2048
    for turn in range(1, 8):
        rewrite_oldest(model, log)
        model.dropped = turn
        log.drop(turn)
        log.sync()
        model.note(log)
        model.history = [row for row in model.history if row[1][2] >> 32 > turn]
        model.append(log, [(20, 1, b"one more ack")], urgent=True)
    opened(disk.crash("lost"), model).close()


def test_acks_go_on_while_the_space_of_a_dropped_segment_is_not_back_yet() -> None:
    """Fault 12: nothing else is emptied before that space is there, so it counts as room."""
    disk, model = SimDisk(6, capacity_bytes=5 * 2048 + 100), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 300) == "disk_full"
    for turn in range(1, 8):
        for _ in range(8):
            model.append(log, [(20, 1, b"an ack")], urgent=True)
        rewrite_oldest(model, log)
        model.dropped = turn
        log.drop(turn)
        model.append(log, [(20, 1, b"an ack before the sync")], urgent=True)
        log.sync()
        model.note(log)
        model.history = [row for row in model.history if row[1][2] >> 32 > turn]
    opened(disk.crash("lost"), model).close()


def test_the_room_kept_to_reclaim_in_takes_the_largest_segment() -> None:
    """Fault 12: an append that is larger than a segment must fit there again when its segment is emptied."""
    disk, model = SimDisk(10, capacity_bytes=9 * 2048), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"o" * 4000)])
    assert fill(model, log, b"f" * 300) == "disk_full"
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"o" * 4000)])
    assert fill(model, log, b"a" * 20, urgent=True) == "disk_full"
    log.sync()
    log.append([(20, 1, b"o" * 4000)], reclaim=True)
    log.drop(1)
    log.sync()
    assert not [name for name in disk.names() if name == segment_name(1)]


def test_the_room_to_reclaim_in_is_there_from_the_roll_behind_a_large_segment_on() -> None:
    """The disk may be full from any moment on, also right after a roll."""
    disk, model = SimDisk(11), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"o" * 4000)])
    while len(log.segments()) < 3:
        model.append(log, [(20, 1, b"f" * 300)])
    assert min(log._spares.sizes()) > 4000


def test_what_reclaims_space_may_use_the_last_bytes_of_a_disk() -> None:
    """Fault 12: a disk without room for another segment may still have some for a longer one."""
    disk, model = SimDisk(9, capacity_bytes=2048 + 300), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 100, urgent=True) == "disk_full"
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"a" * 200)], urgent=True)
    location = log.append([(20, 1, b"r" * 200)], urgent=True, reclaim=True)[0]
    model.history.append((log.pending_batch, (20, 1, location, b"r" * 200)))
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"r" * 200)], urgent=True, reclaim=True)
    log.sync()
    model.note(log)
    opened(disk.crash("lost"), model).close()


@pytest.mark.parametrize("growth_bytes", [0, 1500])
def test_acks_leave_room_for_the_rewrite_of_the_largest_segment_and_its_growth(growth_bytes: int) -> None:
    """Fault 12: a small oldest segment gives back too little to empty the next one, and a rewrite is longer."""
    disk, model = SimDisk(6, capacity_bytes=9 * 2048 + 100), Model()
    log = opened(disk, model)
    log.reserve(0, growth_bytes=growth_bytes)
    for body in (b"f" * 300, b"f" * 1750):
        model.append(log, [(20, 1, body)])
    assert fill(model, log, b"f" * 300) == "disk_full"
    oldest, *others, _ = [segment.used_bytes for segment in log.segments()]
    assert fill(model, log, b"a" * 20, urgent=True) == "disk_full"
    room, largest = 0, max(others)
    assert oldest < largest // 2
    with suppress(Overloaded):
        while True:
            log.append([(20, 1, b"r")], reclaim=True)
            room += HEADER_BYTES + 1
    assert room > largest + largest // 16 + growth_bytes


def test_a_roll_on_a_full_disk_makes_a_spare_of_what_room_there_is() -> None:
    """Fault 12: room that was too little while there were enough spares is needed once one of them is taken."""
    disk, model = SimDisk(6, capacity_bytes=5 * 2048 + 1000), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 300) == "disk_full"
    assert log._spares.sizes() == [2048, 2048]
    newest = log.pending_segment
    while log.pending_segment == newest:
        model.append(log, [(20, 1, b"an ack")], urgent=True)
    assert log._spares.sizes() == [2048, 937]


def test_a_roll_into_a_longer_spare_takes_no_room_from_acks() -> None:
    """Fault 12: a spare may be longer than a segment becomes; the rest of it is still there to reclaim in."""
    disk, model = SimDisk(6, capacity_bytes=24 * 1024), Model()
    log = opened(disk, model)
    log.reserve(0, growth_bytes=1000)
    model.append(log, [(20, 1, b"o" * 4000)])
    assert fill(model, log, b"f" * 300) == "disk_full"
    assert min(log._spares.sizes()) > 4000
    assert fill(model, log, b"a" * 20, urgent=True) == "disk_full"
    assert log.segments()[-1].used_bytes > 1500
    log.append([(20, 1, b"o" * 4000)], reclaim=True)


@pytest.mark.parametrize("spares", [[700, 1000], [700, 700], [900]])
def test_what_reclaims_space_joins_spares_that_are_each_too_short(spares: list[int]) -> None:
    """Fault 12: room in several pieces is room for one frame, of one of them or of the segment being written."""
    disk, model = SimDisk(9, capacity_bytes=2048), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"f" * 1600)], urgent=True)
    disk.capacity_bytes = 2048 + sum(spares)
    for size in spares:
        log._spares._add(size, after=1)
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"r" * 2000)], urgent=True, reclaim=True)
    assert log._spares.sizes() == spares, "those that are too short together stay"
    location = log.append([(20, 1, b"r" * 900)], urgent=True, reclaim=True)[0]
    model.history.append((log.pending_batch, (20, 1, location, b"r" * 900)))
    log.sync()
    model.note(log)
    opened(disk.crash("lost"), model).close()


def test_a_segment_is_made_longer_up_to_the_last_offset_and_not_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, model = SimDisk(9), Model()
    log = opened(disk, model)
    monkeypatch.setattr(writer, "OFFSET_MAX", 4096)
    need = 4096 - log._end - log._room.own_bytes
    assert not log._grow(need + 1)
    assert log._capacity < 4096
    assert log._grow(need)
    assert log._capacity == 4096


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_segment_that_cannot_be_made_longer_by_a_byte_is_full_or_the_disk_has_failed(code: int) -> None:
    log = opened(SimDisk(9), Model())

    def refused(file: int, size: int) -> None:
        raise OSError(code, "refused")

    log._disk.allocate = refused  # type: ignore[method-assign]
    need = log._capacity + 1 - log._end - log._room.own_bytes
    if code == errno.ENOSPC:
        assert not log._grow(need)
        assert log.failed is None
    else:
        with pytest.raises(Indeterminate):
            log._grow(need)
        assert log.failed is not None


def test_a_full_disk_is_not_asked_for_room_again_before_it_has_some() -> None:
    """To be refused a segment costs as much as to get one: a flood of appends must not meet it each time."""
    disk, model = SimDisk(7, capacity_bytes=4 * 2048 + 100), Model()
    log = opened(disk, model)
    assert fill(model, log, b"f" * 300) == "disk_full"
    tries: list[int] = []
    allocate = disk.allocate

    def counted(file: int, size: int) -> None:
        tries.append(size)
        allocate(file, size)

    disk.allocate = counted  # type: ignore[method-assign]
    for _ in range(50):
        with pytest.raises(Overloaded):
            log.append([(20, 1, b"f" * 300)])
    assert tries == []
    disk.capacity_bytes = 8 * 2048
    model.append(log, [(20, 1, b"f" * 300)])
    assert len(tries) == 1


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5])
def test_a_full_disk_can_be_opened_again_and_again(capacity: int) -> None:
    """Fault 12: a supervisor that restarts the process on a full disk does not use up the room to open in."""
    disk, model = SimDisk(8, capacity_bytes=capacity * 2048 + 100), Model()
    log = opened(disk, model)
    fill(model, log, b"f" * 300)
    for _ in range(12):
        disk = disk.kill()
        opened(disk, model)


def test_running_out_of_handles_sheds_an_append_and_keeps_the_log_whole() -> None:
    """Fault 19: a roll that cannot open its file refuses the append, and works once handles are free again."""
    disk, model = SimDisk(8), Model()
    log = opened(disk, model)
    model.append(log, [(20, 1, b"a" * 1400)])
    create = disk.create

    def refused(name: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    disk.create = refused  # type: ignore[method-assign]
    with pytest.raises(Overloaded):
        log.append([(20, 1, b"b" * 1400)])
    assert log.failed is None
    disk.create = create  # type: ignore[method-assign]
    model.append(log, [(20, 1, b"b" * 1400)])
    log.close()
    model.note(log)
    opened(disk.crash("lost"), model)
