"""Verify lists every problem and changes nothing; salvage saves what is whole and lists what it gives up."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tenure.errors import Conflict
from tenure.log import FileLog, Frame, PosixDisk
from tenure.log.salvage import Report, salvage, verify
from tenure.log.segment import HEAD_BYTES, list_heads, segment_name
from tenure.testing.simdisk import SimDisk
from tests.log.model import Model, open_log


def chain(segments: int = 4) -> tuple[SimDisk, Model]:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    while len(log.segments()) < segments:
        number = len(model.history)
        model.append(log, [(20, number + 1, b"%03d" % number * 50), (21, number + 1, b"second")])
        log.write()
    log.close()
    return disk, model


def saved(disk: SimDisk) -> tuple[list[tuple[int, int, bytes]], Report]:
    before = {name: disk.content(name) for name in disk.names()}
    target = SimDisk(2)
    report = salvage(disk, target, segment_bytes=2048)
    assert {name: disk.content(name) for name in disk.names()} == before, "the old directory is not changed"
    log, frames = open_log(target)
    log.close()
    assert report == verify(disk)
    return [(kind, topic, body) for kind, topic, _, body in frames], report


def without(model: Model, report: Report) -> list[tuple[int, int, bytes]]:
    lost = {batch for problem in report.problems for batch in range(problem.first_batch, problem.last_batch + 1)}
    return [_entry(frame) for batch, frame in model.history if batch not in lost]


def _entry(frame: Frame) -> tuple[int, int, bytes]:
    return frame[0], frame[1], frame[3]


def test_a_sound_log_has_no_problems_and_is_saved_whole() -> None:
    disk, model = chain()
    entries, report = saved(disk)
    assert report.problems == []
    assert report.torn is None
    assert report.segments == 4
    assert report.frames == len(model.history)
    assert entries == [_entry(frame) for _, frame in model.history]


def test_a_damaged_batch_is_given_up_by_name_and_the_rest_is_saved() -> None:
    """Fault 7."""
    disk, model = chain()
    batch, (_, topic, location, _) = model.history[4]
    offset = location & 0xFFFFFFFF
    disk.flip_bit(segment_name(location >> 32), (offset + 50) * 8)
    entries, report = saved(disk)
    [problem] = report.problems
    assert (problem.first_batch, problem.last_batch) == (batch, batch)
    assert problem.file == segment_name(location >> 32)
    assert problem.offset <= offset + 50 < problem.end
    assert problem.topics == (topic,)
    assert entries == without(model, report)
    assert len(entries) == len(model.history) - 2


def test_every_single_flip_costs_at_most_one_batch() -> None:
    """Fault 7: random flips; what is saved and what is listed add up to everything."""
    disk, model = chain()
    random = Random(5)
    for _ in range(300):
        head = random.choice(list_heads(disk)[:-1])
        size = len(disk.content(segment_name(head.number)))
        world = disk.kill()
        bit = random.randrange(size * 8)
        if bit >> 3 in range(8, 12):
            continue  # That would be a newer format, which is not looked into.
        world.flip_bit(segment_name(head.number), bit)
        entries, report = saved(world)
        assert len(report.problems) == 1, report
        assert entries == without(model, report)
        assert len(entries) >= len(model.history) - 2


def test_several_wounds_are_all_listed() -> None:
    disk, model = chain()
    for number in (1, 2, 3):
        disk.flip_bit(segment_name(number), 300 * 8)
        disk.flip_bit(segment_name(number), 1000 * 8)
    entries, report = saved(disk)
    assert len(report.problems) == 6
    assert entries == without(model, report)


def test_a_missing_segment_is_listed_with_its_batches() -> None:
    """Fault 10."""
    disk, model = chain()
    heads = list_heads(disk)
    disk.remove(segment_name(2))
    entries, report = saved(disk)
    [problem] = report.problems
    assert problem.file == segment_name(2)
    assert (problem.first_batch, problem.last_batch) == (heads[1].first_batch, heads[2].first_batch - 1)
    assert entries == without(model, report)


def test_a_cut_segment_gives_up_only_what_was_cut_off() -> None:
    """Fault 10."""
    disk, model = chain()
    disk.put(segment_name(2), disk.content(segment_name(2))[:700])
    entries, report = saved(disk)
    assert entries == without(model, report)
    assert len(entries) > len(model.history) - 16


def test_swapped_segments_are_put_in_order() -> None:
    """Fault 10: nothing is lost, the files only have the wrong names."""
    disk, model = chain()
    two, three = disk.content(segment_name(2)), disk.content(segment_name(3))
    disk.put(segment_name(2), three)
    disk.put(segment_name(3), two)
    entries, report = saved(disk)
    assert len(report.problems) == 2
    assert entries == [_entry(frame) for _, frame in model.history]


def test_a_damaged_head_does_not_cost_its_segment() -> None:
    disk, model = chain()
    disk.flip_bit(segment_name(2), 20 * 8)
    entries, report = saved(disk)
    assert [problem.file for problem in report.problems] == [segment_name(2)]
    assert (report.problems[0].offset, report.problems[0].end) == (0, HEAD_BYTES)
    assert entries == [_entry(frame) for _, frame in model.history]


def test_a_dropped_prefix_is_no_problem() -> None:
    disk, _ = chain()
    log, _ = open_log(disk)
    log.drop(1)
    log.close()
    assert verify(disk).problems == []


def test_a_torn_tail_is_told_apart_from_damage() -> None:
    """Fault 5: nobody was promised those batches."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"kept")])
    log.sync()
    log.append([(20, 9, b"torn")])
    log.write()
    disk.flip_bit(segment_name(1), (log.position().offset - 1) * 8)
    report = verify(disk)
    assert report.problems == []
    assert report.torn is not None
    assert report.torn.first_batch == log.written_batch
    assert saved(disk.kill())[0] == [(20, 1, b"kept")]


def test_unreadable_pages_cost_only_what_lies_in_them() -> None:
    """Fault 14: the disk refuses some bytes of a segment."""
    disk, model = chain()
    pread = disk.pread

    def refusing(file: int, count: int, offset: int) -> bytes:
        if disk._files[file] is disk._inodes[segment_name(2)] and offset < 900 < offset + count:
            raise OSError(5, "Input/output error")
        return pread(file, count, offset)

    disk.pread = refusing  # type: ignore[method-assign]
    target = SimDisk(2)
    report = salvage(disk, target, segment_bytes=2048)
    assert report.problems
    frames = open_log(target)[1]
    assert [_entry(frame) for frame in frames] == without(model, report)


def test_a_salvaged_log_goes_on_above_the_old_epochs(tmp_path: Path) -> None:
    for _ in range(5):
        log = FileLog.open(PosixDisk(tmp_path / "old"), segment_bytes=4096)
        list(log.replay())
        log.append([(20, 1, b"x")])
        log.close()
    salvage(tmp_path / "old", tmp_path / "new")
    log = FileLog.open(PosixDisk(tmp_path / "new"))
    assert len(list(log.replay())) == 5
    assert log.epoch > 5
    log.close()


def test_it_never_writes_into_a_directory_that_holds_a_log(tmp_path: Path) -> None:
    for name in ("old", "new"):
        log = FileLog.open(PosixDisk(tmp_path / name), segment_bytes=4096)
        list(log.replay())
        log.close()
    with pytest.raises(Conflict):
        salvage(tmp_path / "old", tmp_path / "new")
