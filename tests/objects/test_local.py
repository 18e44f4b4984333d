"""A log's home on file:// is on a local disk."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.errors import Invalid
from tenure.objects import local
from tenure.objects.local import check_local

REMOTE = {0x6969: "NFS", 0xFF534D42: "SMB", 0xFE534D42: "SMB", 0x65735546: "FUSE", 0x01021997: "9p"}
MNT_DETACH = 2


def test_a_local_directory_is_accepted_also_before_it_exists(tmp_path: Path):
    check_local(tmp_path)
    check_local(tmp_path / "not" / "yet")


def test_the_kernel_is_asked_for_the_file_system_of_the_directory_itself():
    """/proc is on no disk of the machine, and has a number of its own."""
    assert local._file_system(Path("/proc/self")) == 0x9FA0


@pytest.mark.parametrize("number", REMOTE)
def test_a_remote_file_system_is_refused_by_name_with_what_to_use_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    """Naive: its cache hides a fence for a minute, and two processes lead one log."""
    monkeypatch.setattr(local, "_file_system", lambda path: number)
    with pytest.raises(
        Invalid, match=f"is on {REMOTE[number]}, .* use a directory on a local disk, or a bucket"
    ) as told:
        check_local(tmp_path / "home")
    assert told.value.code == "store_not_local"
    assert not (tmp_path / "home").exists()


def test_a_link_is_followed_to_where_the_objects_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "link").symlink_to("/proc/self")
    monkeypatch.setattr(local, "_REMOTE", {0x9FA0: "proc"})
    with pytest.raises(Invalid, match="is on proc"):
        check_local(tmp_path / "link" / "home")


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[Path]:
    """A FUSE mount of another user, which the kernel answers for: no program serves it."""
    libc, place = ctypes.CDLL(None), tmp_path / "fuse"
    place.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("this machine has no FUSE")
    try:
        options = f"fd={device},rootmode=40000,user_id=1,group_id=1"
        if libc.mount(b"tests", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
            pytest.skip("mounting needs root")
        try:
            yield place
        finally:
            libc.umount2(os.fsencode(place), MNT_DETACH)
    finally:
        os.close(device)


def test_a_real_fuse_mount_is_refused_and_so_is_a_directory_that_cannot_be_looked_at(fuse: Path):
    with pytest.raises(Invalid, match="is on FUSE"):
        check_local(fuse)
    with pytest.raises(Invalid, match=r"cannot find out where .* Permission denied"):
        check_local(fuse / "home")
