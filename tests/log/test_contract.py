"""One suite for every home of the log: files, the simulated disk, memory, a chain in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tenure.errors import Closed, Invalid, NotFound
from tenure.log import FileLog, Log, MemoryLog, PosixDisk, UnknownPosition
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import open_log

SEGMENT_BYTES = 4096


class Home:
    """Opens one log again and again."""

    def __init__(self, open_: Callable[[], Log]) -> None:
        self._open = open_
        self.log = self.reopen()

    def reopen(self) -> Log:
        self.log = self._open()
        self.frames = list(self.log.replay())
        return self.log

    def restart(self) -> Log:
        self.log.close()
        return self.reopen()


@pytest.fixture(params=["files", "simulated", "memory", "shipped"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    sim, memory, store = SimDisk(1), MemoryLog(segment_bytes=SEGMENT_BYTES), SimStore()
    opens: dict[str, Callable[[], Log]] = {
        "files": lambda: FileLog.open(PosixDisk(tmp_path / "data"), segment_bytes=SEGMENT_BYTES),
        "simulated": lambda: FileLog.open(sim, segment_bytes=SEGMENT_BYTES),
        "memory": lambda: memory.reopen(),
        "shipped": lambda: open_log(store, sim),
    }
    made = Home(opens[request.param])
    yield made
    made.log.close()


def bodies(log: Log) -> list[bytes]:
    return [body for *_, body in log.replay()]


def fill(log: Log, segments: int) -> list[int]:
    locations = []
    while len(log.segments()) < segments:
        locations += log.append([(20, 1, bytes(700))])
        log.write()
    return locations


def test_a_new_log_is_empty_and_has_an_epoch(home: Home) -> None:
    assert home.frames == []
    assert home.log.epoch >= 1
    assert home.log.failed is None
    assert home.log.pending_batch == home.log.written_batch + 1


def test_a_frame_can_be_read_before_it_is_written_and_after(home: Home) -> None:
    log = home.log
    locations = log.append([(16, 0, b""), (255, 2**32 - 1, b"body")])
    expected = [(16, 0, b""), (255, 2**32 - 1, b"body")]
    assert [log.read(location) for location in locations] == expected
    log.write()
    assert [log.read(location) for location in locations] == expected
    log.sync()
    assert [log.read(location) for location in locations] == expected


def test_frames_appended_together_and_before_a_write_form_one_batch(home: Home) -> None:
    log = home.log
    before = log.pending_batch
    log.append([(20, 1, b"a"), (20, 1, b"b")])
    log.append([(20, 1, b"c")])
    assert log.pending_batch == before
    assert log.written_batch == before - 1
    assert log.write() == before == log.written_batch
    assert log.pending_batch == before + 1


def test_one_frame_is_appended_like_any_other(home: Home) -> None:
    log = home.log
    [first] = log.append([(20, 1, b"a")])
    second = log.append_one(21, 2, b"b")
    assert log.read(second) == (21, 2, b"b")
    log.write()
    assert [location for _, _, location, _ in log.replay()] == [first, second]
    locations = [log.append_one(20, 1, bytes(1000), urgent=True) for _ in range(9)]
    assert len(log.segments()) >= 3
    assert all(log.read(location)[2] == bytes(1000) for location in locations)


def test_writing_nothing_makes_no_batch(home: Home) -> None:
    before = home.log.written_batch
    assert home.log.write() == before
    assert home.log.append([]) == []
    assert home.log.write() == before


def test_a_sync_covers_what_was_written_when_it_began(home: Home) -> None:
    log = home.log
    log.append([(20, 1, b"covered")])
    covered = log.write()
    sync = log.begin_sync()
    log.append([(20, 1, b"later")])
    log.write()
    thread = Thread(target=sync.run)
    thread.start()
    thread.join()
    assert log.end_sync(sync) == covered == log.synced_batch
    assert log.sync() == log.written_batch == log.synced_batch


def test_a_replay_gives_what_was_written_in_order_with_its_locations(home: Home) -> None:
    log = home.log
    locations = log.append([(20, 1, b"a"), (21, 2, b"b")])
    log.write()
    locations += log.append([(22, 3, b"c")])
    log.write()
    log.append([(23, 4, b"pending")])
    expected = list(zip((20, 21, 22), (1, 2, 3), locations, (b"a", b"b", b"c"), strict=True))
    assert list(log.replay()) == expected
    home.restart()
    assert home.frames == [*expected, home.frames[-1]]
    assert home.frames[-1][3] == b"pending", "close writes what is pending"


def test_every_opening_has_a_higher_epoch(home: Home) -> None:
    epochs = [home.log.epoch] + [home.restart().epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))


def test_a_replay_can_start_at_a_position(home: Home) -> None:
    log = home.log
    log.append([(20, 1, b"before")])
    log.sync()
    position = log.position()
    assert log.contains(position)
    log.append([(20, 1, b"behind")])
    log.sync()
    assert [body for *_, body in log.replay(position)] == [b"behind"]
    log.close()
    home.log = log = home._open()
    assert log.contains(position)
    assert [body for *_, body in log.replay(position)] == [b"behind"]
    log.append([(20, 1, b"appended")])


def test_a_position_that_the_log_never_went_through_is_told_apart(home: Home) -> None:
    position = home.log.position()
    for wrong in (
        position._replace(segment=position.segment + 1),
        position._replace(batch=position.batch + 1),
        position._replace(segment=0),
    ):
        assert not home.log.contains(wrong)
        with pytest.raises(UnknownPosition):
            home.log.replay(wrong)


def test_positions_at_every_place_replay_the_rest(home: Home) -> None:
    log = home.log
    places = []
    for number in range(30):
        places.append((log.position(), number))
        log.append([(20, number, bytes(400))])
        log.write()
    for position, number in places:
        assert [topic for _, topic, _, _ in log.replay(position)] == list(range(number, 30))


def test_an_append_that_does_not_fit_rolls_and_a_batch_never_spans_segments(home: Home) -> None:
    log = home.log
    locations = fill(log, 3)
    numbers = [segment.number for segment in log.segments()]
    assert numbers == [1, 2, 3]
    assert sorted({location >> 32 for location in locations}) == numbers
    assert all(log.read(location)[2] == bytes(700) for location in locations)
    first, second = log.append([(20, 1, bytes(1500)), (20, 1, bytes(1500))])
    assert first >> 32 == second >> 32
    before = log.synced_batch
    log.append([(20, 1, bytes(3000))])
    assert log.synced_batch == before, "neither an append nor a roll waits for the disk"


def test_an_oversize_append_gets_a_segment_of_its_own(home: Home) -> None:
    log = home.log
    log.append([(20, 1, b"small")])
    [location] = log.append([(20, 1, bytes(10 * SEGMENT_BYTES))])
    [behind] = log.append([(20, 1, bytes(3000))])
    assert location >> 32 == 2
    assert behind >> 32 == 3
    home.restart()
    assert [len(body) for *_, body in home.frames] == [5, 10 * SEGMENT_BYTES, 3000]
    assert len(home.log.read(location)[2]) == 10 * SEGMENT_BYTES


def test_segments_say_how_many_bytes_they_hold(home: Home) -> None:
    log = home.log
    fill(log, 2)
    oldest, current = log.segments()
    assert 2800 < oldest.used_bytes <= SEGMENT_BYTES
    before = current.used_bytes
    log.append([(20, 1, bytes(100))])
    log.write()
    assert log.segments()[-1].used_bytes == before + 136


def test_only_the_oldest_segment_can_be_dropped_and_never_the_current_one(home: Home) -> None:
    log = home.log
    for segment in (0, 1, 2):
        with pytest.raises(Invalid):
            log.drop(segment)
    fill(log, 3)
    with pytest.raises(Invalid):
        log.drop(2)
    log.drop(1)
    log.drop(2)
    with pytest.raises(Invalid):
        log.drop(3)


def test_a_dropped_segment_is_gone_also_after_a_restart(home: Home) -> None:
    log = home.log
    locations = fill(log, 3)
    log.drop(1)
    kept = [location for location in locations if location >> 32 > 1]
    with pytest.raises(NotFound):
        log.read(locations[0])
    assert [location for _, _, location, _ in log.replay()] == kept
    home.restart()
    assert [location for _, _, location, _ in home.frames] == kept
    assert [segment.number for segment in home.log.segments()] == [2, 3]
    assert home.log.read(kept[0])[2] == bytes(700)


def test_a_seal_needs_no_seal(home: Home) -> None:
    log = home.log
    log.append([(20, 1, b"x")])
    log.seal()
    sealed = log.written_batch
    assert log.synced_batch == sealed
    log.seal()
    assert log.written_batch == sealed
    log.append([(20, 1, b"y")])
    log.seal()
    assert log.written_batch == sealed + 2
    assert bodies(log) == [b"x", b"y"], "a seal is the log's own and not shown"


def test_frames_that_join_the_batch_of_a_witness_still_need_a_seal(home: Home) -> None:
    log = home.log
    log.append([(20, 1, b"x")])
    log.sync()
    if log.witness():
        assert not log.witness()
    log.append([(20, 1, b"joined")])
    log.sync()
    before = log.written_batch
    log.seal()
    assert log.written_batch == before + 1
    assert not log.witness()


def test_a_closed_log_takes_nothing_more(home: Home) -> None:
    log = home.log
    log.close()
    log.close()
    for attempt in (lambda: log.append([(20, 1, b"x")]), log.sync, log.seal, log.begin_sync):
        with pytest.raises(Closed):
            attempt()


def test_a_log_of_files_takes_no_append_before_it_was_replayed(tmp_path: Path) -> None:
    log = FileLog.open(PosixDisk(tmp_path))
    with pytest.raises(Closed) as caught:
        log.append([(20, 1, b"x")])
    assert caught.value.code == "not_replayed"
    replay = log.replay()
    assert list(replay) == []
    log.append([(20, 1, b"x")])
    log.close()


def test_settings_out_of_bounds_are_refused_before_the_directory_is_touched() -> None:
    disk = SimDisk(1)
    for bytes_ in (100, 1 << 33):
        with pytest.raises(Invalid):
            FileLog.open(disk, segment_bytes=bytes_)
    assert disk.operations == 0
