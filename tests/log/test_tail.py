"""A tailer in another process sees what is durable, all of it, once, and says what it missed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tenure.errors import Corrupt
from tenure.log import FileLog, Frame, PosixDisk, UnknownPosition
from tenure.log.segment import segment_name
from tenure.log.tail import TailBatch, Tailer, TailGap
from tenure.testing.simdisk import SimDisk
from tests.log.model import Model, open_log, work


def bodies(tailer: Tailer) -> list[bytes]:
    found = []
    for item in tailer.poll():
        assert isinstance(item, TailBatch)
        found += [body for *_, body in item.frames]
    return found


def test_a_batch_is_seen_once_something_behind_it_says_that_it_was_synced() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    tailer = Tailer(disk)
    log.append([(20, 1, b"a")])
    log.write()
    assert bodies(tailer) == [], "written is not durable"
    log.sync()
    assert bodies(tailer) == [], "synced, but nothing says so yet"
    log.append([(20, 1, b"b")])
    log.write()
    assert bodies(tailer) == [b"a"]
    log.seal()
    assert bodies(tailer) == [b"b"]
    assert bodies(tailer) == []


def test_it_goes_on_from_its_position_after_a_restart_of_either_side() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    for number in range(20):
        log.append([(20, number, b"%d" % number * 100)])
        log.write()
    log.close()
    tailer = Tailer(disk)
    given: list[bytes] = []
    for item in tailer.poll():
        assert isinstance(item, TailBatch)
        given += [body for *_, body in item.frames]
        if len(given) == 7:
            break
    log, _ = open_log(disk)
    log.append([(20, 1, b"more")])
    log.close()
    given += bodies(Tailer(disk, tailer.position))
    assert given == [b"%d" % number * 100 for number in range(20)] + [b"more"]


def test_it_follows_a_log_through_rolls_and_openings_without_a_gap_or_a_repeat() -> None:
    """Random work, polled at random, with a kill -9 of the writer between."""
    for seed in range(40):
        random = Random(seed)
        disk, model = SimDisk(seed), Model()
        position = None
        given: list[Frame] = []
        for _ in range(4):
            log, frames = open_log(disk)
            model.check(log, frames)
            tailer = Tailer(disk, position)
            for _ in range(10):
                work(model, log, random, steps=3, drops=False)
                for item in tailer.poll():
                    assert isinstance(item, TailBatch)
                    assert item.batch <= log.synced_batch
                    given += item.frames
            position = tailer.position
            disk = disk.kill()
            assert given == [frame for _, frame in model.history][: len(given)]
        log, frames = open_log(disk)
        model.check(log, frames)
        log.close()
        for item in Tailer(disk, position).poll():
            assert isinstance(item, TailBatch)
            given += item.frames
        assert given == [frame for _, frame in model.history]


def test_segments_dropped_under_it_are_reported_as_a_gap() -> None:
    disk, model = SimDisk(1), Model()
    log, _ = open_log(disk)
    tailer = Tailer(disk)
    model.append(log, [(20, 1, b"seen")])
    log.seal()
    assert bodies(tailer) == [b"seen"]
    at = tailer.position
    assert at is not None
    while len(log.segments()) < 4:
        model.append(log, [(20, 1, bytes(400))])
    log.drop(1)
    log.drop(2)
    log.seal()
    first, *rest = tailer.poll()
    assert isinstance(first, TailGap)
    assert first.first_batch == at.batch
    assert first.last_batch == log.segments()[0].first_batch - 1
    frames = [frame for item in rest if isinstance(item, TailBatch) for frame in item.frames]
    assert frames == [frame for _, frame in model.history if frame[2] >> 32 > 2]


def test_a_drop_of_what_was_already_read_is_no_gap() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    tailer = Tailer(disk)
    while len(log.segments()) < 3:
        log.append([(20, 1, bytes(400))])
        log.seal()
        list(tailer.poll())
    log.drop(1)
    log.seal()
    assert all(isinstance(item, TailBatch) for item in tailer.poll())


def test_a_position_of_another_log_is_refused() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    log.append([(20, 1, b"x")])
    log.seal()
    position = log.position()
    for wrong in (position._replace(last_crc=1), position._replace(segment=9)):
        with pytest.raises(UnknownPosition):
            list(Tailer(disk, wrong).poll())


def test_damage_in_a_finished_segment_is_an_error_not_the_end() -> None:
    """Fault 41: an error, not an empty answer."""
    disk = SimDisk(1)
    log, _ = open_log(disk)
    while len(log.segments()) < 3:
        log.append([(20, 1, bytes(300))])
        log.sync()
    disk.flip_bit(segment_name(1), 600 * 8)
    with pytest.raises(Corrupt):
        list(Tailer(disk).poll())


def test_a_segment_is_followed_once_it_is_durable_and_not_before() -> None:
    disk = SimDisk(1)
    log, _ = open_log(disk)
    tailer = Tailer(disk)
    while len(log.segments()) < 3:
        log.append([(20, 1, bytes(300))])
        log.write()
    assert bodies(tailer) == []
    log.sync()
    assert len(bodies(tailer)) > 8


def test_it_reads_a_directory_that_another_process_holds(tmp_path: Path) -> None:
    log = FileLog.open(PosixDisk(tmp_path), segment_bytes=4096)
    list(log.replay())
    tailer = Tailer(tmp_path)
    for number in range(100):
        log.append([(20, 1, b"%d" % number)])
        log.write()
    log.seal()
    assert bodies(tailer) == [b"%d" % number for number in range(100)]
    log.close()


def test_an_empty_directory_has_nothing_to_follow(tmp_path: Path) -> None:
    assert list(Tailer(tmp_path).poll()) == []
