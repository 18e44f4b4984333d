"""`Disk`: the only interface between the log and the file system.

Everything durable goes through it, so that a simulated disk can lose, tear and reorder writes as a real one rarely
does. Names are relative to the root. Errors stay ``OSError`` here: only the log knows what a
failure means.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tenure.errors import Closed, Conflict

__all__ = ["Disk", "File", "Files", "PosixDisk", "open_directory", "write_whole"]

#: A handle that only the disk which gave it understands.
File = int

LOCK_NAME = "lock"

# Only the owner may read payloads, also where the umask of the process is wider.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_MEMORY_SYSTEMS = frozenset({"tmpfs", "ramfs"})


class Files(Protocol):
    """The part of a disk that reads files; every method may raise OSError."""

    def open(self, name: str) -> File: ...

    def close(self, file: File) -> None: ...

    def size(self, file: File) -> int: ...

    def pread(self, file: File, count: int, offset: int) -> bytes: ...


class Disk(Protocol):
    """A directory tree with the few operations a log needs; every method may raise OSError."""

    def lock(self) -> None:
        """Take the directory for this process. Raises Conflict, code ``locked``, where another one holds it."""

    def unlock(self) -> None:
        """Release the directory; harmless when it is not held."""

    def identity(self) -> str:
        """Return what tells this directory from a copy of it."""

    def mkdir(self, name: str) -> None:
        """Make a directory unless it is there."""

    def listdir(self, name: str) -> list[str]:
        """List the names in a directory, sorted; none where it does not exist."""

    def create(self, name: str) -> File:
        """Open an empty file for reading and writing; an older file of that name is truncated."""

    def open(self, name: str, *, write: bool = False) -> File:
        """Open a file that exists."""

    def close(self, file: File) -> None: ...

    def size(self, file: File) -> int: ...

    def pread(self, file: File, count: int, offset: int) -> bytes:
        """Read up to ``count`` bytes; fewer only at the end of the file."""

    def pwrite(self, file: File, data: bytes, offset: int) -> int:
        """Write some of ``data`` and return how many bytes; :func:`write_whole` writes all of it."""

    def allocate(self, file: File, size: int) -> None:
        """Make the file at least this long, its space charged now; what is new reads as zeros."""

    def truncate(self, file: File, size: int) -> None: ...

    def sync(self, file: File) -> None:
        """Return once the content is durable; fails too where the file has lost its name."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, name: str) -> None: ...

    def sync_dir(self, name: str) -> None:
        """Return once the names in a directory are durable; ``""`` is the root."""

    def free_bytes(self) -> int: ...

    @property
    def is_memory(self) -> bool:
        """Whether no device is behind this directory: a sync of it returns at once, and always will."""


def write_whole(disk: Disk, file: File, data: bytes, *, offset: int) -> None:
    """Write every byte or raise: a short write is completed, never taken for a whole one (fault 11)."""
    done = disk.pwrite(file, data, offset)
    while done < len(data):
        count = disk.pwrite(file, data[done:], offset + done)
        if count <= 0:
            raise OSError(errno.EIO, "a write made no progress")
        done += count


class PosixDisk:
    """A directory of a Linux file system.

    The root is held open and every name is resolved from it, so that a mount laid over the path cannot split the log
    in two. ``sync`` also checks that what was synced can be found again: an fdatasync of a file whose directory was
    removed succeeds, and would acknowledge data that can never be read (fault 17). What it creates is for its owner
    alone; what is there keeps its mode.

    >>> import tempfile
    >>> from tenure.log import PosixDisk
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     disk = PosixDisk(directory)
    ...     disk.mkdir("segments")
    ...     disk.listdir("")
    ['segments']
    """

    def __init__(self, root: str | Path, *, create: bool = True) -> None:
        self.root = Path(root).resolve()
        if create and not self.root.is_dir():
            self.root.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            _sync_path(self.root.parent)
        self._path = str(self.root)
        self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        found = os.fstat(self._root)
        self._identity = (found.st_dev, found.st_ino)
        self._directories: dict[str, int] = {}
        self._lock: int | None = None

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.unlock()
            for file in (self._root, *self._directories.values()):
                os.close(file)

    def lock(self) -> None:
        file = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT, _FILE_MODE, dir_fd=self._root)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise Conflict(
                f"{self.root} is in use by another process: stop it, or use another directory",
                code="locked",
                path=str(self.root),
            ) from None
        except BaseException:
            os.close(file)
            raise
        self._lock = file

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def identity(self) -> str:
        about = os.fstat(self._root)
        return f"{about.st_dev}:{about.st_ino}"

    def mkdir(self, name: str) -> None:
        try:
            os.mkdir(name, _DIRECTORY_MODE, dir_fd=self._root)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=self._root).st_mode):
                raise

    def listdir(self, name: str) -> list[str]:
        try:
            directory = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        except FileNotFoundError:
            return []
        try:
            return sorted(os.listdir(directory))
        finally:
            os.close(directory)

    def create(self, name: str) -> File:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, _FILE_MODE, dir_fd=self._root)

    def open(self, name: str, *, write: bool = False) -> File:
        return os.open(name, os.O_RDWR if write else os.O_RDONLY, dir_fd=self._root)

    def close(self, file: File) -> None:
        os.close(file)

    def size(self, file: File) -> int:
        return os.fstat(file).st_size

    def pread(self, file: File, count: int, offset: int) -> bytes:
        data = os.pread(file, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        got = len(data)
        while got < count and (data := os.pread(file, count - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, file: File, data: bytes, offset: int) -> int:
        return os.pwrite(file, data, offset)

    def allocate(self, file: File, size: int) -> None:
        if size > os.fstat(file).st_size:
            os.posix_fallocate(file, 0, size)

    def truncate(self, file: File, size: int) -> None:
        os.ftruncate(file, size)

    def sync(self, file: File) -> None:
        os.fdatasync(file)
        if os.fstat(file).st_nlink == 0:
            raise OSError(errno.ESTALE, "the file was removed while in use")
        found = os.stat(self._path)
        if (found.st_dev, found.st_ino) != self._identity:
            raise OSError(errno.ESTALE, f"{self.root} was moved or mounted over while in use")

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._root, dst_dir_fd=self._root)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._root)

    def sync_dir(self, name: str) -> None:
        os.fsync(self._directory(name) if name else self._root)

    def _directory(self, name: str) -> int:
        """Return a handle on a directory. It stays open, so that a segment that could be created can be published too
        where handles have run out (fault 19).
        """
        kept = self._directories.get(name)
        if kept is not None and os.path.samestat(os.fstat(kept), os.stat(name, dir_fd=self._root)):
            return kept
        found = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        if kept is not None:
            os.close(kept)
        self._directories[name] = found
        return found

    def free_bytes(self) -> int:
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    @cached_property
    def is_memory(self) -> bool:
        return _file_system(self._identity[0]) in _MEMORY_SYSTEMS


def open_directory(path: str | Path) -> PosixDisk:
    """Return the disk of a data directory, made where it is not there. Raises Closed where it cannot be used."""
    try:
        return PosixDisk(path)
    except OSError as error:
        raise Closed(f"{path} cannot be used as a data directory: {error.strerror}", code="unwritable") from error


def _file_system(device: int) -> str:
    """Return the type of the mounted file system with this device number, empty where the kernel does not say."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for fields, _, about in (line.partition(" - ") for line in lines):
        if fields.split()[2] == number:
            return about.split()[0]
    return ""


def _sync_path(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
