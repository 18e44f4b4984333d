"""The disk under a life: slow on every thread, full at times, failing now and then, and decaying."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random

from tenure.log.disk import File
from tenure.log.segment import HEAD_BYTES
from tenure.testing.simdisk import CrashMode, SimDisk

__all__ = ["LifeDisk"]


class LifeDisk(SimDisk):
    """A simulated disk whose moods a life sets; a crash gives another of the same kind.

    ``sync_ms`` is how long a sync takes. One that is called on the loop's own thread stops the loop for that long:
    ``stall`` is told, and lets the time pass.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.sync_ms = 0
        self.stall: Callable[[str, int], None] = lambda what, ms: None
        self.failing: str | None = None
        self.flips: list[tuple[str, int, int]] = []

    def adopt(self, world: SimDisk) -> None:
        """Take over the files of a world that came up after a crash: this disk is that world from now on."""
        vars(self).update({name: value for name, value in vars(world).items() if name not in ("capacity_bytes",)})

    def reborn(self, mode: CrashMode | None) -> LifeDisk:
        """Return the disk as the next process finds it: after kill -9 (None), or after a power loss."""
        self.heal()
        world = self.kill() if mode is None else self.crash(mode, seed=self._random.getrandbits(32))
        disk = LifeDisk()
        disk.adopt(world)
        disk.capacity_bytes = self.capacity_bytes
        return disk

    # Slow and failing.

    def sync(self, file: File) -> None:
        self._take_time("sync")
        self._fail("sync", file)
        super().sync(file)

    def sync_dir(self, name: str) -> None:
        self._take_time("sync_dir")
        super().sync_dir(name)

    def pwrite(self, file: File, data: bytes, offset: int) -> int:
        self._fail("pwrite", file)
        return super().pwrite(file, data, offset)

    def _take_time(self, what: str) -> None:
        if self.sync_ms:
            self.stall(what, self.sync_ms)

    def _fail(self, call: str, file: File) -> None:
        if self.failing != call:
            return
        if call == "sync":  # the kernel marks the pages clean: they look fine, and will never reach the disk
            self._files[file].pending.clear()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    # Decaying.

    def decay(self, random: Random) -> str | None:
        """Flip a bit of what is durable in some segment; the name of its file, or None where nothing is yet."""
        durable = {name: len(inode.durable) for name, inode in self._inodes.items() if not inode.pending}
        names = [name for name in sorted(durable) if name.endswith(".log") and durable[name] > HEAD_BYTES]
        if not names:
            return None
        name = random.choice(names)
        bit = random.randrange(HEAD_BYTES * 8, durable[name] * 8)
        self.flip_bit(name, bit)
        self.flips.append((name, bit, self.content(name)[bit >> 3]))
        return name

    def heal(self) -> None:
        """Flip everything back: a process that starts on damage refuses to, and a life should go on."""
        for name, bit, decayed in reversed(self.flips):  # one byte may have been hit twice
            content = self.content(name) if name in self._inodes else b""
            if content[bit >> 3 : (bit >> 3) + 1] == bytes((decayed,)):  # else something was written over it
                self.flip_bit(name, bit)
        self.flips = []
