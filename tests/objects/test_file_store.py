"""The directory as a store: what is there is whole and durable, in this order and no other."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from tenure.buffer import ObjectExists, ObjectMissing, OutcomeUnknown, StoreFull, StoreRefused, open_store
from tenure.errors import Invalid
from tenure.objects.file_store import FileStore
from tests.kit.buffers import consumed, produced


class Recorder:
    """Notes what is asked of the file system, and fails at one call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int | str = -1, *, number: int = errno.EIO) -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._number = number
        for name in ("open", "write", "fsync", "link", "close"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            what = name
            if name == "fsync":
                what = "fsync directory" if os.path.isdir(f"/proc/self/fd/{args[0]}") else "fsync file"
            if name != "close":
                self.calls.append(what)
                if self._fail_at in (len(self.calls), what):
                    raise OSError(self._number, os.strerror(self._number))
            return real(*args, **options)

        return call


async def test_an_object_is_synced_before_it_is_named_and_its_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Naive: a plain library store writes and renames; a power loss leaves an empty file under the key, or none."""
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("data/first", b"x")  # the directories are there and durable
    recorder = Recorder(monkeypatch)
    await store.put_new("data/second", b"x")
    steps = [call for call in recorder.calls if call not in {"open", "close"}]
    assert steps == ["write", "fsync file", "link", "fsync directory"]


async def test_new_directories_are_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(monkeypatch)
    await open_store(f"file://{tmp_path}/new/b").put_new("data/first", b"x")
    assert recorder.calls.count("fsync directory") >= 3


@pytest.mark.parametrize("fail_at", range(1, 12))
async def test_a_write_that_fails_anywhere_leaves_a_whole_object_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
):
    """Fault 52: nothing partial is ever visible, and the outcome is reported as unknown."""
    store = open_store(f"file://{tmp_path}/b")
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, fail_at)
        try:
            await store.put_new("data/a", b"whole")
            assert len(recorder.calls) < fail_at
        except OutcomeUnknown:
            assert len(recorder.calls) == fail_at
    store = open_store(store.url)
    try:
        assert await store.get("data/a", limit_bytes=100) == b"whole"
    except ObjectMissing:
        await store.put_new("data/a", b"whole")
    assert [info.key async for info in store.list("")] == ["data/a"]


async def test_a_directory_that_could_not_be_synced_is_not_trusted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Naive: the repeated create finds its own file, and calls it durable; fsync reports an error only once."""
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("data/first", b"x")
    with monkeypatch.context() as patch:
        Recorder(patch, fail_at=6)
        with pytest.raises(OutcomeUnknown):
            await store.put_new("data/second", b"x")
    for repeated in (store.put_new("data/third", b"x"), store.get("data/second", limit_bytes=1)):
        with pytest.raises(StoreRefused, match="synced"):
            await repeated


async def test_a_write_that_a_full_disk_stopped_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Naive: every attempt leaves its half under a hidden name, and keeps the disk full."""

    write = os.write

    def full(descriptor: int, data: memoryview) -> int:
        if bytes(data) == b"too much":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    store = open_store(f"file://{tmp_path}/b")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreFull, match="No space"):
            await store.put_new("data/a", b"too much")
    assert list((tmp_path / "b" / ".partial").iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync file", "link", "fsync directory"])
async def test_a_full_disk_leaves_the_outcome_unknown_only_after_the_object_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    """Naive: every full disk is an unknown outcome, and the caller must look for what was surely not written."""
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("data/first", b"x")  # the directories are there and durable
    with monkeypatch.context() as patch:
        Recorder(patch, fail_at=call, number=number)
        with pytest.raises(OutcomeUnknown if call == "fsync directory" else StoreFull):
            await store.put_new("data/second", b"x")
    assert (tmp_path / "b" / "data" / "second").exists() == (call == "fsync directory")


async def test_a_copy_without_room_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("data/first", b"x")
    with monkeypatch.context() as patch:
        Recorder(patch, fail_at="link", number=errno.ENOSPC)
        with pytest.raises(StoreFull):
            await store.copy("data/first", "data/second")
    assert [info.key async for info in store.list("")] == ["data/first"]


async def test_a_directory_that_cannot_be_made_is_refused_by_name():
    with pytest.raises(StoreRefused, match="/proc/nowhere"):
        await open_store("file:///proc/nowhere/b").put_new("data/a", b"x")


async def test_a_name_that_exists_is_synced_before_it_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Naive: no descriptor between link and sync; the repeated create gets "exists", and the name is never synced."""
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("data/first", b"x")
    real, failures = os.open, [1]

    def no_descriptors(path: Any, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECTORY and failures:
            failures.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_descriptors)
        with pytest.raises(OutcomeUnknown, match="Too many"):
            await store.put_new("data/second", b"x")
    recorder = Recorder(monkeypatch)
    with pytest.raises(ObjectExists):
        await store.put_new("data/second", b"x")
    assert recorder.calls[-1] == "fsync directory"


@pytest.mark.parametrize("what", ["dangling", "file"])
@pytest.mark.parametrize("where", ["b", "b/data", "b/.partial"])
async def test_a_directory_that_is_none_is_refused_and_nothing_counts_as_stored(tmp_path: Path, what: str, where: str):
    """Naive: `data/` leads to a disk that is not mounted; mkdir says "exists", and so every batch counts as stored."""
    place = tmp_path / where
    place.parent.mkdir(exist_ok=True)
    if what == "dangling":
        place.symlink_to(tmp_path / "unmounted")
    else:
        place.write_bytes(b"")
    for write in (FileStore.put_new, FileStore.put):
        with pytest.raises(StoreRefused, match="not a directory"):
            await write(FileStore(tmp_path / "b"), "data/a", b"x")


async def test_a_batch_on_a_disk_that_went_away_is_not_acknowledged(tmp_path: Path):
    url, disk = f"file://{tmp_path}/b", tmp_path / "disk"
    await produced(open_store(url), [b"a"])
    shutil.move(tmp_path / "b" / "data", disk)
    (tmp_path / "b" / "data").symlink_to(disk)
    await produced(open_store(url), [b"b"])
    disk.rename(tmp_path / "unmounted")
    with pytest.raises(StoreRefused, match="not a directory"):
        await produced(open_store(url), [b"c"])
    (tmp_path / "unmounted").rename(disk)
    assert await consumed(open_store(url)) == [b"a", b"b"]


async def test_a_reader_syncs_what_is_only_just_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Naive: a consumer writes to its sink what a power loss takes back, and the sequence is given again."""
    store = open_store(f"file://{tmp_path}/b")
    await store.put_new("manifest/1", b"x")
    recorder = Recorder(monkeypatch)
    await store.get("manifest/1", limit_bytes=1)
    assert "fsync directory" in recorder.calls


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "a/./b", ".partial/a", "a\0b"])
async def test_a_key_stays_below_the_directory(tmp_path: Path, key: str):
    with pytest.raises(Invalid):
        await open_store(f"file://{tmp_path}/b").put_new(key, b"x")


@pytest.mark.parametrize(
    "url",
    [
        "/tmp/x",
        "ftp://h/x",
        "file://host/x",
        "file:x",
        "s3:///prefix",
        "s3://key:secret@bucket/x",
        "s3://b/x?secret_key=1",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str):
    with pytest.raises(Invalid):
        open_store(url)


async def test_a_url_leads_back_to_the_same_store(tmp_path: Path):
    store = open_store(f"file://{tmp_path}/a%20b")
    await store.put_new("k", b"x")
    assert (tmp_path / "a b" / "k").read_bytes() == b"x"
    for again in (open_store(store.url), pickle.loads(pickle.dumps(store))):
        assert await again.get("k", limit_bytes=1) == b"x"
    assert open_store("s3://b/p?region=r&endpoint=http://h").url == "s3://b/p?region=r&endpoint=http%3A%2F%2Fh"
