"""Features of the log: off until they are turned on, then on for good, and refused untouched by older versions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenure.errors import Closed, Corrupt, Overloaded, TenureError
from tenure.log import FileLog, Frame, PosixDisk
from tenure.log.damage.survey import Survey
from tenure.log.features import FEATURES, Feature, FeatureSet, read_list
from tenure.log.frame import KIND_EPOCH, KIND_FEATURES, KIND_FIRST, unpack_header
from tenure.log.held_segments import HeldSegments
from tenure.log.opening import peek_features
from tenure.log.segment import HEAD_BYTES, list_heads, segment_name
from tenure.log.spare_segments import unpublished_name
from tenure.log.tail import TailBatch, Tailer
from tenure.testing.simdisk import CrashMode, Failure, PowerLoss, SimDisk
from tests.kit.versions import NEWER, OLDER

SEGMENT_BYTES = 2048
BODY = bytes(300)


def opened(disk: SimDisk | PosixDisk, known: Sequence[Feature]) -> tuple[FileLog, list[Frame]]:
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES, known=known)
    return log, list(log.replay())


def filled(log: FileLog, segments: int = 2) -> None:
    """Write until the log has that many segments more."""
    last = log.segments()[-1].number + segments
    while log.pending_segment < last:
        log.append([(20, 1, BODY)])
        log.write()
    log.sync()


def made_by(known: Sequence[Feature]) -> SimDisk:
    disk = SimDisk(1)
    log, _ = opened(disk, known)
    filled(log)
    log.close()
    return disk


def upgraded() -> SimDisk:
    """A log of the older version, on which the newer one has turned on its features."""
    disk = made_by(OLDER)
    log, _ = opened(disk, NEWER)
    log.turn_on_features()
    log.close()
    return disk


def digest(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names()}


def first_kind(disk: SimDisk, number: int) -> int:
    kind: int = unpack_header(disk.content(segment_name(number)), HEAD_BYTES)[5]
    return kind


def check_refused(disk: SimDisk) -> None:
    """Check that the older version refuses the log, says why, and changes not one byte or name."""
    before = digest(disk)
    with pytest.raises(Corrupt, match=r"gadgets.*needs Tenure 9\.2\.0 or later.*backup.*Nothing was changed") as caught:
        FileLog.open(disk, segment_bytes=SEGMENT_BYTES, known=OLDER)
    assert caught.value.code == "unknown_feature"
    assert caught.value.detail == {"features": ["gadgets"], "needs": "9.2.0"}
    assert digest(disk) == before
    disk.lock()  # the refused opening does not hold the directory
    disk.unlock()


# The registry


def test_every_feature_of_this_version_has_a_short_name_a_version_and_kinds_of_its_own() -> None:
    names = [feature.name for feature in FEATURES]
    kinds = [kind for feature in FEATURES for kind in feature.kinds]
    assert len(set(names)) == len(names) <= 256
    assert all(0 < len(name.encode()) <= 64 for name in names)
    assert all(part.isdecimal() for feature in FEATURES for part in feature.since.split("."))
    assert len(set(kinds)) == len(kinds)
    assert all(kind >= KIND_FIRST for kind in kinds)


def test_a_list_of_features_reads_back_and_may_say_more_in_a_later_version() -> None:
    assert read_list(FeatureSet(NEWER, known=NEWER).pack()) == [
        Feature("widgets", "9.1.0"),
        Feature("gadgets", "9.2.0"),
    ]
    assert read_list(b'[["a","1.0.0","more"]]') == [Feature("a", "1.0.0")]


@pytest.mark.parametrize("body", [b"", b"{}", b"[[]]", b'[["a"]]', b"[[1,2]]", b"\xff"])
def test_a_list_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt, match="newer") as caught:
        read_list(body)
    assert caught.value.code == "unknown_feature"


def test_of_several_unknown_features_the_newest_version_is_named() -> None:
    strangers = [Feature("a", "2.9.0"), Feature("b", "2.10.0"), Feature("c", "1.99.9")]
    with pytest.raises(Corrupt, match=r"a, b, c.*2\.10\.0"):
        FeatureSet(strangers, known=())


# On and off


def test_a_new_log_uses_every_feature_of_its_version() -> None:
    disk = made_by(NEWER)
    log, _ = opened(disk, NEWER)
    assert log.features.names == {"widgets", "gadgets"}
    assert log.features.off == ()
    assert [first_kind(disk, segment.number) for segment in log.segments()] == [KIND_FEATURES] * 3


def test_a_log_that_uses_none_has_no_list() -> None:
    disk = made_by(())
    assert first_kind(disk, 1) == KIND_EPOCH
    assert KIND_FEATURES not in {first_kind(disk, head.number) for head in list_heads(disk)}


def test_a_new_log_that_is_killed_before_its_list_is_durable_is_new_again() -> None:
    for mode in ("lost", "torn", "kept"):
        call, done = 0, False
        while not done:
            call += 1
            disk = SimDisk(call)
            disk.fail_at(call, "crash")
            try:
                opened(disk, NEWER)
                done = disk.operations < call
            except (PowerLoss, TenureError):
                pass
            log, _ = opened(disk.crash(mode, seed=call), NEWER)
            assert log.features.off == (), f"killed at call {call}"


def test_new_features_are_off_after_an_upgrade_and_the_older_version_opens_what_the_newer_wrote() -> None:
    disk = made_by(OLDER)
    log, frames = opened(disk, NEWER)
    assert [feature.name for feature in log.features.on] == ["widgets"]
    assert [feature.name for feature in log.features.off] == ["gadgets"]
    filled(log)
    log.drop(1)
    log.append([(20, 1, b"by the newer one")])
    log.close()
    log, later = opened(disk, OLDER)
    assert later[-1][3] == b"by the newer one"
    assert len(later) > len(frames) // 2
    log.append([(20, 1, b"by the older one")])
    log.close()
    log, latest = opened(disk, NEWER)
    assert latest == [*later, latest[-1]]
    assert latest[-1][3] == b"by the older one"
    assert [feature.name for feature in log.features.off] == ["gadgets"]


def test_features_are_turned_on_from_a_new_segment_on_and_stay_on() -> None:
    disk = made_by(OLDER)
    log, _ = opened(disk, NEWER)
    last = log.segments()[-1].number
    batch = log.turn_on_features()
    assert "gadgets" in log.features
    assert log.sync() >= batch
    assert log.segments()[-1].number == last + 1
    assert first_kind(disk, last + 1) == KIND_FEATURES
    log.append([(20, 1, b"after")])
    log.close()
    log, frames = opened(disk, NEWER)
    assert (log.features.off, frames[-1][3]) == ((), b"after")


def test_turning_features_on_twice_changes_nothing_the_second_time() -> None:
    disk = made_by(OLDER)
    log, _ = opened(disk, NEWER)
    batch = log.turn_on_features()
    segments = log.segments()
    assert log.turn_on_features() == batch, "a second caller waits for the same batch"
    log.sync()
    assert log.turn_on_features() == batch
    assert log.segments() == segments


def test_features_survive_the_drop_of_every_older_segment() -> None:
    disk = upgraded()
    log, _ = opened(disk, NEWER)
    filled(log, 3)
    while len(log.segments()) > 1:
        log.drop(log.segments()[0].number)
        log.sync()
    log.close()
    log, _ = opened(disk, NEWER)
    assert log.features.off == ()
    log.close()
    check_refused(disk)


def test_features_are_known_also_where_a_replay_starts_in_the_middle() -> None:
    disk = upgraded()
    log, _ = opened(disk, NEWER)
    log.append([(20, 1, b"before")])
    log.sync()
    position = log.position()
    log.append([(20, 1, b"after")])
    log.close()
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES, known=NEWER)
    assert [body for *_, body in log.replay(position)] == [b"after"]
    assert "gadgets" in log.features
    log.close()
    check_refused(disk)


def test_a_log_before_its_replay_turns_nothing_on() -> None:
    disk = made_by(OLDER)
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES, known=NEWER)
    with pytest.raises(Closed):
        log.turn_on_features()
    assert "gadgets" not in log.features


def test_a_full_disk_leaves_features_off_and_the_log_working() -> None:
    disk = made_by(OLDER)
    disk.capacity_bytes = disk.used_bytes()
    log, _ = opened(disk, NEWER)
    segments = [segment.number for segment in log.segments()]
    with pytest.raises(Overloaded, match="Nothing was changed"):
        log.turn_on_features()
    assert "gadgets" not in log.features
    assert [segment.number for segment in log.segments()] == segments
    disk.capacity_bytes = None
    log.turn_on_features()
    log.close()
    check_refused(disk)


# Refusals


def test_an_older_version_refuses_a_log_with_an_unknown_feature_untouched() -> None:
    check_refused(upgraded())
    check_refused(made_by(NEWER))


def test_an_older_version_refuses_untouched_where_the_feature_is_in_an_unpublished_segment() -> None:
    disk = made_by(OLDER)
    log, _ = opened(disk, NEWER)
    log.turn_on_features()
    world = disk.kill()
    assert unpublished_name(log.segments()[-1].number) in world.names()
    check_refused(world)
    log, _ = opened(world, NEWER)
    assert "gadgets" in log.features


def test_an_older_version_refuses_untouched_where_the_tail_is_torn() -> None:
    disk = upgraded()
    log, _ = opened(disk, NEWER)
    name, end = segment_name(log.segments()[-1].number), log.position().offset
    world = disk.kill()
    content = world.content(name)
    world.put(name, content[:end] + b"torn" * 10 + content[end + 40 :])
    check_refused(world)


def test_an_older_version_makes_no_lock_file_in_a_directory_that_it_refuses(tmp_path: Path) -> None:
    log, _ = opened(PosixDisk(tmp_path), OLDER)
    log.close()
    log, _ = opened(PosixDisk(tmp_path), NEWER)
    log.turn_on_features()
    log.close()
    (tmp_path / "lock").unlink()
    before = tree(tmp_path)
    with pytest.raises(Corrupt, match="gadgets"):
        FileLog.open(PosixDisk(tmp_path), known=OLDER)
    assert tree(tmp_path) == before


def tree(path: Path) -> dict[str, str]:
    files = [each for each in sorted(path.rglob("*")) if each.is_file()]
    return {str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_every_reader_of_an_older_version_meets_an_unknown_feature_with_the_same_error() -> None:
    disk = upgraded()
    before = digest(disk)
    readers = {
        "verify and salvage": lambda: list(Survey(disk, known=OLDER).batches()),
        "the export": lambda: list(Tailer(disk, known=OLDER).poll()),
        "a checkpoint": lambda: HeldSegments(disk, known=OLDER).hold(None),
        "inspect": lambda: list_heads(disk, known=OLDER),
        "upgrade status": lambda: peek_features(disk, known=OLDER),
    }
    for name, read in readers.items():
        with pytest.raises(Corrupt, match="gadgets") as caught:
            read()
        assert caught.value.code == "unknown_feature", name
    assert digest(disk) == before


def test_a_survey_finds_an_unknown_feature_beside_damage() -> None:
    disk = made_by(NEWER)
    disk.flip_bit(segment_name(3), 8 * HEAD_BYTES + 300)
    with pytest.raises(Corrupt, match="gadgets"):
        list(Survey(disk, known=OLDER).batches())
    assert Survey(disk, known=NEWER).report().problems == []


def test_a_tailer_reads_up_to_the_segment_that_uses_an_unknown_feature() -> None:
    disk = SimDisk(1)
    log, _ = opened(disk, OLDER)
    log.append([(20, 1, b"before")])
    log.close()
    log, _ = opened(disk, NEWER)
    tailer = Tailer(disk, known=OLDER)
    log.turn_on_features()
    log.append([(20, 1, b"after")])
    log.sync()
    log.seal()
    given: list[bytes] = []
    with pytest.raises(Corrupt, match="gadgets"):
        given.extend(body for item in tailer.poll() if isinstance(item, TailBatch) for *_, body in item.frames)
    assert given == [b"before"]
    found = [item for item in Tailer(disk, tailer.position, known=NEWER).poll() if isinstance(item, TailBatch)]
    assert [body for item in found for *_, body in item.frames] == [b"after"]


def test_a_tailer_that_starts_in_the_middle_of_a_segment_meets_its_features() -> None:
    disk = upgraded()
    log, _ = opened(disk, NEWER)
    log.append([(20, 1, b"one")])
    log.sync()
    position = log.position()
    log.append([(20, 1, b"two")])
    log.sync()
    log.seal()
    with pytest.raises(Corrupt, match="gadgets"):
        list(Tailer(disk, position, known=OLDER).poll())
    assert len(list(Tailer(disk, position, known=NEWER).poll())) >= 1


# Killed in between


def look(world: SimDisk, frames: list[Frame], *, acknowledged: bool) -> bool:
    """Check a log after a crash: its features are on or off as a whole, and nothing else is lost; return whether on."""
    names = peek_features(world, known=NEWER)
    assert names is not None
    if "gadgets" in names:
        check_refused(world)
    else:
        log, _ = opened(world.kill(), OLDER)
        log.close()
    log, found = opened(world, NEWER)
    assert found[: len(frames)] == frames
    is_on = "gadgets" in log.features
    assert is_on or not acknowledged
    assert is_on == ("gadgets" in names)
    filled(log, 1)
    log.close()
    again, _ = opened(world, NEWER)
    assert ("gadgets" in again.features) == is_on, "it stays as it was found"
    return is_on


@pytest.mark.parametrize("failure", ["crash", "EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("mode", [None, "lost", "torn", "reordered"])
def test_features_are_on_or_off_and_never_half_whichever_disk_call_is_the_last(
    failure: Failure, mode: CrashMode | None
) -> None:
    seen: set[bool] = set()
    call = 0
    while True:
        call += 1
        disk = made_by(OLDER)
        log, frames = opened(disk, NEWER)
        started, acknowledged = disk.operations, False
        disk.fail_at(started + call, failure)
        try:
            log.turn_on_features()
            log.sync()
            acknowledged = True
        except (PowerLoss, TenureError):
            pass
        world = disk.kill() if mode is None else disk.crash(mode, seed=call)
        seen.add(look(world, frames, acknowledged=acknowledged))
        if disk.operations < started + call:
            break
    assert seen == ({True} if failure == "short" else {True, False}), "a short write is completed"
    assert call > 5
