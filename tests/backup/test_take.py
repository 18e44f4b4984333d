"""Taking a backup of a log in use: what it holds, where it may go, and what it does to the log, which is nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.backup.files import read_manifest
from tenure.backup.manifest import BEGUN, MANIFEST
from tenure.backup.place import open_place
from tenure.backup.settings import BackupSettings
from tenure.backup.source import Source
from tenure.backup.take import Pace, take_backup
from tenure.backup.verify import verify_backup
from tenure.errors import Conflict, Corrupt, Invalid, NotFound, Overloaded
from tenure.log import FileLog, checkpoint
from tenure.log.disk import PosixDisk
from tenure.log.features import FEATURES, Feature
from tenure.log.segment import segment_name, segment_numbers
from tenure.log.spare_segments import unpublished_name
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.backup.places import SMALL, opened, place_on, taken
from tests.broker.damaged import rich_log
from tests.kit import run


def log_of(disk: SimDisk | PosixDisk, *, batches: int, body: bytes = b"." * 300) -> FileLog:
    """A log in use, with so many batches, synced; a few make a segment."""
    log = FileLog.open(disk, segment_bytes=4096)
    list(log.replay())
    for number in range(batches):
        log.append([(16, 7, b"%06d" % number + body)])
        log.sync()
    return log


def test_a_backup_of_a_log_in_use_walks_to_the_last_batch_and_changes_nothing():
    disk, store = SimDisk(), SimStore()
    log = log_of(disk, batches=40)
    before = {name: disk.content(name) for name in disk.names()}
    with place_on(store) as place:
        manifest = taken(disk, place)
        found = verify_backup(place)
    assert {name: disk.content(name) for name in disk.names()} == before
    assert (found.problems, found.frames) == ([], 40)
    assert (manifest.position, len(manifest.segments)) == (log.position(), len(log.segments()))
    assert (manifest.log_id, manifest.tenure, manifest.created_ms) == (log._heads[0].log_id.hex(), "1.2.3", 5)
    assert (manifest.base, manifest.epoch) == (None, log.epoch)
    assert manifest.features == [(feature.name, feature.since) for feature in FEATURES]


def test_a_batch_that_was_written_and_not_synced_is_in_the_backup():
    disk, store = SimDisk(), SimStore()
    log = log_of(disk, batches=3)
    log.append([(16, 7, b"acknowledged with class disk")])
    log.write()
    with place_on(store) as place:
        assert taken(disk, place).position == log.position()
        assert verify_backup(place).frames == 4


def test_what_lies_in_a_segment_that_is_not_published_yet_is_in_the_backup():
    disk, store = SimDisk(), SimStore()
    log = log_of(disk, batches=3)
    while unpublished_name(2) not in disk.names() or len(log.segments()) < 4:
        log.append([(16, 7, b"." * 400)])
        log.write()
    assert segment_numbers(disk) == [1], "three segments were begun, and no sync has published them"
    with place_on(store) as place:
        manifest = taken(disk, place)
        assert manifest.position == log.position()
        assert [segment.number for segment in manifest.segments] == [1, 2, 3, 4]
        assert verify_backup(place).problems == []


def test_a_segment_that_gets_its_name_between_two_looks_is_in_the_backup(monkeypatch: pytest.MonkeyPatch):
    disk = SimDisk()
    log = log_of(disk, batches=3)
    while len(log.segments()) < 2:
        log.append([(16, 7, b"." * 400)])
        log.write()
    source, listed = Source(disk, held_max=8), list[int]()
    listdir = disk.listdir

    def publish_after_the_first_look(name: str) -> list[str]:
        found = listdir(name)
        listed.append(len(found))
        if len(listed) == 2:  # the heads were listed, and then the names once more: neither shows the second segment
            log.sync()
        return found

    monkeypatch.setattr(disk, "listdir", publish_after_the_first_look)
    source.hold()
    assert source.end == log.position()
    source.close()


def test_a_torn_tail_is_left_out():
    disk, store = SimDisk(), SimStore()
    log = log_of(disk, batches=3)
    end = log.position()
    file = disk.open(segment_name(1), write=True)
    disk.pwrite(file, b"half of a batch", end.offset)
    with place_on(store) as place:
        assert taken(disk, place).position == end
        assert verify_backup(place).problems == []


def test_segments_that_are_dropped_while_they_are_copied_are_in_the_backup():
    disk, clock = rich_log()
    engine = opened(disk, clock)
    store = SimStore()

    def drop_the_oldest(call: object) -> None:
        if len(engine.log.segments()) > 1 and len(store.calls) > 4:
            engine.log.drop(engine.log.segments()[0].number)
            engine.sync()

    held = len(segment_numbers(disk))
    store.hook = drop_the_oldest
    with place_on(store) as place:
        manifest = taken(disk, place)
        assert len(manifest.segments) == held > len(segment_numbers(disk))
        assert verify_backup(place).problems == []


def test_a_log_that_is_trimmed_faster_than_it_is_copied_is_refused_without_a_manifest():
    disk = SimDisk()
    log = log_of(disk, batches=60)
    store = SimStore()

    def drop_five(call: object) -> None:
        if len(store.calls) == 5:
            for _ in range(5):
                log.drop(log.segments()[0].number)
            log.sync()

    store.hook = drop_five
    settings = BackupSettings(piece_bytes=1000, rate_bytes_max=0, held_max=2)
    with place_on(store, settings) as place, pytest.raises(Overloaded, match="run the backup again"):
        taken(disk, place)
    assert MANIFEST not in store.objects


def test_the_newest_checkpoint_up_to_the_end_goes_along_and_a_damaged_one_does_not():
    disk, clock = rich_log()
    engine = opened(disk, clock)
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())
    older = engine.log.position()
    run.produce(engine, "jobs", [b"1"])
    engine.sync()
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())
    newer = engine.log.position()
    for flipped, expected in ((False, newer), (True, older)):
        if flipped:
            disk.flip_bit(checkpoint.checkpoint_name(newer.batch), 8 * 200)
        with place_on(SimStore()) as place:
            stored = taken(disk, place).checkpoint
            assert stored is not None
            assert stored.number == expected.batch


def test_a_damaged_log_is_refused_and_the_error_names_the_place():
    disk, store = SimDisk(), SimStore()
    log_of(disk, batches=40)
    disk.flip_bit(segment_name(2), 8 * 600)
    with place_on(store) as place, pytest.raises(Corrupt, match=r"0000000002\.log"):
        taken(disk, place)
    assert MANIFEST not in store.objects


def test_what_is_written_behind_a_chunk_while_it_is_read_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch):
    disk = SimDisk()
    log = log_of(disk, batches=3)
    pread, before, bodies = disk.pread, log.position(), [b"one", b"two", b"three"]

    def write_on(file: int, count: int, offset: int) -> bytes:
        data = pread(file, count, offset)
        while len(data) > 1000 and bodies:
            log.append([(16, 7, bodies.pop())])
            log.sync()
        return data

    monkeypatch.setattr(disk, "pread", write_on)
    with place_on(SimStore()) as place:
        assert taken(disk, place).position == before
        assert not bodies
        assert verify_backup(place).problems == []


def test_damage_in_the_segment_that_is_written_is_refused():
    disk, store = SimDisk(), SimStore()
    log = log_of(disk, batches=5)
    assert len(log.segments()) == 1
    disk.flip_bit(segment_name(1), 8 * 600)
    with place_on(store) as place, pytest.raises(Corrupt, match=r"0000000001\.log"):
        taken(disk, place)
    assert store.objects == {}


def test_a_place_that_holds_a_backup_or_anything_else_is_refused_untouched():
    disk = SimDisk()
    log_of(disk, batches=3)
    finished, foreign = SimStore(), SimStore()
    with place_on(finished) as place:
        taken(disk, place)
    foreign.objects["notes.txt"] = (b"mine", 0)
    for store, code in ((finished, "backup_exists"), (foreign, "not_empty")):
        before = dict(store.objects)
        with place_on(store) as place, pytest.raises(Conflict) as caught:
            taken(disk, place)
        assert (caught.value.code, store.objects) == (code, before)


def test_an_unfinished_backup_is_no_backup_and_the_next_one_takes_its_place():
    disk, store = SimDisk(), SimStore()
    log_of(disk, batches=20)
    with place_on(store) as place:
        store.fail(6, "refused")
        with pytest.raises(Exception, match="refused"):
            taken(disk, place)
        left = {key for key in store.objects if key != BEGUN}
        assert left
        assert BEGUN in store.objects
        with pytest.raises(NotFound, match="no finished backup") as caught:
            read_manifest(place)
        assert caught.value.code == "no_backup"
        taken(disk, place)
        assert not left & store.objects.keys()
        assert BEGUN not in store.objects
        assert verify_backup(place).problems == []


def test_of_two_backups_into_one_place_the_earlier_finds_out_and_writes_no_manifest():
    disk, store = SimDisk(), SimStore()
    log_of(disk, batches=20)

    def start_another(call: object) -> None:
        if len(store.calls) == 8:
            store.hook = lambda call: None
            store.objects[BEGUN] = (b'{"folder":"0123456789abcdef","created_ms":1}', 0)

    store.hook = start_another
    with place_on(store) as place, pytest.raises(Conflict, match="another backup"):
        taken(disk, place)
    assert MANIFEST not in store.objects


def test_sealed_segments_are_linked_on_one_file_system_and_only_the_open_one_is_copied(tmp_path: Path):
    disk = PosixDisk(tmp_path / "data")
    log = log_of(disk, batches=40)
    with open_place(tmp_path / "backup", SMALL) as place:
        manifest = taken(disk, place)
        assert verify_backup(place).problems == []
    assert [segment.whole for segment in manifest.segments] == [True] * (len(log.segments()) - 1) + [False]
    first = tmp_path / "backup" / manifest.segments[0].key
    assert first.samefile(tmp_path / "data" / segment_name(1))
    log.drop(1)
    log.sync()
    assert not (tmp_path / "data" / segment_name(1)).exists()
    with open_place(tmp_path / "backup", SMALL) as place:
        assert verify_backup(place).problems == [], "a dropped segment lives on in the backup"


def test_where_links_are_refused_every_segment_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = PosixDisk(tmp_path / "data")
    log_of(disk, batches=40)

    def refuse(source: object, target: object, **_: object) -> None:
        raise OSError(18, os.strerror(18))

    with open_place(tmp_path / "backup", SMALL) as place:
        monkeypatch.setattr("tenure.backup.place.os.link", _only_for_the_store(os.link, refuse))
        manifest = taken(disk, place)
        monkeypatch.undo()
        assert not any(segment.whole for segment in manifest.segments)
        assert verify_backup(place).problems == []


def _only_for_the_store(link: object, refuse: object) -> object:
    def choose(source: Path, target: Path, **options: object) -> None:
        own = ".partial" in str(source)
        (link if own else refuse)(source, target, **options)  # type: ignore[operator]

    return choose


def test_a_backup_into_its_own_data_directory_is_refused(tmp_path: Path):
    disk = PosixDisk(tmp_path / "data")
    log_of(disk, batches=3)
    for where in (tmp_path / "data", tmp_path / "data" / "backup"):
        with open_place(where) as place, pytest.raises(Invalid, match="name another place"):
            taken(disk, place)
    assert not (tmp_path / "data" / "backup").exists()


def test_a_log_with_a_feature_that_this_version_does_not_know_is_refused_before_anything_is_written():
    disk, store = SimDisk(), SimStore()
    log = FileLog.open(disk, known=[Feature("widgets", "9.1.0")])
    list(log.replay())
    log.close()
    with place_on(store) as place, pytest.raises(Corrupt, match=r"needs Tenure 9\.1\.0") as caught:
        taken(disk, place)
    assert (caught.value.code, store.objects) == ("unknown_feature", {})


def test_a_directory_without_a_log_is_refused_before_anything_is_written():
    store = SimStore()
    with place_on(store) as place, pytest.raises(NotFound, match="no log here"):
        taken(SimDisk(), place)
    assert store.objects == {}


def test_the_memory_of_a_backup_is_bounded_by_the_pieces():
    disk, store = SimDisk(), SimStore()
    log_of(disk, batches=40)
    with place_on(store) as place:
        taken(disk, place)
    pieces = [call.bytes for call in store.calls if call.kind == "put_new" and "/segments/" in call.key]
    assert max(pieces) == SMALL.piece_bytes
    assert len(pieces) > len(segment_numbers(disk))


def test_the_pace_sleeps_off_what_was_read_too_fast():
    slept: list[float] = []
    pace = Pace(1000, sleep=slept.append)
    pace.spend(500_000)
    assert 400 < sum(slept) <= 500
    Pace(0, sleep=slept.append).spend(1 << 40)
    assert len(slept) == 1


def test_a_backup_spends_its_pace_on_every_byte(monkeypatch: pytest.MonkeyPatch):
    disk, spent = SimDisk(), list[int]()
    log_of(disk, batches=40)
    pace = Pace(0)
    monkeypatch.setattr(pace, "spend", spent.append)
    with place_on(SimStore()) as place:
        manifest = take_backup(disk, place, version="1", created_ms=5, pace=pace)
    assert sum(spent) == manifest.bytes
    assert max(spent) <= SMALL.piece_bytes
