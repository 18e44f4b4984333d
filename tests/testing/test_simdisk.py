"""The simulated disk forgets what a real one may forget, and nothing else."""

from __future__ import annotations

import errno
import time

import pytest

from tenure.errors import Conflict
from tenure.testing.power_loss import MODES
from tenure.testing.simdisk import CrashMode, Failure, PowerLoss, SimDisk


def named(name: str = "a", data: bytes = b"old") -> tuple[SimDisk, int]:
    """Give a disk with one durable file."""
    disk = SimDisk(1, sector_bytes=4)
    file = disk.create(name)
    disk.pwrite(file, data, 0)
    disk.sync(file)
    disk.sync_dir("")
    return disk, file


def test_what_was_not_synced_is_lost() -> None:
    """Fault 2."""
    disk, file = named()
    disk.pwrite(file, b"new", 0)
    assert disk.content("a") == b"new"
    assert disk.crash("lost").content("a") == b"old"
    disk.sync(file)
    assert disk.crash("lost").content("a") == b"new"


def test_a_name_that_was_not_synced_is_lost_with_its_file() -> None:
    """Fault 3."""
    disk = SimDisk(1)
    file = disk.create("a")
    disk.pwrite(file, b"x", 0)
    disk.sync(file)
    assert disk.crash("lost").names() == []
    disk.sync_dir("")
    assert disk.crash("lost").content("a") == b"x"


def test_a_directory_that_was_not_synced_is_lost_with_all_in_it() -> None:
    disk = SimDisk(1)
    disk.mkdir("d")
    disk.sync(disk.create("d/a"))
    disk.sync_dir("d")
    assert disk.crash("lost").names() == []
    disk.sync_dir("")
    assert disk.crash("lost").names() == ["d/a"]


def test_a_rename_and_an_unlink_that_were_not_synced_are_undone() -> None:
    """Fault 4."""
    disk, _ = named()
    disk.rename("a", "b")
    assert disk.crash("lost").names() == ["a"]
    assert disk.crash("kept").names() == ["b"]
    disk.sync_dir("")
    disk.unlink("b")
    assert disk.crash("lost").names() == ["b"]
    disk.sync_dir("")
    assert disk.crash("lost").names() == []


def test_a_file_that_moved_to_another_directory_is_in_both_until_both_are_synced_and_then_in_one() -> None:
    disk, _ = named()
    disk.mkdir("d")
    disk.sync_dir("")
    disk.rename("a", "d/a")
    assert disk.crash("lost").names() == ["a"]
    assert disk.crash("kept").names() == disk.kill().crash("kept").names() == ["d/a"]
    assert all("a" in disk.crash("torn", seed=seed).names() for seed in range(20))
    disk.sync_dir("d")
    assert disk.crash("lost").names() == ["a", "d/a"]
    disk.sync_dir("")
    for mode in MODES:
        assert disk.crash(mode).names() == ["d/a"]


def test_a_torn_write_leaves_any_prefix() -> None:
    disk, file = named(data=b"....")
    disk.pwrite(file, b"abcd", 0)
    worlds = {disk.crash("torn", seed=seed).content("a") for seed in range(100)}
    assert worlds == {b"....", b"a...", b"ab..", b"abc.", b"abcd"}


def test_reordered_writes_land_by_sector_in_any_subset() -> None:
    disk, file = named(data=b"........")
    disk.pwrite(file, b"aaaaAAAA", 0)
    disk.pwrite(file, b"bb", 6)
    worlds = {disk.crash("reordered", seed=seed).content("a") for seed in range(200)}
    assert worlds == {first + second for first in (b"....", b"aaaa") for second in (b"....", b"AAAA", b"..bb", b"AAbb")}


def test_a_kill_loses_nothing_but_makes_nothing_durable() -> None:
    """Fault 1."""
    disk, file = named()
    disk.lock()
    disk.pwrite(file, b"new", 0)
    disk.close(disk.create("b"))
    with pytest.raises(Conflict):
        disk.lock()
    killed = disk.kill()
    killed.lock()
    assert killed.names() == ["a", "b"]
    assert killed.content("a") == b"new"
    assert killed.crash("lost").content("a") == b"old"
    assert killed.crash("lost").names() == ["a"]


def test_the_dead_cannot_touch_the_new_world() -> None:
    disk, file = named()
    world = disk.crash("kept")
    disk.pwrite(file, b"ghost", 0)
    assert world.content("a") == b"old"


@pytest.mark.parametrize("mode", ["lost", "torn", "reordered", "kept", "any"])
def test_the_same_seed_gives_the_same_world(mode: CrashMode) -> None:
    def world() -> bytes:
        disk, file = named()
        for number in range(20):
            disk.pwrite(file, b"%d" % number * 3, number * 2)
        return disk.crash(mode).content("a")

    assert world() == world()


@pytest.mark.parametrize(("failure", "number"), [("EIO", errno.EIO), ("ENOSPC", errno.ENOSPC)])
def test_a_call_fails_when_its_number_comes_and_only_then(failure: Failure, number: int) -> None:
    disk, file = named()
    disk.fail_at(disk.operations + 2, failure)
    disk.pwrite(file, b"x", 0)
    with pytest.raises(OSError) as caught:
        disk.pwrite(file, b"yyyy", 0)
    assert caught.value.errno == number
    assert disk.pwrite(file, b"z", 0) == 1


def test_space_never_runs_out_for_a_read() -> None:
    disk, file = named()
    disk.fail_at(disk.operations + 1, "ENOSPC")
    assert disk.pread(file, 3, 0) == b"old"


def test_a_short_write_takes_a_part_and_says_so() -> None:
    """Fault 11."""
    disk, file = named()
    disk.fail_at(disk.operations + 1, "short")
    count = disk.pwrite(file, b"0123456789", 0)
    assert 0 < count < 10
    assert disk.content("a")[:count] == b"0123456789"[:count]


def test_after_a_crash_every_call_is_dead() -> None:
    disk, file = named()
    disk.fail_at(disk.operations + 1, "crash")
    for _ in range(3):
        with pytest.raises(PowerLoss):
            disk.pwrite(file, b"x", 0)


def test_a_failed_sync_loses_what_it_was_to_save_although_it_can_still_be_read() -> None:
    """Fault 13: the kernel marks the pages clean; a second sync reports success and saves nothing."""
    disk, file = named()
    disk.pwrite(file, b"new", 0)
    disk.fail_at(disk.operations + 1, "EIO")
    with pytest.raises(OSError):
        disk.sync(file)
    disk.sync(file)
    assert disk.pread(file, 3, 0) == b"new"
    assert disk.crash("lost").content("a") == b"old"


def test_a_full_disk_refuses_and_space_comes_back() -> None:
    """Fault 12."""
    disk = SimDisk(1, capacity_bytes=100)
    file = disk.create("a")
    disk.allocate(file, 80)
    other = disk.create("b")
    with pytest.raises(OSError):
        disk.allocate(other, 30)
    disk.pwrite(file, bytes(80), 0)
    with pytest.raises(OSError):
        disk.pwrite(file, bytes(30), 80)
    disk.unlink("a")
    disk.allocate(other, 30)
    assert disk.free_bytes() == 70


def test_a_flipped_bit_is_seen_and_stays() -> None:
    disk, _ = named()
    disk.flip_bit("a", 9)
    assert disk.content("a") == b"ond"
    assert disk.crash("lost").content("a") == b"ond"


def test_allocated_zeros_take_no_memory() -> None:
    disk = SimDisk(1)
    started = time.perf_counter()
    for number in range(1000):
        file = disk.create(f"{number}")
        disk.allocate(file, 64 << 20)
        assert disk.pread(file, 10, 1000) == bytes(10)
    assert disk.used_bytes() == 1000 * (64 << 20)
    assert len(disk.content("7")) == 0
    assert time.perf_counter() - started < 5


def test_a_file_restored_or_removed_by_an_operator_is_durable() -> None:
    disk = SimDisk(1)
    disk.put("d/a", b"restored")
    assert disk.crash("lost").content("d/a") == b"restored"
    disk.remove("d/a")
    assert disk.crash("kept").names() == []
