"""Rolls and drops wait for no disk: the next sync makes them durable, and a kill in between loses nothing."""

from __future__ import annotations

import pytest

from tenure.log import FileLog
from tenure.log.damage.survey import Survey
from tenure.log.segment import segment_name
from tenure.log.spare_segments import unpublished_name
from tenure.testing.simdisk import SimDisk
from tests.log.model import Model, open_log


def rolled(disk: SimDisk, model: Model, segments: int) -> FileLog:
    """Open a log, and write until it has that many segments, without a sync."""
    log, frames = open_log(disk)
    model.check(log, frames)
    while len(log.segments()) < segments:
        model.append(log, [(20, 1, b"r" * 300)])
        log.write()
    return log


def forbidden(*_: object) -> None:
    raise AssertionError("the owner of the log waited for the disk")


def test_appends_rolls_and_drops_never_wait_for_the_disk() -> None:
    disk, model = SimDisk(1), Model()
    log = rolled(disk, model, 1)
    sync, sync_dir = disk.sync, disk.sync_dir
    disk.sync = disk.sync_dir = forbidden  # type: ignore[method-assign, assignment]
    while len(log.segments()) < 4:
        model.append(log, [(20, 1, b"x" * 300)])
    log.drop(1)
    log.drop(2)
    disk.sync, disk.sync_dir = sync, sync_dir  # type: ignore[method-assign]
    assert segment_name(2) not in disk.names()
    assert log.sync() == log.written_batch
    assert [name for name in disk.names() if name.endswith(".log")] == [segment_name(3), segment_name(4)]


def test_a_dropped_segment_stays_until_its_declaration_is_durable() -> None:
    disk, model = SimDisk(1), Model()
    log = rolled(disk, model, 3)
    log.sync()
    batch = log.drop(1)
    assert segment_name(1) in disk.names()
    sync = log.begin_sync()
    sync.run()
    assert log.end_sync(sync) >= batch
    assert segment_name(1) not in disk.names()


@pytest.mark.parametrize("segments", [2, 3, 4])
def test_a_kill_loses_nothing_of_segments_that_were_not_published_yet(segments: int) -> None:
    disk, model = SimDisk(2), Model()
    log = rolled(disk, model, segments)
    model.append(log, [(20, 2, b"the last")])
    log.write()
    assert unpublished_name(segments) in disk.names()
    world = disk.kill()
    again, frames = open_log(world)
    assert frames == [frame for _, frame in model.history]
    assert [segment.number for segment in again.segments()] == list(range(1, segments + 1))
    model.check(again, frames)
    final, frames = open_log(world.crash("lost"))
    model.check(final, frames)
    assert frames[-1][3] == b"the last"


def test_a_segment_that_was_never_published_is_part_of_what_verify_looks_at() -> None:
    disk, model = SimDisk(2), Model()
    log = rolled(disk, model, 3)
    model.append(log, [(20, 2, b"the last")])
    log.write()
    survey = Survey(disk.kill())
    found = [frame for batch in survey.batches() for frame in batch.frames]
    assert found == [frame for _, frame in model.history]
    assert survey.report().problems == []
    survey = Survey(disk.crash("torn", seed=3))
    assert all(batch.whole for batch in survey.batches())
    assert survey.report().problems == [], "a power loss is no damage"


def test_what_a_failed_sync_left_of_an_unpublished_segment_is_written_again() -> None:
    """Fault 13: after a failed sync its pages look clean; naming the segment must not rest on them."""
    for failing in range(1, 4):
        disk, model = SimDisk(3), Model()
        log = rolled(disk, model, 2)
        sync = log.begin_sync()
        disk.fail_at(disk.operations + failing, "EIO")
        sync.run()
        again, frames = open_log(world := disk.kill())
        model.check(again, frames)
        assert len(frames) >= 5
        final, frames = open_log(world.crash("lost"))
        model.check(final, frames)
        assert len(frames) >= 5


def test_spares_are_given_back_at_close_unless_the_disk_is_full() -> None:
    disk, model = SimDisk(4), Model()
    log = rolled(disk, model, 2)
    assert [name for name in disk.names() if name.endswith(".new")]
    log.close()
    assert not [name for name in disk.names() if name.endswith(".new")]


def test_a_small_log_allocates_nothing_ahead() -> None:
    disk, model = SimDisk(5), Model()
    log = rolled(disk, model, 1)
    model.append(log, [(20, 1, b"small")])
    log.sync()
    assert disk.names() == [segment_name(1)]
