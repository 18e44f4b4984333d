"""Every disk call and every store call of a backup and of a restore fails once, in every way.

Whatever fails, the log is as it was, and the place holds either a whole backup or none at all, and takes the next one.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import pytest

from tenure.backup.fetch import fetch_files
from tenure.backup.files import read_manifest
from tenure.backup.manifest import MANIFEST
from tenure.backup.restore import restore_log
from tenure.backup.verify import verify_backup
from tenure.errors import NotFound, TenureError
from tenure.log import checkpoint
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import Failure, PowerLoss, SimDisk
from tenure.testing.simstore import Fault, SimStore
from tests.backup.places import SETTINGS, opened, place_on, records_of, taken
from tests.kit import run

FAULTS: tuple[Fault, ...] = ("lost_request", "lost_reply", "duplicate", "late", "refused", "false_exists")
FAILURES: tuple[Failure, ...] = ("crash", "EIO", "ENOSPC", "short")


@cache
def small_log() -> SimDisk:
    """A few segments, a checkpoint, jobs of every state."""
    disk, clock = SimDisk(3), ManualClock()
    engine = opened(disk, clock)
    run.put_topic(engine, "jobs", {"type": "queue", "durability": "fsync"})
    run.put_topic(engine, "trail", {})
    for number in range(12):
        run.produce(engine, "jobs", [b'"%d-%s"' % (number, b"." * 500)])
        run.produce(engine, "trail", [b'"%d"' % number])
        engine.sync()
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())
    claim = run.claim(engine, "jobs", node="w", max_count=4).reply
    run.ack(engine, "jobs", node="w", seqs=claim.seqs[:2])
    engine.sync()
    engine.log.close()
    return disk


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names()}


def check_place(store: SimStore, note: str) -> None:
    """Check that the place holds a whole backup, or none and takes the next."""
    store.deliver_late()
    with place_on(store) as place:
        if MANIFEST not in store.objects:
            with pytest.raises(NotFound):
                read_manifest(place)
            taken(small_log().kill(), place)
        assert verify_backup(place).problems == [], note


@pytest.mark.parametrize("fault", FAULTS)
def test_no_store_call_that_fails_leaves_half_a_backup_that_passes_for_one(fault: Fault):
    number = 0
    while True:
        disk, store = small_log().kill(), SimStore()
        store.fail(number, fault)
        with place_on(store) as place, suppress(TenureError):
            taken(disk, place)
        assert contents(disk) == contents(small_log())
        if len(store.calls) <= number:
            break
        check_place(store, f"{fault} at call {number}")
        number += 1
    assert number > 15


@pytest.mark.parametrize("failure", ["crash", "EIO"])
def test_no_disk_call_that_fails_under_a_backup_harms_the_log_or_leaves_half_a_backup(failure: Failure):
    call = 1
    while True:
        disk, store = small_log().kill(), SimStore()
        disk.fail_at(call, failure)
        with place_on(store) as place, suppress(TenureError, OSError, PowerLoss):
            taken(disk, place)
        assert contents(disk) == contents(small_log())
        if disk.operations < call:
            break
        check_place(store, f"{failure} at call {call}")
        call += 1
    assert call > 40


@pytest.mark.parametrize("failure", FAILURES)
def test_a_restore_is_whole_and_durable_once_it_returns_and_fails_where_a_disk_call_fails(failure: Failure):
    clock, store = ManualClock(), SimStore()
    whole = records_of(opened(small_log().kill(), clock)).values()
    call, returned = 1, 0
    with place_on(store) as place:
        manifest = taken(small_log().kill(), place)
        fetched = SimDisk(1)
        fetch_files(place, manifest, fetched)
    while True:
        target = SimDisk(2)
        target.fail_at(call, failure)
        try:
            restore_log(
                fetched.kill(), target, end=manifest.position, epoch=manifest.epoch, clock=clock, settings=SETTINGS
            )
        except (TenureError, OSError, PowerLoss):
            assert target.operations >= call
        else:
            returned += 1
            after = opened(target.crash("lost"), clock)
            assert sorted(records_of(after).values()) == sorted(whole), f"{failure} at call {call}"
        if target.operations < call:
            break
        call += 1
    assert call > 40
    assert returned


def test_a_fetch_that_fails_at_any_call_of_the_store_is_an_error_or_whole():
    store = SimStore()
    with place_on(store) as place:
        manifest = taken(small_log().kill(), place)
        fetch_files(place, manifest, good := SimDisk(1))
    for number in range(len(store.calls)):
        again = SimStore()
        again.objects = dict(store.objects)
        again.fail(number, "refused")
        disk = SimDisk(1)
        with place_on(again) as place, suppress(TenureError):
            fetch_files(place, manifest, disk)
            assert contents(disk) == contents(good)
