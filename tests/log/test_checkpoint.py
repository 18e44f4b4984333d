"""Checkpoints are a cache: kept two deep, believed only when whole."""

from __future__ import annotations

import pytest

from tenure.errors import Corrupt, Overloaded
from tenure.log import Position, checkpoint
from tenure.testing.simdisk import SimDisk

HERE = Position(3, 500, 40, 400, 12345, 1)


def saved(*batches: int) -> SimDisk:
    disk = SimDisk(1)
    for batch in batches:
        checkpoint.save(disk, HERE._replace(batch=batch), b"state %d" % batch)
    return disk


def test_a_checkpoint_comes_back_with_its_position() -> None:
    disk = saved(40)
    assert list(checkpoint.load(disk)) == [(HERE, b"state 40")]


def test_there_are_none_in_a_new_directory() -> None:
    assert list(checkpoint.load(SimDisk(1))) == []
    assert not checkpoint.exists(SimDisk(1))


@pytest.mark.parametrize("batches", [(10, 20, 30), (28, 29, 30)])
def test_the_two_newest_are_kept_newest_first(batches: tuple[int, ...]) -> None:
    found = [position.batch for position, _ in checkpoint.load(saved(*batches))]
    assert found == [batches[2], batches[1]]


def test_a_checkpoint_that_was_removed_does_not_come_back_after_a_power_loss() -> None:
    disk = saved(10, 20, 30).crash("lost")
    assert [position.batch for position, _ in checkpoint.load(disk)] == [30, 20]


def test_one_that_lies_ahead_of_a_newer_save_tells_of_a_lost_history_and_goes() -> None:
    """Fault 9: newer than the log."""
    assert [payload for _, payload in checkpoint.load(saved(10, 90, 20))] == [b"state 20", b"state 10"]
    assert [payload for _, payload in checkpoint.load(saved(10, 21, 20))] == [b"state 20", b"state 10"]


def test_a_checkpoint_damaged_in_any_byte_is_passed_over_and_reported() -> None:
    """Fault 9."""
    disk = saved(10, 20)
    name = disk.names()[-1]
    for bit in range(0, len(disk.content(name)) * 8, 3):
        world = disk.kill()
        world.flip_bit(name, bit)
        skipped: list[str] = []
        assert [payload for _, payload in checkpoint.load(world, skipped=skipped)] == [b"state 10"]
        assert len(skipped) == 1
        assert skipped[0].startswith(name)


def test_an_empty_or_cut_checkpoint_is_passed_over() -> None:
    """Fault 9."""
    disk = saved(10, 20)
    name = disk.names()[-1]
    content = disk.content(name)
    for length in range(len(content)):
        world = disk.kill()
        world.put(name, content[:length])
        assert [payload for _, payload in checkpoint.load(world)] == [b"state 10"]


def test_a_checkpoint_of_a_newer_format_is_passed_over_and_left_alone() -> None:
    """Fault 18."""
    disk = saved(10)
    name = disk.names()[0]
    content = bytearray(disk.content(name))
    content[8] = 2
    disk.put(name, bytes(content))
    skipped: list[str] = []
    assert list(checkpoint.load(disk, skipped=skipped)) == []
    assert "newer" in skipped[0]
    assert disk.names() == [name]


def test_an_unreadable_checkpoint_is_passed_over() -> None:
    disk = saved(10, 20)
    disk.fail_at(disk.operations + 4, "EIO")
    assert [payload for _, payload in checkpoint.load(disk)] == [b"state 10"]


def test_a_power_loss_at_any_call_leaves_the_one_before_or_the_new_one() -> None:
    """Fault 4: renames without a directory sync, in every world."""
    for call in range(1, 40):
        for seed in range(5):
            disk = saved(10, 20)
            disk.fail_at(disk.operations + call, "crash")
            try:
                checkpoint.save(disk, HERE._replace(batch=30), b"state 30")
                finished = True
            except BaseException:
                finished = False
            found = [payload for _, payload in checkpoint.load(disk.crash("any", seed=seed))]
            assert found[0] in ([b"state 30"] if finished else [b"state 30", b"state 20"])


def test_a_full_disk_refuses_the_new_one_and_keeps_the_old() -> None:
    """Fault 12."""
    disk = saved(10)
    disk.capacity_bytes = disk.used_bytes() + 20
    with pytest.raises(Overloaded) as caught:
        checkpoint.save(disk, HERE, b"x" * 100)
    assert caught.value.code == "disk_full"
    assert [payload for _, payload in checkpoint.load(disk)] == [b"state 10"]


def test_one_that_does_not_read_back_as_written_never_replaces_another() -> None:
    disk = saved(10)
    sync = disk.sync

    def decaying(file: int) -> None:
        sync(file)
        disk.flip_bit(f"checkpoints/{HERE.batch:020d}.tmp", 800)

    disk.sync = decaying  # type: ignore[method-assign]
    with pytest.raises(Corrupt):
        checkpoint.save(disk, HERE, b"x" * 100)
    assert [payload for _, payload in checkpoint.load(disk)] == [b"state 10"]
