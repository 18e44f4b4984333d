"""A directory as an object store, with the fsyncs that a plain library store leaves out.

The store writes an object under a hidden name, fsyncs it, links it to its key (which fails if the key is taken), and
then fsyncs the directory: a key either does not exist or holds everything, also after a power loss. A full disk before
the link is ``StoreFull``: nothing was written. A reader of a recent object fsyncs the directory, too, before it returns
it: its writer may not have got that far, and the caller must not act on what a power loss could take back. Calls run
in threads, as fsync blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from tenure.errors import Invalid
from tenure.objects.store import (
    Bytes,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
    is_key,
)

__all__ = ["FileStore"]

T = TypeVar("T")
_HIDDEN = ".partial"
_LEFT_OVER_S = 3_600
_FRESH_S = 60
_PAGE = 1_000
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileStore:
    """Objects as files below one directory, which is made with the first object.

    After a failed fsync of a directory every write, read and delete raises StoreRefused (``store_failed``), for as
    long as this object lives: the kernel reports such a failure once, so a later success would prove nothing. What
    the failed call wrote may be there or not, now and after a power loss. A log whose home this is does what it does
    after EIO on its own disk: every caller that waits gets Indeterminate, and the process ends without leading any
    further; the next process reads what is there, through a new object.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        self._known: set[Path] = set()
        self._count = 0
        self._failed: OSError | None = None

    @property
    def root(self) -> Path:
        """The directory of the objects."""
        return self._root

    @property
    def url(self) -> str:
        return "file://" + quote(str(self._root))

    def __reduce__(self) -> tuple[type[FileStore], tuple[Path]]:
        return FileStore, (self._root,)

    async def put_new(self, key: str, data: Bytes) -> None:
        await self._run(lambda: self._write(key, data, os.link))

    async def put(self, key: str, data: Bytes) -> None:
        await self._run(lambda: self._write(key, data, os.replace))

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        return await self._run(lambda: self._read(key, start, length, limit_bytes))

    async def head(self, key: str) -> ObjectInfo:
        def look() -> ObjectInfo:
            status = self._path(key).stat()
            return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

        return await self._run(look)

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        keys = await self._run(lambda: sorted(self._keys(prefix, start_after or "")))
        for first in range(0, len(keys), _PAGE):
            for info in await self._run(lambda page=keys[first : first + _PAGE]: list(self._infos(page))):  # type: ignore[misc]
                yield info

    async def copy(self, source: str, target: str) -> None:
        """Link a second name to the same file, after a sync: its writer may not have synced it."""
        await self._run(lambda: self._copy(source, target))

    async def delete(self, keys: Sequence[str]) -> None:
        def remove() -> None:
            for key in keys:
                self._path(key).unlink(missing_ok=True)

        await self._run(remove)

    async def now_ms(self) -> int:
        """Return the file system's time: what it stamps on a file written now."""

        def stamp() -> int:
            hidden = self._hidden()
            hidden.touch()
            try:
                return hidden.stat().st_mtime_ns // 1_000_000
            finally:
                hidden.unlink()

        return await self._run(stamp)

    async def _run(self, work: Callable[[], T]) -> T:
        """Do blocking work in a thread of this process, and raise its failures as the store's errors."""
        if self._threads is None or self._threads[0] != os.getpid():  # threads do not survive a fork
            self._threads = (os.getpid(), ThreadPoolExecutor(16, thread_name_prefix="tenure-file-store"))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads[1], work)
        except FileExistsError as error:
            raise ObjectExists(f"the object is there already: {error.filename2 or error.filename}") from None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ObjectMissing(f"no such object: {error.filename}") from None
        except PermissionError as error:
            raise StoreRefused(f"the directory does not allow it: {error}") from error
        except OSError as error:
            raise OutcomeUnknown(f"the file system failed: {error}") from error

    def _path(self, key: str) -> Path:
        if self._failed is not None:
            raise StoreRefused(
                f"a directory could not be synced before: check the disk, then open the store again: {self._failed}",
                code="store_failed",
            )
        if not is_key(key) or _HIDDEN in key.split("/"):
            raise Invalid(f"not a key of a store: {key!r}")
        return self._root / key

    def _hidden(self) -> Path:
        """Return a name that no listing shows, and delete what a killed process left there over an hour ago."""
        folder = self._root / _HIDDEN
        if folder not in self._known:
            _make(folder)
            for left in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if left.stat().st_mtime < time.time() - _LEFT_OVER_S:
                        left.unlink()
            self._known.add(folder)
        self._count += 1
        return folder / f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}-{self._count}"

    def _write(self, key: str, data: Bytes, publish: Callable[[Path, Path], None]) -> None:
        path = self._path(key)
        try:
            with _unwritten():
                hidden = self._hidden()
            try:
                with _unwritten():
                    _fill(hidden, data)
                    self._folder(path.parent)
                self._publish(hidden, path, publish)
            finally:
                hidden.unlink(missing_ok=True)  # also where the disk is full: the rest would keep it full
        except (FileNotFoundError, NotADirectoryError) as error:
            raise PermissionError(f"{error.filename} is gone, or cannot be made") from error

    def _publish(self, hidden: Path, path: Path, publish: Callable[[Path, Path], None]) -> None:
        """Link a whole file to its key, and sync the name; an existing one may be ours, from before its sync failed."""
        try:
            with _unwritten():
                publish(hidden, path)
        except FileExistsError:
            self._sync(path.parent)
            raise
        self._sync(path.parent)

    def _copy(self, source: str, target: str) -> None:
        origin, path = self._path(source), self._path(target)
        _sync_content(origin)
        with _unwritten():
            hidden = self._hidden()
        try:
            with _unwritten():
                os.link(origin, hidden)
                self._folder(path.parent)
                os.replace(hidden, path)
            self._sync(path.parent)
        finally:
            hidden.unlink(missing_ok=True)  # two names of one file are not replaced

    def _folder(self, folder: Path) -> None:
        """Make a directory and every one above it durable, once."""
        if folder in self._known:
            return
        _make(folder)
        above = folder
        while above != self._root.parent and above != above.parent:
            above = above.parent
            self._sync(above)
        self._known.add(folder)

    def _sync(self, folder: Path) -> None:
        """Make a directory's names durable. A failure is final: a second fsync would succeed, and prove nothing."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._failed = error
            raise
        finally:
            os.close(descriptor)

    def _read(self, key: str, start: int, length: int | None, limit_bytes: int) -> bytes:
        path = self._path(key)
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_ctime > time.time() - _FRESH_S:
                self._sync(path.parent)
            size = max(0, status.st_size - start)
            wanted = size if length is None else min(size, length)
            if wanted > limit_bytes:
                raise Invalid(f"{key} has {wanted:,} bytes, the limit is {limit_bytes:,}", code="object_too_large")
            parts: list[bytes] = []
            while wanted > 0 and (part := os.pread(file.fileno(), wanted, start)):
                parts.append(part)
                start, wanted = start + len(part), wanted - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _keys(self, prefix: str, start_after: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]
        stack = [folder]
        while stack:
            below = stack.pop()
            try:
                scanned = list(os.scandir(self._root / below if below else self._root))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for item in scanned:
                key = f"{below}/{item.name}" if below else item.name
                if item.name == _HIDDEN:
                    continue
                if item.is_dir(follow_symlinks=False):
                    stack.append(key)
                elif key.startswith(prefix) and key > start_after:
                    yield key

    def _infos(self, keys: Sequence[str]) -> Iterator[ObjectInfo]:
        for key in keys:
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                status = (self._root / key).stat()
                yield ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)


@contextlib.contextmanager
def _unwritten() -> Iterator[None]:
    """Raise StoreFull for a full disk within the block, which comes before the object has its name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise StoreFull(f"there is no room: {error}. Nothing was written: free some space, then repeat it") from error


def _make(folder: Path) -> None:
    """Make a directory and those above it. Raises PermissionError for a dangling link or a file in its place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise PermissionError(f"{error.filename} is not a directory: mount the disk, or move it away") from None


def _sync_content(path: Path) -> None:
    """Make durable the content that another process wrote."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(path: Path, data: Bytes) -> None:
    """Write a new file whole, and make its content durable."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
