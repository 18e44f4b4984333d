"""Restoring a backup: the same jobs, in a log of its own."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tenure.backup.directory import restore_directory
from tenure.backup.fetch import fetch_files
from tenure.backup.files import read_manifest
from tenure.backup.incarnation import choose_epoch, release_leases
from tenure.backup.place import Place, open_place
from tenure.backup.restore import RestoredLog, restore_log
from tenure.broker.salvage.rebuild import rebuild
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_topic, load_topic
from tenure.errors import Conflict, Corrupt, NotFound, Overloaded
from tenure.export.buffer_outlet import producer_name
from tenure.export.follower import Follower
from tenure.log import checkpoint
from tenure.log.damage.verify import verify
from tenure.log.disk import PosixDisk
from tenure.log.segment import list_heads
from tenure.log.tail import Tailer
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.backup.places import SETTINGS, SMALL, folded, opened, place_on, records_of, taken
from tests.broker.damaged import rich_log
from tests.kit import run


def restored(
    place: Place, clock: ManualClock, *, keep_leases: bool = False, target: SimDisk | None = None
) -> tuple[SimDisk, RestoredLog]:
    """Restore a backup onto a simulated disk."""
    manifest, fetched, target = read_manifest(place), SimDisk(1), target or SimDisk(2)
    fetch_files(place, manifest, fetched)
    made = restore_log(
        fetched,
        target,
        end=manifest.position,
        epoch=manifest.epoch,
        clock=clock,
        settings=SETTINGS,
        keep_leases=keep_leases,
    )
    return target, made


def busy_log(seed: int = 1) -> tuple[SimDisk, ManualClock]:
    """A rich log with leases of several kinds under way, marks and unique keys."""
    disk, clock = rich_log(seed)
    engine = opened(disk, clock)
    run.put_topic(engine, "busy", {"type": "queue", "lease_ms": 60_000, "max_deliveries": 5, "dead_letter": "letters"})
    for number in range(6):
        run.produce(engine, "busy", [b'"%d"' % number] * 2, client_id="p", client_seq=number + 1)
    engine.sync()
    first = run.claim(engine, "busy", node="a", max_count=3).reply
    run.nack(engine, "busy", node="a", seqs=first.seqs[:1])
    run.claim(engine, "busy", node="b", max_count=1, claim_id="c-1")
    run.extend(engine, "busy", node="a", seqs=first.seqs[1:2], lease_ms=90_000)
    engine.sync()
    engine.log.close()
    return disk, clock


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("keep_leases", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_everything_but_the_identity_is_restored(seed: int, keep_leases: bool, with_checkpoint: bool):
    disk, clock = busy_log(seed)
    if with_checkpoint:
        engine = opened(disk, clock)
        checkpoint.save(disk, engine.log.position(), engine.checkpoint())
        engine.log.close()
    original = opened(disk.kill(), clock)
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, made = restored(place, clock, keep_leases=keep_leases)
    copy = opened(target, clock)
    invariants(copy.state)
    assert records_of(copy) == records_of(original)
    assert (made.records, made.topics) == (len(records_of(original)), len(original.state.by_id))
    before = folded(disk)
    if not keep_leases:
        assert release_leases(before) == made.released >= 3
    for topic in before.by_id.values():
        twin = copy.state.by_id[topic.id]
        topic.leave_out(twin.recreated[1])
        assert dump_topic(topic, now_ms=before.log_ms) == dump_topic(twin, now_ms=before.log_ms), topic.name
    assert before.retired == copy.state.retired
    assert before.next_topic_id == copy.state.next_topic_id
    assert before.routers.keys() == copy.state.routers.keys()


def test_jobs_in_flight_are_the_next_in_line_with_their_delivery_counts():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, _ = restored(place, clock)
    engine = opened(target, clock)
    claim = run.claim(engine, "busy", node="new", max_count=4).reply
    assert (claim.seqs, claim.redelivered) == ([1, 2, 3, 4], {1: 3, 2: 2, 3: 2})
    history = run.job(engine, "busy", 2).history
    assert [(past.end, past.reason) for past in history] == [("restore", "restored from a backup")]


def test_kept_leases_can_be_acked_by_the_workers_that_hold_them_and_new_ones_lie_above():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, made = restored(place, clock, keep_leases=True)
    engine = opened(target, clock)
    held = run.leases(engine, "busy").items
    assert (made.released, sorted(seq for row in held for seq in row.seqs)) == (0, [1, 2, 3])
    for row in held:
        assert run.ack(engine, "busy", node=row.node, lease_id=row.lease_id).reply.count == len(row.seqs)
    fresh = run.claim(engine, "busy", node="x").reply
    assert all(int(row.lease_id[6:], 16) < fresh.lease for row in held)


def test_lease_numbers_of_original_and_copies_do_not_repeat():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        epochs = [restored(place, clock)[1].epoch for _ in range(8)]
    assert len(set(epochs)) == 8
    assert min(epochs) > 65_000


def test_an_epoch_is_drawn_far_from_the_original_and_within_the_lease_numbers():
    for epoch in (1, 65_536, 4_000_000, (1 << 23) - 70_000, (1 << 23) - 1):
        for drawn in range(200):
            found = choose_epoch(epoch, keep_leases=False, random_below=Random(drawn).randrange)
            assert abs(found - epoch) >= 65_536
            assert 0 < found < (1 << 23) - 65_535
    for drawn in range(200):
        assert choose_epoch(5_000_000, keep_leases=True, random_below=Random(drawn).randrange) > 5_065_000


def test_leases_are_not_kept_where_no_number_above_them_is_left():
    with pytest.raises(Conflict, match="without --keep-leases"):
        choose_epoch((1 << 23) - 70_000, keep_leases=True, random_below=Random(1).randrange)


def test_a_reader_ahead_of_the_backup_is_told_recreated_and_reads_what_is_new():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        original = opened(disk, clock)
        run.produce(original, "kept", [b'"only in the original"'] * 5)
        original.sync()
        cursor = run.diff(original, "kept", from_seq=0, limit=1000).next_from_seq
        target, _ = restored(place, clock)
    copy = opened(target, clock)
    run.produce(copy, "kept", [b'"only in the copy"'] * 9)
    copy.sync()
    found = run.diff(copy, "kept", from_seq=cursor)
    assert found.tombstone is not None
    assert found.tombstone.reason == "recreated"
    assert [record.data for record in found.records] == [b'"only in the copy"'] * 9


def test_a_producer_that_repeats_an_append_from_before_the_backup_is_recognised_and_new_ones_get_new_seqs():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, _ = restored(place, clock)
    engine = opened(target, clock)
    with pytest.raises(Conflict, match="it was appended before"):
        run.produce(engine, "busy", [b'"5"'] * 2, client_id="p", client_seq=6)
    fresh = run.produce(engine, "busy", [b'"6"'], client_id="p", client_seq=7).reply
    assert not fresh.deduped
    assert fresh.first_seq > 1 << 24, "seqs that the original may have given out are left out"


def test_a_restored_queue_hands_out_its_old_jobs_and_then_the_new_ones_and_goes_on_after_a_restart():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, _ = restored(place, clock)
    engine = opened(target, clock)
    fresh = run.produce(engine, "busy", [b'"new"'] * 2).reply
    engine.sync()
    engine.log.close()
    engine = opened(target, clock)
    claim = run.claim(engine, "busy", node="w", max_count=100).reply
    assert claim.seqs == [*range(1, 13), fresh.first_seq, fresh.last_seq]
    assert run.ack(engine, "busy", node="w", seqs=claim.seqs).reply.count == 14
    assert run.topic_info(engine, "busy").earliest_seq == fresh.last_seq + 1
    invariants(engine.state)


def test_a_router_that_had_passed_on_everything_copies_what_is_new_in_one_step():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, _ = restored(place, clock)
    engine = opened(target, clock)
    run.produce(engine, "capped", [b'"x"'])
    engine.sync()
    assert engine.state.routers["r2"].cursor == engine.state.topics["capped"].head_seq - 1
    assert not run.forward(engine, engine.state.topics["capped"])


def test_a_copy_of_a_copy_remembers_both_restores():
    disk, clock = busy_log()
    for _ in range(2):
        with place_on(SimStore()) as place:
            taken(disk, place)
            disk, _ = restored(place, clock)
    topic = opened(disk, clock).state.topics["kept"]
    assert len(topic.recreated) == 4
    assert load_topic(dump_topic(topic, now_ms=0)).recreated == topic.recreated


def test_the_tools_take_the_copy_for_a_log_of_its_own():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        manifest = taken(disk, place)
        target, made = restored(place, clock)
    assert verify(target).problems == []
    assert {head.log_id.hex() for head in list_heads(target)} == {made.log_id} != {manifest.log_id}
    assert producer_name(target) != producer_name(disk)
    batches = list(Tailer(target).poll())
    assert batches
    assert [row for step in Follower(target).poll() for row in step.rows] == [], "what is old was exported before"
    salvaged = SimDisk(5)
    assert rebuild(target, salvaged, clock=clock, settings=SETTINGS).complete
    assert (
        opened(salvaged, clock).state.topics["kept"].recreated == opened(target, clock).state.topics["kept"].recreated
    )


def test_a_restored_log_is_durable_once_the_restore_returns_and_opens_from_its_checkpoint():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        target, made = restored(place, clock)
    after = target.crash("lost")
    assert [position.batch for position, _ in checkpoint.load(after)]
    assert len(records_of(opened(after, clock))) == made.records


def test_a_disk_with_a_log_is_refused():
    disk, clock = busy_log()
    with place_on(SimStore()) as place:
        taken(disk, place)
        with pytest.raises(Conflict) as caught:
            restored(place, clock, target=disk)
    assert caught.value.code == "not_empty"


def test_a_damaged_or_missing_piece_is_refused_and_named():
    disk, clock = busy_log()
    store = SimStore()
    with place_on(store) as place:
        manifest = taken(disk, place)
        key = manifest.segments[1].piece_key(0)
        data = store.objects[key][0]
        store.objects[key] = (bytes([data[0] ^ 1]) + data[1:], 0)
        with pytest.raises(Corrupt, match=key):
            restored(place, clock)
        del store.objects[key]
        with pytest.raises(Corrupt, match="it is missing"):
            restored(place, clock)


# Directories


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup in a directory, some segments linked."""
    disk = PosixDisk(tmp_path / "data")
    engine = opened(disk, ManualClock())
    run.put_topic(engine, "jobs", {"type": "queue", "durability": "fsync"})
    for number in range(30):
        run.produce(engine, "jobs", [b'"%d-%s"' % (number, b"." * 300)])
        engine.sync()
    run.claim(engine, "jobs", node="w", max_count=5)
    engine.sync()
    with open_place(tmp_path / "backup", SMALL) as place:
        assert taken(disk, place).segments[0].whole
    engine.log.close()
    return tmp_path / "backup"


@pytest.mark.parametrize("exists", [False, True])
def test_a_directory_that_is_absent_or_empty_becomes_the_data_directory(backup: Path, tmp_path: Path, exists: bool):
    into = tmp_path / "new"
    if exists:
        into.mkdir()
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    with open_place(backup, SMALL) as place:
        _, made = restore_directory(place, into, clock=ManualClock(), settings=SETTINGS)
    assert (made.jobs, made.released) == (30, 5)
    assert run.topic_info(opened(PosixDisk(into), ManualClock()), "jobs").count == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data", "new"]
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == before


def test_a_directory_with_anything_in_it_is_refused_untouched(backup: Path, tmp_path: Path):
    into = tmp_path / "new"
    into.mkdir()
    (into / "mine").write_text("keep")
    with open_place(backup, SMALL) as place, pytest.raises(Conflict, match="not an empty directory"):
        restore_directory(place, into)
    assert [path.name for path in into.iterdir()] == ["mine"]
    assert not (tmp_path / "new.restoring").exists()


def test_what_a_killed_restore_left_is_removed_by_the_next(backup: Path, tmp_path: Path):
    left = tmp_path / "new.restoring"
    (left / "log" / "segments").mkdir(parents=True)
    (left / "log" / "segments" / "0000000001.log").write_bytes(b"half")
    (left / "lock").touch()
    with open_place(backup, SMALL) as place:
        restore_directory(place, tmp_path / "new", clock=ManualClock(), settings=SETTINGS)
    assert not left.exists()
    assert (tmp_path / "new" / "segments").is_dir()


def test_a_restore_that_runs_already_is_not_disturbed(backup: Path, tmp_path: Path):
    running = PosixDisk(tmp_path / "new.restoring")
    running.lock()
    (tmp_path / "new.restoring" / "log").mkdir()
    with open_place(backup, SMALL) as place, pytest.raises(Conflict) as caught:
        restore_directory(place, tmp_path / "new")
    assert caught.value.code == "locked"
    assert (tmp_path / "new.restoring" / "log").is_dir()


def test_files_of_others_beside_the_directory_are_left_alone(backup: Path, tmp_path: Path):
    (tmp_path / "new.restoring").mkdir()
    (tmp_path / "new.restoring" / "mine").write_text("keep")
    with open_place(backup, SMALL) as place, pytest.raises(Conflict, match="move it away"):
        restore_directory(place, tmp_path / "new")
    assert (tmp_path / "new.restoring" / "mine").read_text() == "keep"


def test_a_restore_that_fails_leaves_nothing_behind(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tenure.backup.directory.restore_log", full)
    with open_place(backup, SMALL) as place, pytest.raises(Overloaded, match="free some space") as caught:
        restore_directory(place, tmp_path / "new")
    assert caught.value.code == "disk_full"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]


def test_a_place_without_a_backup_is_not_restored(tmp_path: Path):
    with open_place(tmp_path / "nothing") as place, pytest.raises(NotFound, match="no finished backup"):
        restore_directory(place, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
