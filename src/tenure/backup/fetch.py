"""Fetch the files of a backup into a directory of the machine, each byte verified, for a restore to read from."""

from __future__ import annotations

from pathlib import Path

from tenure.backup.files import BackupFiles
from tenure.backup.manifest import Manifest, StoredFile
from tenure.backup.place import Place
from tenure.log.checkpoint import CHECKPOINTS, checkpoint_name
from tenure.log.disk import Disk, PosixDisk, write_whole
from tenure.log.segment import SEGMENTS, segment_name

__all__ = ["fetch_files"]


def fetch_files(place: Place, manifest: Manifest, disk: Disk) -> None:
    """Write every file of a backup under the name it had in its log; files that were linked are linked again.

    Nothing is synced: the directory is only read from, and removed after that. Raises Corrupt where a piece is missing
    or damaged, OSError.
    """
    files = BackupFiles(place, manifest)
    disk.mkdir(SEGMENTS)
    for segment in manifest.segments:
        _fetch(place, files, segment, disk, name=segment_name(segment.number))
    if manifest.checkpoint is not None:
        disk.mkdir(CHECKPOINTS)
        _fetch(place, files, manifest.checkpoint, disk, name=checkpoint_name(manifest.checkpoint.number))


def _fetch(place: Place, files: BackupFiles, stored: StoredFile, disk: Disk, *, name: str) -> None:
    if stored.whole and isinstance(disk, PosixDisk) and place.link_out(stored.key, Path(disk.root, name)):
        for _ in files.pieces(stored):
            pass
        return
    file, offset = disk.create(name), 0
    try:
        for piece in files.pieces(stored):
            write_whole(disk, file, piece, offset=offset)
            offset += len(piece)
    finally:
        disk.close(file)
