"""What a restart does with a log that is torn, damaged, incomplete, or mixed up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tenure.errors import Closed, Conflict, Corrupt, NotFound, TenureError
from tenure.log import Entry, FileLog, PosixDisk, UnknownPosition, checkpoint
from tenure.log.damage.verify import verify
from tenure.log.features import FEATURES, FeatureSet
from tenure.log.frame import HEADER_BYTES, encode_batch
from tenure.log.segment import FORMAT, HEAD_BYTES, list_heads, segment_name
from tenure.testing.simdisk import SimDisk
from tests.log.model import Model, open_log

FIRST = segment_name(1)


FEATURES_BYTES = HEADER_BYTES + len(FeatureSet(FEATURES).pack())
"""The list of features, which every segment begins with."""


def chain(segments: int = 4, *, seed: int = 1) -> tuple[SimDisk, Model]:
    """Build a closed log of several segments."""
    disk, model = SimDisk(seed), Model()
    log, _ = open_log(disk)
    while len(log.segments()) < segments:
        model.append(log, [(20, len(model.history) % 5, bytes([len(model.history)]) * 300)])
        log.write()
    log.close()
    model.synced_batch = log.synced_batch
    return disk, model


def bodies(disk: SimDisk) -> list[bytes]:
    log, frames = open_log(disk)
    log.close()
    return [frame[3] for frame in frames]


def test_a_frame_torn_at_every_byte_length_is_cut_off_and_reported_once() -> None:
    """Fault 5."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    start = log.position().offset
    log.append([(20, 1, b"torn" * 5), (21, 1, b"also torn")])
    log.write()
    end = log.position().offset
    whole = disk.content(FIRST)
    for length in range(end - start):
        torn = disk.kill()
        torn.put(FIRST, whole[: start + length] + bytes(2048 - start - length))
        log, frames = open_log(torn)
        assert [frame[3] for frame in frames] == [b"kept"]
        assert log.report is not None
        assert (log.report.torn_bytes > 0) == any(whole[start : start + length])
        log.append([(20, 1, b"next")])
        log.close()
        log, frames = open_log(torn)
        assert [frame[3] for frame in frames] == [b"kept", b"next"]
        assert log.report is not None
        assert log.report.torn_bytes == 0
    assert bodies(disk.kill()) == [b"kept", b"torn" * 5, b"also torn"]


def test_a_torn_tail_is_zeroed_to_its_end_whatever_is_written_over_it() -> None:
    """Faults 5 and 6: a long torn tail is not left after the few bytes that a restart writes."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    start = log.position().offset
    log.append([(20, 1, b"t" * 1000)])
    log.write()
    disk.flip_bit(FIRST, 300 * 8)
    world = disk.kill()
    log, frames = open_log(world)
    assert frames == []
    assert log.report is not None
    assert (log.report.torn_file, log.report.torn_offset, log.report.torn_bytes) == (FIRST, start, 1036)
    assert not any(world.content(FIRST)[log.position().offset :])
    log.close()
    assert verify(world).torn is None


def test_a_frame_of_an_older_epoch_or_without_its_beginning_is_not_taken_up() -> None:
    """Fault 6: even where it fits by its batch number and its place."""
    disk = SimDisk(1)
    for _ in range(2):
        log, _ = open_log(disk)
        log.close()
    salt = list_heads(disk)[0].salt
    log, _ = open_log(disk)
    place = log.position()
    two = [(20, 1, b"beginning"), (20, 1, b"end")]
    for epoch, cut, expected in ((3, 0, 2), (2, 0, 0), (3, 45, 0)):
        data, _ = encode_batch(two, salt, epoch=epoch, batch=place.batch, synced_batch=place.batch - 1)
        world = disk.kill()
        content = world.content(FIRST)[: place.offset] + data[cut:]
        world.put(FIRST, content + bytes(2048 - len(content)))
        assert len(open_log(world)[1]) == expected


def test_a_file_cut_at_every_byte_of_its_last_batch_loses_only_that_batch() -> None:
    """Faults 5 and 8, with a file that became shorter instead of zeros."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    start = log.position().offset
    log.append([(20, 1, b"torn" * 5)])
    log.write()
    whole = disk.content(FIRST)
    for length in range(start, log.position().offset):
        cut = disk.kill()
        cut.put(FIRST, whole[:length])
        assert bodies(cut) == [b"kept"]
        assert bodies(cut) == [b"kept"]


def test_a_hole_before_a_valid_frame_is_torn_and_the_frame_is_not_resurrected() -> None:
    """Fault 6: neither now nor when later batches fill the hole."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    start = log.position().offset
    log.append([(20, 1, b"lost")])
    log.write()
    hole_end = log.position().offset
    log.append([(20, 1, b"ghost")])
    log.write()
    whole = disk.content(FIRST)
    for hole in range(start + 1, hole_end + 1):
        world = disk.kill()
        world.put(FIRST, whole[:start] + bytes(hole - start) + whole[hole:])
        log, frames = open_log(world)
        assert [frame[3] for frame in frames] == [b"kept"]
        log.append([(20, 1, b"new!")])
        log.sync()
        assert bodies(world.kill()) == [b"kept", b"new!"]


def test_a_flip_with_a_later_witness_is_refused_naming_file_offset_and_range() -> None:
    """Fault 7, and nothing is changed by the refusal."""
    disk, _ = chain()
    before = disk.content(segment_name(2))
    start = HEAD_BYTES + FEATURES_BYTES
    disk.flip_bit(segment_name(2), 200 * 8)
    with pytest.raises(Corrupt) as caught:
        open_log(disk)
    detail = caught.value.detail
    assert detail["file"] == segment_name(2)
    assert detail["offset"] == start <= 200 < detail["end"] == start + 336
    assert detail["batch"] == list_heads(disk)[1].first_batch
    assert segment_name(2) in caught.value.message
    assert f"bytes {start}..{start + 336}" in caught.value.message
    assert sum(a != b for a, b in zip(before, disk.content(segment_name(2)), strict=True)) == 1


def test_a_refused_log_lets_go_of_the_directory_when_closed() -> None:
    disk, _ = chain()
    disk.flip_bit(segment_name(2), 800)
    log = FileLog.open(disk)
    with pytest.raises(Corrupt):
        list(log.replay())
    with pytest.raises(Closed):
        log.append([(20, 1, b"x")])
    log.close()
    disk.flip_bit(segment_name(2), 800)
    open_log(disk)


def test_a_flip_met_while_running_is_an_error_for_that_frame_only() -> None:
    """Fault 7, while running."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    good, bad = log.append([(20, 1, b"good"), (20, 1, b"bad")])
    log.sync()
    disk.flip_bit(FIRST, ((bad & 0xFFFFFFFF) + 37) * 8)
    with pytest.raises(Corrupt) as caught:
        log.read(bad)
    assert caught.value.detail["offset"] == bad & 0xFFFFFFFF
    assert log.read(good)[2] == b"good"
    with pytest.raises(Corrupt):
        list(log.replay())
    log.append([(20, 1, b"goes on")])
    log.sync()


def test_an_unreadable_segment_is_an_error_for_its_range_and_the_rest_is_served() -> None:
    """Fault 14."""
    disk, model = chain()
    log, _ = open_log(disk)
    places = [frame[2] for _, frame in model.history]
    disk.fail_at(disk.operations + 2, "EIO")
    with pytest.raises(Corrupt) as caught:
        log.read(places[0])
    assert caught.value.code == "unreadable"
    assert caught.value.detail["file"] == FIRST
    assert [log.read(place)[2] for place in places] == [frame[3] for _, frame in model.history]
    assert log.failed is None


def test_a_middle_segment_that_is_missing_is_refused() -> None:
    """Fault 10."""
    disk, _ = chain()
    disk.remove(segment_name(2))
    with pytest.raises(Corrupt, match="missing and was never declared dropped"):
        open_log(disk)


def test_an_oldest_segment_that_is_missing_is_refused() -> None:
    """Fault 10."""
    disk, _ = chain()
    disk.remove(FIRST)
    with pytest.raises(Corrupt, match=f"{FIRST} is missing"):
        open_log(disk)


def test_a_middle_segment_cut_at_any_length_is_refused() -> None:
    """Fault 10."""
    disk, _ = chain()
    whole = disk.content(segment_name(2))
    for length in (0, 1, HEAD_BYTES - 1, HEAD_BYTES, 200, len(whole) - 1):
        cut = disk.kill()
        cut.put(segment_name(2), whole[:length])
        with pytest.raises(Corrupt) as caught:
            open_log(cut)
        assert caught.value.detail["file"] == segment_name(2)


def test_segments_that_are_doubled_or_swapped_are_refused() -> None:
    """Fault 10."""
    disk, _ = chain()
    two, three = disk.content(segment_name(2)), disk.content(segment_name(3))
    doubled = disk.kill()
    doubled.put(segment_name(3), two)
    with pytest.raises(Corrupt, match="the file holds segment 2"):
        open_log(doubled)
    swapped = disk.kill()
    swapped.put(segment_name(2), three)
    swapped.put(segment_name(3), two)
    with pytest.raises(Corrupt):
        open_log(swapped)
    appended = disk.kill()
    appended.put(segment_name(5), disk.content(segment_name(4)))
    with pytest.raises(Corrupt):
        open_log(appended)


def test_an_old_copy_of_a_segment_is_refused() -> None:
    """Fault 10: a copy taken before the segment was full, put back later."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"a" * 300)])
    log.sync()
    old = disk.content(FIRST)
    while len(log.segments()) < 3:
        log.append([(20, 1, b"b" * 300)])
    log.close()
    disk.put(FIRST, old + bytes(2048 - len(old)))
    with pytest.raises(Corrupt) as caught:
        open_log(disk)
    assert caught.value.detail["file"] == FIRST


def test_a_segment_of_another_history_with_the_same_batches_is_refused() -> None:
    """Fault 10: two lives of one directory, forked from a backup, then mixed."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"common")])
    log.close()
    forks = []
    for word in (b"x", b"y"):
        fork = disk.kill()
        log, _ = open_log(fork)
        while len(log.segments()) < 3:
            log.append([(20, 1, word * 300)])
        log.close()
        forks.append(fork)
    forks[0].put(FIRST, forks[1].content(FIRST))
    with pytest.raises(Corrupt, match="an old copy or a wrong file"):
        open_log(forks[0])


def test_a_segment_of_another_log_is_refused() -> None:
    """Fault 10."""
    disk, _ = chain()
    other = SimDisk(2)
    log = FileLog.open(other, segment_bytes=2048, log_id=b"another log here")
    list(log.replay())
    while len(log.segments()) < 3:
        log.append([(20, 1, bytes(300))])
    log.close()
    disk.put(segment_name(2), other.content(segment_name(2)))
    with pytest.raises(Corrupt, match="belongs to another log"):
        open_log(disk)


def test_a_declared_segment_that_is_still_there_is_removed_again() -> None:
    """Fault 1: killed between the declaration and the removal."""
    disk, _ = chain()
    copy = disk.content(FIRST)
    log, _ = open_log(disk)
    log.drop(1)
    log.close()
    disk.put(FIRST, copy)
    log, _ = open_log(disk)
    assert log.report is not None
    assert log.report.unlinked == (1,)
    assert FIRST not in disk.names()
    assert log.segments()[0].number == 2


def test_declared_segments_below_a_gap_are_removed_and_not_replayed() -> None:
    disk, model = chain(5)
    copy = disk.content(FIRST)
    log, _ = open_log(disk)
    log.drop(1)
    log.drop(2)
    log.close()
    disk.put(FIRST, copy)
    log, frames = open_log(disk)
    assert frames == [frame for _, frame in model.history if frame[2] >> 32 > 2]
    assert FIRST not in disk.names()


def test_a_newer_format_is_refused_untouched() -> None:
    """Fault 18."""
    disk, _ = chain()
    content = bytearray(disk.content(segment_name(3)))
    content[8:12] = (FORMAT + 1).to_bytes(4, "little")
    disk.put(segment_name(3), bytes(content))
    before = {name: disk.content(name) for name in disk.names()}
    with pytest.raises(Corrupt) as caught:
        open_log(disk)
    assert caught.value.code == "format_too_new"
    assert {name: disk.content(name) for name in disk.names()} == before
    disk.lock()


def test_a_log_written_by_the_first_format_opens() -> None:
    """Fault 18: bytes spelled out here, so that no change of the code can go unnoticed."""
    disk = SimDisk(1)
    disk.put(FIRST, GOLDEN + bytes(2048 - len(GOLDEN)))
    log, frames = open_log(disk)
    assert frames == [(20, 7, (1 << 32) + 100, b"golden"), (21, 8, (1 << 32) + 142, b"")]
    assert log.epoch == 2


GOLDEN = bytes.fromhex(
    "54454e55524c4f4701000000000000000100000000000000010000000000000030313233343536373839616263646566"
    "0000000000000000000000009723fe7924000000ad29a8e8010000000100000000000000000000000000000003030000"
    "000000002a000000dbadface01000000020000000000000001000000000000001402000007000000676f6c64656e2400"
    "0000d15ec9c00100000002000000000000000100000000000000150100000800000024000000034d57ea010000000300"
    "00000000000002000000000000000103"
)


def test_segments_removed_beside_a_checkpoint_are_not_taken_for_a_new_log() -> None:
    """Never "OK, empty"."""
    disk, _ = chain()
    checkpoint.save(disk, open_log(disk.kill())[0].position(), b"state")
    for name in [name for name in disk.names() if name.startswith("segments/")]:
        disk.remove(name)
    with pytest.raises(Corrupt, match="the log itself is missing"):
        open_log(disk)


def test_a_payload_that_looks_like_a_frame_is_no_witness() -> None:
    """Fault 6: a producer sends bytes that were a valid frame in some log; the torn record that holds them is torn."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    start = log.position().offset
    batch = log.position().batch
    fake, _ = encode_batch([(20, 1, b"fake")], 12345, epoch=1, batch=batch + 1, synced_batch=batch)
    log.append([(20, 1, b"." * 20 + fake)])
    log.write()
    disk.flip_bit(FIRST, (start + 40) * 8)
    assert bodies(disk.kill()) == [b"kept"]
    real, _ = encode_batch([(20, 1, b"fake")], list_heads(disk)[0].salt, epoch=1, batch=batch + 1, synced_batch=batch)
    disk.put(FIRST, disk.content(FIRST).replace(fake, real) + bytes(500))
    with pytest.raises(Corrupt):
        open_log(disk.kill())


def test_a_position_beyond_the_end_of_the_log_is_detected() -> None:
    """Fault 9: a checkpoint newer than the log; the same number of batches in another history does not deceive it."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"a")])
    log.sync()
    log.append([(20, 1, b"lost")])
    log.write()
    position = log.position()
    lost = disk.crash("lost")
    log = FileLog.open(lost, segment_bytes=2048)
    assert not log.contains(position)
    with pytest.raises(UnknownPosition):
        log.replay(position)
    assert [frame[3] for frame in log.replay()] == [b"a"]
    log.append([(20, 1, b"else")])
    log.close()
    log = FileLog.open(lost, segment_bytes=2048)
    assert not log.contains(position)


def test_a_replay_from_a_position_still_refuses_a_missing_earlier_segment() -> None:
    """Fault 10, where a checkpoint would hide it."""
    disk, _ = chain()
    log, _ = open_log(disk)
    position = log.position()
    log.close()
    gone = disk.kill()
    gone.remove(FIRST)
    log = FileLog.open(gone, segment_bytes=2048)
    with pytest.raises(Corrupt, match="never declared dropped"):
        list(log.replay(position))
    log, _ = open_log(disk)
    log.drop(1)
    position = log.position()
    log.close()
    log = FileLog.open(disk, segment_bytes=2048)
    assert list(log.replay(position)) == []
    log.close()


def test_two_openers_of_one_directory_are_told_apart_also_through_a_symlink(tmp_path: Path) -> None:
    """Fault 16."""
    data = tmp_path / "data"
    log = FileLog.open(PosixDisk(data), segment_bytes=4096)
    list(log.replay())
    link = tmp_path / "link"
    link.symlink_to(data)
    for path in (data, link):
        with pytest.raises(Conflict) as caught:
            FileLog.open(PosixDisk(path), segment_bytes=4096)
        assert caught.value.code == "locked"
    log.append([(20, 1, b"unharmed")])
    log.close()
    log = FileLog.open(PosixDisk(link), segment_bytes=4096)
    assert [frame[3] for frame in log.replay()] == [b"unharmed"]
    log.close()


def test_a_directory_that_vanishes_is_never_acknowledged_into(tmp_path: Path) -> None:
    """Fault 17: syncing a removed file succeeds; the log must not."""
    log = FileLog.open(PosixDisk(tmp_path / "data"), segment_bytes=4096)
    list(log.replay())
    log.append([(20, 1, b"x")])
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(TenureError) as caught:
        log.sync()
    assert caught.value is log.failed
    log.close()


def test_a_directory_that_is_replaced_is_never_acknowledged_into(tmp_path: Path) -> None:
    """Fault 17: as after a mount over the path."""
    data = tmp_path / "data"
    log = FileLog.open(PosixDisk(data), segment_bytes=4096)
    list(log.replay())
    log.append([(20, 1, b"x")])
    data.rename(tmp_path / "moved")
    data.mkdir()
    with pytest.raises(TenureError):
        log.sync()
    log.close()


def test_a_dropped_segment_that_was_left_over_is_gone_after_a_restart() -> None:
    """Fault 20: the process died between the sync that declares a drop and the removal of the file."""
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    [location] = model.append(log, [(20, 1, b"first")])
    while len(log.segments()) < 3:
        model.append(log, [(20, 1, b"x" * 300)])
    log.sync()
    leftover = disk.content(segment_name(1))
    log.drop(1)
    log.close()
    disk.put(segment_name(1), leftover)
    log, _ = open_log(disk)
    assert log.report is not None
    assert log.report.unlinked == (1,)
    assert (log.report.torn_file, log.report.torn_bytes) == (None, 0)
    assert segment_name(1) not in disk.names()
    assert [segment.number for segment in log.segments()] == [2, 3]
    with pytest.raises(NotFound) as refused:
        log.read(location)
    assert refused.value.code == "segment_dropped"


def test_the_room_to_reclaim_a_large_segment_in_is_there_from_a_restart_on() -> None:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    model.append(log, [(20, 1, b"o" * 4000)])
    while len(log.segments()) < 2:
        model.append(log, [(20, 1, b"f" * 300)])
    log.close()
    log, _ = open_log(disk)
    assert len(log.segments()) == 2
    assert min(log._spares.sizes()) > 4000


def test_a_log_of_one_segment_allocates_nothing_ahead_at_a_restart() -> None:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    model.append(log, [(20, 1, b"x")])
    log.close()
    log, _ = open_log(disk)
    assert log._spares.sizes() == []


def replayed_with_preamble(disk: SimDisk) -> list[bytes]:
    """Open with a preamble for new segments, close, and return the bodies of the log then."""
    log = FileLog.open(disk, segment_bytes=2048)
    log.preamble = lambda: [(20, 0, b"preamble")]
    list(log.replay())
    log.close()
    return bodies(disk)


def rolled_and_cut_short() -> SimDisk:
    """A log of two segments, of which the second has a head and nothing else."""
    disk, _ = chain(2)
    content = disk.content(segment_name(2))
    disk.put(segment_name(2), content[:HEAD_BYTES] + bytes(len(content) - HEAD_BYTES))
    return disk


def test_a_new_log_starts_without_a_preamble() -> None:
    assert replayed_with_preamble(SimDisk(1)) == []


def test_a_segment_whose_roll_was_cut_short_gets_its_preamble_at_the_restart() -> None:
    disk = rolled_and_cut_short()
    before = bodies(disk.kill())
    assert replayed_with_preamble(disk) == [*before, b"preamble"]
    assert replayed_with_preamble(disk) == [*before, b"preamble"], "once is enough"


def test_a_log_whose_recovery_failed_takes_no_appends() -> None:
    log = FileLog.open(rolled_and_cut_short(), segment_bytes=2048)

    def failing() -> list[Entry]:
        raise RuntimeError("no preamble")

    log.preamble = failing
    with pytest.raises(RuntimeError):
        list(log.replay())
    with pytest.raises(Closed) as refused:
        log.append([(20, 1, b"x")])
    assert refused.value.code == "not_replayed"
