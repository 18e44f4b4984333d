"""`SimDisk`: a disk in memory that loses unsynced data, for tests of code that must survive a power loss.

It keeps the content that a running process sees and the content that is durable: file contents become durable by
``sync``, names by ``sync_dir``. :meth:`SimDisk.crash` returns a disk as it may be after a power loss, chosen by a seed;
:meth:`SimDisk.kill` the disk after kill -9. Both leave this disk as it is, so that one run can crash in many ways, and
a process that is considered dead cannot touch the new disk.

Zeros that were only allocated take no memory, so a log of 64 MiB segments costs what was written to it.
"""

from __future__ import annotations

import errno
import os
import posixpath
from random import Random
from typing import Literal

from tenure.errors import Conflict
from tenure.log.disk import File
from tenure.testing.power_loss import MODES, CrashMode, Inode, NameChange, apply_names, surviving_names

__all__ = ["CrashMode", "Failure", "PowerLoss", "SimDisk"]

Failure = Literal["crash", "EIO", "ENOSPC", "short"]

_NEEDS_SPACE = frozenset({"mkdir", "create", "pwrite", "allocate", "rename", "sync", "sync_dir"})


class PowerLoss(BaseException):
    """The simulated machine stopped here; not an Exception, so that no ``except Exception`` continues after it."""


class SimDisk:
    """A :class:`~tenure.log.disk.Disk` in memory; the same seed and the same calls give the same worlds.

    >>> import asyncio
    >>> from tenure import Broker
    >>> from tenure.testing import SimDisk
    >>> async def main():
    ...     disk = SimDisk()
    ...     broker = await Broker.open(disk)
    ...     await broker.put_topic("mail", {"type": "queue", "durability": "fsync"})
    ...     await broker.produce("mail", [b"1"])
    ...     async with await Broker.open(disk.crash("lost")) as after:
    ...         return after.topic("mail").count
    >>> asyncio.run(main())
    1
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None, sector_bytes: int = 512) -> None:
        self.seed = seed
        #: Calls so far; the number that :meth:`fail_at` counts in.
        self.operations = 0
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self._random = Random(seed)
        self._inodes: dict[str, Inode] = {}
        self._directories: set[str] = {""}
        #: Per directory what its last sync made durable, and the changes since, in order: (name, inode or None).
        self._durable_names: dict[str, dict[str, Inode | None]] = {"": {}}
        self._changes: dict[str, list[NameChange]] = {"": []}
        self._files: dict[File, Inode] = {}
        self._next_file = 3
        self._locked = False
        self._dead = False
        self._failures: dict[int, Failure] = {}

    # Faults and inspection

    def fail_at(self, operation: int, error: Failure) -> None:
        """Make the call with this number fail; ``ENOSPC`` and ``short`` only where that call can fail so."""
        self._failures[operation] = error

    def crash(self, mode: CrashMode = "any", *, seed: int | None = None) -> SimDisk:
        """Return a disk as it may be after a power loss now; this one stays as it is."""
        random = Random(self._random.getrandbits(64) if seed is None else seed)
        if mode == "any":
            mode = random.choice(MODES)
        world = SimDisk(random.getrandbits(32), capacity_bytes=self.capacity_bytes, sector_bytes=self.sector_bytes)
        born: dict[int, Inode] = {}
        world._grow("", self, mode, random, born=born)
        return world

    def kill(self) -> SimDisk:
        """Return the disk after kill -9 of the process: everything written is there, nothing more is durable."""
        seed = self._random.getrandbits(32)
        world = SimDisk(seed, capacity_bytes=self.capacity_bytes, sector_bytes=self.sector_bytes)
        copies: dict[int, Inode] = {}

        def copy(inode: Inode | None) -> Inode | None:
            return None if inode is None else copies.setdefault(id(inode), inode.copy())

        world._inodes = {name: inode.copy() for name, inode in self._inodes.items()}
        copies.update({id(inode): world._inodes[name] for name, inode in self._inodes.items()})
        world._directories = set(self._directories)
        world._durable_names = {
            directory: {name: copy(inode) for name, inode in names.items()}
            for directory, names in self._durable_names.items()
        }
        world._changes = {
            directory: [
                change._replace(names=[(name, copy(inode)) for name, inode in change.names]) for change in changes
            ]
            for directory, changes in self._changes.items()
        }
        return world

    def flip_bit(self, name: str, bit: int) -> None:
        """Flip one bit of a file, as a decaying medium does: durable and visible at once."""
        inode = self._inodes[name]
        for data in (inode.data, inode.durable):
            if len(data) <= bit >> 3:
                data.extend(bytes((bit >> 3) + 1 - len(data)))
            data[bit >> 3] ^= 1 << (bit & 7)

    def content(self, name: str) -> bytes:
        """Return what a reader sees in a file, without zeros at its end that were never written."""
        return bytes(self._inodes[name].data)

    def put(self, name: str, data: bytes) -> None:
        """Write a durable file, as an operator does who restores a copy."""
        self._make_parents(name)
        inode = Inode()
        inode.data[:] = inode.durable[:] = data
        inode.size = inode.durable_size = len(data)
        self._inodes[name] = inode
        self._durable_names[posixpath.dirname(name)][name] = inode

    def remove(self, name: str) -> None:
        """Remove a file durably, as an operator does."""
        del self._inodes[name]
        self._durable_names[posixpath.dirname(name)].pop(name, None)

    def names(self) -> list[str]:
        """List every file, by its whole name."""
        return sorted(self._inodes)

    def used_bytes(self) -> int:
        return sum(inode.size for inode in list(self._inodes.values()))  # another thread may rename at the same time

    # The interface of Disk

    is_memory = False  # as of the disk that it stands for

    def lock(self) -> None:
        self._step("lock")
        if self._locked:
            raise Conflict("the simulated disk is in use", code="locked")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def identity(self) -> str:
        return "simulated"

    def mkdir(self, name: str) -> None:
        self._step("mkdir")
        if name not in self._directories:
            self._directories.add(name)
            self._durable_names[name] = {}
            self._changes[name] = []
            self._changes[posixpath.dirname(name)].append(NameChange([(name + "/", None)]))

    def listdir(self, name: str) -> list[str]:
        self._step("listdir")
        prefix = f"{name}/" if name else ""
        names = (path[len(prefix) :] for path in self._inodes if path.startswith(prefix))
        return sorted(found for found in names if "/" not in found)

    def create(self, name: str) -> File:
        self._step("create")
        inode = self._inodes.get(name)
        if inode is None:
            self._check_parent(name)
            inode = self._inodes[name] = Inode()
            self._changes[posixpath.dirname(name)].append(NameChange([(name, inode)]))
        else:
            inode.change(0, None)
        return self._handle(inode)

    def open(self, name: str, *, write: bool = False) -> File:
        self._step("open")
        if name not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._handle(self._inodes[name])

    def close(self, file: File) -> None:
        del self._files[file]

    def size(self, file: File) -> int:
        self._step("size")
        return self._files[file].size

    def pread(self, file: File, count: int, offset: int) -> bytes:
        self._step("pread")
        inode = self._files[file]
        count = max(0, min(count, inode.size - offset))
        data = bytes(inode.data[offset : offset + count])
        return data if len(data) == count else data + bytes(count - len(data))

    def pwrite(self, file: File, data: bytes, offset: int) -> int:
        inode = self._files[file]
        failure = self._failures.get(self.operations + 1)
        if failure is not None and len(data) > 1:
            data = data[: self._random.randrange(1, len(data))]
            if failure != "short":
                inode.change(offset, bytes(data))
        self._step("pwrite")
        self._charge(max(0, offset + len(data) - inode.size))
        inode.change(offset, bytes(data))
        return len(data)

    def allocate(self, file: File, size: int) -> None:
        self._step("allocate")
        inode = self._files[file]
        if size > inode.size:
            self._charge(size - inode.size)
            inode.change(size, None)

    def truncate(self, file: File, size: int) -> None:
        self._step("truncate")
        self._files[file].change(size, None)

    def sync(self, file: File) -> None:
        inode = self._files[file]
        if self._failures.get(self.operations + 1) in ("EIO", "ENOSPC"):
            # The kernel marks the pages clean after a failed sync: readers see them, and they are never written.
            inode.pending.clear()
        self._step("sync")
        inode.sync()

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        inode = self._inodes.pop(old)
        self._inodes[new] = inode
        left, entered = posixpath.dirname(old), posixpath.dirname(new)
        if left == entered:
            self._changes[entered].append(NameChange([(old, None), (new, inode)]))
        else:
            self._changes[entered].append(NameChange([(new, inode)]))
            self._changes[left].append(NameChange([(old, None)], is_departure=True))

    def unlink(self, name: str) -> None:
        self._step("unlink")
        if self._inodes.pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self._changes[posixpath.dirname(name)].append(NameChange([(name, None)]))

    def sync_dir(self, name: str) -> None:
        self._step("sync_dir")
        for change in self._changes[name]:
            apply_names(self._durable_names[name], change)
        self._changes[name].clear()

    def free_bytes(self) -> int:
        return (1 << 60 if self.capacity_bytes is None else self.capacity_bytes) - self.used_bytes()

    # Internals

    def _step(self, call: str) -> None:
        if self._dead:
            raise PowerLoss
        self.operations += 1
        if not self._failures:
            return
        match self._failures.get(self.operations):
            case "crash":
                self._dead = True
                raise PowerLoss
            case "EIO":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "ENOSPC" if call in _NEEDS_SPACE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _charge(self, more: int) -> None:
        if self.capacity_bytes is not None and more > 0 and more > self.free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _handle(self, inode: Inode) -> File:
        self._next_file += 1
        self._files[self._next_file] = inode
        return self._next_file

    def _check_parent(self, name: str) -> None:
        if posixpath.dirname(name) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def _make_parents(self, name: str) -> None:
        parent = posixpath.dirname(name)
        if parent not in self._directories:
            self._directories.add(parent)
            self._durable_names[parent] = {}
            self._changes[parent] = []
            self._durable_names[""][parent + "/"] = None

    def _grow(self, directory: str, lost: SimDisk, mode: CrashMode, random: Random, *, born: dict[int, Inode]) -> None:
        """Fill this new disk with what survives in one directory of the lost one, and below it."""
        names = dict(lost._durable_names[directory])
        for change in surviving_names(lost._changes[directory], mode, random):
            apply_names(names, change)
        self._durable_names[directory] = {}
        self._changes[directory] = []
        for name, inode in names.items():
            if inode is None:
                child = name.rstrip("/")
                self._directories.add(child)
                self._durable_names[directory][name] = None
                self._grow(child, lost, mode, random, born=born)
                continue
            if id(inode) not in born:
                born[id(inode)] = inode.after_loss(mode, random, sector_bytes=self.sector_bytes)
            self._inodes[name] = self._durable_names[directory][name] = born[id(inode)]
