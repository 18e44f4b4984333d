"""Syncs that may run on another thread while the owner goes on writing, and even rolls.

The kernel reports a failed write-back once per open file: of two fdatasyncs that overlap, one is told and the other
hears that all is well. So syncs take turns, and the owner looks at what those under way have met before it believes
its own.
"""

from __future__ import annotations

from threading import Lock

from tenure.log.disk import Disk, File

__all__ = ["FileSync", "SyncGate"]


class FileSync:
    """One sync of one segment: what it makes durable, and how it went."""

    __slots__ = ("_file", "_gate", "batch", "error", "segment")

    def __init__(self, gate: SyncGate, file: File | None, *, segment: int, batch: int) -> None:
        self._gate = gate
        self._file = file
        self.segment = segment
        self.batch = batch
        self.error: OSError | None = None

    def run(self) -> None:
        if self._file is None:
            return
        with self._gate.lock:
            try:
                self._gate.disk.sync(self._file)
            except OSError as error:
                self.error = error


class SyncGate:
    """Lets one sync run at a time and keeps those that the owner has not taken back."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.lock = Lock()
        self._under_way: list[FileSync] = []

    def begin(self, file: File | None, *, segment: int, batch: int) -> FileSync:
        sync = FileSync(self, file, segment=segment, batch=batch)
        self._under_way.append(sync)
        return sync

    def end(self, sync: FileSync) -> None:
        """Take a sync back; raises ValueError where it is not under way."""
        self._under_way.remove(sync)

    def sync_now(self, file: File) -> None:
        """Sync on this thread; raises OSError, also where a sync under way has failed."""
        with self.lock:
            for sync in self._under_way:
                if sync.error is not None:
                    raise sync.error
            self.disk.sync(file)
