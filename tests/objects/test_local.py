"""A log's home on file:// is on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.errors import Invalid
from tenure.objects import local
from tenure.objects.local import check_local

REMOTE = {0x6969: "NFS", 0xFF534D42: "SMB", 0xFE534D42: "SMB", 0x65735546: "FUSE", 0x01021997: "9p"}


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


def test_a_directory_that_cannot_be_looked_at_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "_nearest", lambda path: path)
    with pytest.raises(Invalid, match="No such file"):
        check_local(Path("/nowhere/at/all"))
