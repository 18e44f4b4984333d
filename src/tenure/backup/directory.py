"""Restore a backup into a data directory: all of it appears at once, under its name, or nothing does.

The work is done beside the directory, in ``<name>.restoring``: the files of the backup are fetched there, and the new
log is written there and synced; a rename is the last step. A restore that was killed leaves that directory, which no
broker opens by mistake; the next restore to the same name removes it and begins again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tenure.backup.fetch import fetch_files
from tenure.backup.files import read_manifest
from tenure.backup.manifest import Manifest
from tenure.backup.place import Place
from tenure.backup.restore import RestoredLog, restore_log
from tenure.clock import Clock, SystemClock
from tenure.errors import Closed, Conflict, Overloaded
from tenure.log.disk import LOCK_NAME, Disk, PosixDisk
from tenure.log.interface import Position
from tenure.settings import Settings

__all__ = ["Fetch", "explained", "restore_directory", "restore_from"]

_FETCHED: Final = "fetched"
_LOG: Final = "log"

Fetch = Callable[[Disk], tuple[Position, int]]
"""Brings the files of a log into an empty disk; returns where it ends, and its last epoch."""


def restore_directory(
    place: Place,
    directory: Path,
    *,
    keep_leases: bool = False,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> tuple[Manifest, RestoredLog]:
    """Restore a backup into a directory that is empty or absent, and return once that is durable.

    Raises NotFound where there is no backup, Corrupt where it is damaged, Conflict where the directory is not empty or
    another restore to it is running, Overloaded on a full disk, Closed where the disk refuses.
    """
    manifest = read_manifest(place)

    def fetch(disk: Disk) -> tuple[Position, int]:
        fetch_files(place, manifest, disk)
        return manifest.position, manifest.epoch

    return manifest, restore_from(fetch, directory, keep_leases=keep_leases, clock=clock, settings=settings)


def restore_from(
    fetch: Fetch,
    directory: Path,
    *,
    keep_leases: bool = False,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> RestoredLog:
    """Restore a log that ``fetch`` brings into an empty disk, as `restore_directory` does. Raises as that."""
    with explained(f"restoring into {directory}"):
        directory = directory.absolute()
        _check_empty(directory)
        work = directory.with_name(f"{directory.name}.restoring")
        disk = _take(work)
        try:
            fetched, target = PosixDisk(work / _FETCHED), PosixDisk(work / _LOG)
            end, epoch = fetch(fetched)
            restored = restore_log(
                *(fetched, target),
                end=end,
                epoch=epoch,
                clock=clock or SystemClock(),
                settings=settings,
                keep_leases=keep_leases,
            )
            os.rename(work / _LOG, directory)
            _sync_directory(directory.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            disk.unlock()
    return restored


def _check_empty(directory: Path) -> None:
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
        message = f"{directory} is not an empty directory: name a new one. A broker is never restored over another one"
        raise Conflict(message, code="not_empty", path=str(directory))


def _take(work: Path) -> PosixDisk:
    """Lock the directory that the work is done in, and remove what a killed restore left there. Raises Conflict."""
    disk = PosixDisk(work)
    disk.lock()
    if foreign := {path.name for path in work.iterdir()} - {LOCK_NAME, _FETCHED, _LOG}:
        disk.unlock()
        raise Conflict(f"{work} holds {sorted(foreign)[0]!r}: move it away, the restore works there", code="not_empty")
    for name in (_FETCHED, _LOG):
        if (work / name).exists():
            shutil.rmtree(work / name)
    return disk


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise an error of the disk as one that says what to do: Overloaded where there is no room, else Closed."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{what} found no room: free some space, then run it again. Nothing was changed."
            raise Overloaded(message, code="disk_full") from error
        where = f"{error.filename}: " if error.filename else ""
        message = (
            f"{what} failed: {where}{error.strerror or error}. Look at the disk and its permissions, then run it again."
        )
        raise Closed(message, code="unreadable") from error


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
