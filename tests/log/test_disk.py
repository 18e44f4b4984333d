"""The disk seam: the real and the simulated one behave alike, and short writes are completed."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.errors import Conflict
from tenure.log.disk import Disk, PosixDisk, write_whole
from tenure.testing.simdisk import SimDisk


@pytest.fixture(params=["files", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return PosixDisk(tmp_path / "root") if request.param == "files" else SimDisk(1)


def test_a_disk_is_memory_where_the_file_system_of_its_directory_is(tmp_path: Path) -> None:
    """As another program says it, of the tests' own directory and of the one that Linux keeps in memory."""
    for path in (tmp_path, Path("/dev/shm")):
        if path.is_dir():
            kind = subprocess.run(["stat", "-f", "-c", "%T", path], check=True, capture_output=True, text=True).stdout
            assert PosixDisk(path).is_memory is (kind.strip() in ("tmpfs", "ramfs"))
    assert not SimDisk().is_memory


def test_a_disk_is_no_memory_where_the_kernel_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = "36 35 0:7 / /elsewhere rw,noatime shared:1 - tmpfs tmpfs rw"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounted)
    assert not PosixDisk(tmp_path).is_memory

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not PosixDisk(tmp_path).is_memory


def test_a_file_is_created_written_read_and_cut(disk: Disk) -> None:
    disk.mkdir("d")
    disk.mkdir("d")
    file = disk.create("d/a")
    assert disk.pwrite(file, b"hello", 3) == 5
    assert disk.size(file) == 8
    assert disk.pread(file, 100, 0) == b"\0\0\0hello"
    assert disk.pread(file, 2, 4) == b"el"
    assert disk.pread(file, 2, 100) == b""
    disk.allocate(file, 20)
    disk.allocate(file, 10)
    assert disk.size(file) == 20
    assert disk.pread(file, 20, 0) == b"\0\0\0hello" + bytes(12)
    disk.truncate(file, 5)
    assert disk.pread(file, 20, 0) == b"\0\0\0he"
    disk.sync(file)
    disk.close(file)


def test_creating_over_a_file_empties_it(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"old", 0)
    again = disk.create("a")
    assert disk.size(again) == 0
    disk.close(file)
    disk.close(again)


def test_names_are_listed_renamed_and_removed(disk: Disk) -> None:
    disk.mkdir("d")
    for name in ("d/b", "d/a"):
        disk.close(disk.create(name))
    assert disk.listdir("d") == ["a", "b"]
    disk.rename("d/a", "d/c")
    disk.sync_dir("d")
    assert disk.listdir("d") == ["b", "c"]
    disk.unlink("d/b")
    disk.sync_dir("")
    assert disk.listdir("d") == ["c"]
    assert disk.listdir("nowhere") == []
    for missing in (lambda: disk.open("d/b"), lambda: disk.unlink("d/b"), lambda: disk.create("nowhere/x")):
        with pytest.raises(FileNotFoundError):
            missing()
    assert disk.free_bytes() > 0


def test_a_file_that_lost_its_name_can_still_be_read(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x", 0)
    disk.unlink("a")
    assert disk.pread(file, 1, 0) == b"x"
    disk.close(file)


def test_the_lock_is_held_until_it_is_let_go(disk: Disk, tmp_path: Path) -> None:
    """Fault 16."""
    disk.lock()
    second = PosixDisk(tmp_path / "root") if isinstance(disk, PosixDisk) else disk
    with pytest.raises(Conflict) as caught:
        second.lock()
    assert caught.value.code == "locked"
    disk.unlock()
    disk.unlock()
    second.lock()
    second.unlock()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """Fault 16: also after kill -9 of the first."""
    code = (
        "import sys, time; from tenure.log.disk import PosixDisk; disk = PosixDisk(sys.argv[1]); disk.lock();"
        " print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(Conflict):
            PosixDisk(tmp_path).lock()
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    disk = PosixDisk(tmp_path)
    disk.lock()
    disk.unlock()


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 11: the kernel may take fewer bytes than it was given."""
    disk = PosixDisk(tmp_path)
    file = disk.create("a")
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:3], offset))
    write_whole(disk, file, b"0123456789", offset=2)
    assert disk.pread(file, 100, 0) == b"\0\x000123456789"
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: 0)
    with pytest.raises(OSError):
        write_whole(disk, file, b"x" * 10, offset=0)
    disk.close(file)


def test_a_short_read_goes_on_to_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk(tmp_path)
    file = disk.create("a")
    disk.pwrite(file, b"0123456789", 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, offset: pread(file, min(count, 4), offset))
    assert disk.pread(file, 9, 0) == b"012345678"
    assert disk.pread(file, 90, 1) == b"123456789"
    disk.close(file)


def test_a_sync_fails_once_the_file_or_the_root_is_gone(tmp_path: Path) -> None:
    """Fault 17."""
    disk = PosixDisk(tmp_path / "root")
    file, other = disk.create("a"), disk.create("b")
    disk.sync(file)
    (tmp_path / "root" / "a").unlink()
    with pytest.raises(OSError) as caught:
        disk.sync(file)
    assert caught.value.errno == errno.ESTALE
    (tmp_path / "root").rename(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        disk.sync(other)
    disk.close(file)
    disk.close(other)


def test_a_directory_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PosixDisk(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process whose umask takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_what_a_disk_creates_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path / "above" / "root")
    disk.lock()
    disk.mkdir("d")
    disk.close(disk.create("d/a"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "above").rglob("*")}
    assert modes == {"root": 0o700, "lock": 0o600, "d": 0o700, "a": 0o600}


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root").chmod(0o755)
    PosixDisk(tmp_path / "root").mkdir("d")
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o755
