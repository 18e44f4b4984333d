"""Take a backup of a log, in use or not: its segments and the newest checkpoint, then the manifest.

The log is only read, without its lock, and nothing in its directory is pinned: a backup that was killed leaves
``backup.begun`` and some objects in its place, no manifest, and no trace in the log's directory. The next backup into
the same place removes what is left there and begins again.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tenure.backup.manifest import (
    BEGUN,
    MANIFEST,
    EndOfLog,
    Manifest,
    StoredFile,
    digest,
    encode_manifest,
)
from tenure.backup.place import Place
from tenure.backup.source import Source
from tenure.errors import Conflict, Corrupt, Invalid, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk, File, PosixDisk
from tenure.log.segment import segment_name

__all__ = ["Pace", "take_backup"]

_OURS: Final = re.compile(r"[0-9a-f]{16}/(?:segments/\d{10}|checkpoint)(?:\.\d{6})?")
_DELETED_AT_ONCE: Final = 1_000


class Pace:
    """Sleeps so that no more than ``rate_bytes_max`` bytes a second are read; 0 is no limit."""

    def __init__(self, rate_bytes_max: int, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate_bytes_max
        self._sleep = sleep
        self._started = time.monotonic()
        self._bytes = 0

    def spend(self, count: int) -> None:
        """Count bytes that were read, and wait where that was too fast."""
        self._bytes += count
        if self._rate:
            ahead = self._bytes / self._rate - (time.monotonic() - self._started)
            if ahead > 0:
                self._sleep(ahead)


def take_backup(
    disk: Disk,
    place: Place,
    *,
    version: str,
    created_ms: int,
    pace: Pace | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Back up the log of a disk into a place, and return the manifest that was written there.

    The backup holds everything that was acknowledged before the call, and ends at a batch boundary. Raises Conflict
    where the place holds a backup or anything else, Corrupt where the log is damaged, Overloaded where it was trimmed
    faster than it was copied, and the errors of the store.
    """
    _check_apart(disk, place)
    source = Source(disk, held_max=place.settings.held_max)
    try:
        source.hold()
        folder = _begin(place, created_ms)
        copying = _Copying(disk, source, place, folder, pace or Pace(place.settings.rate_bytes_max), on_progress)
        stored_checkpoint = copying.copy_checkpoint()
        segments = copying.copy_segments()
        manifest = Manifest(
            tenure=version,
            created_ms=created_ms,
            log_id=source.heads[0].log_id.hex(),
            epoch=source.epoch,
            piece_bytes=place.piece_bytes,
            segments=segments,
            checkpoint=stored_checkpoint,
            end=EndOfLog(*source.end),
            features=[(feature.name, feature.since) for feature in source.features.on],
        )
    finally:
        source.close()
    _finish(place, folder, manifest)
    return manifest


def _check_apart(disk: Disk, place: Place) -> None:
    """Check that the backup does not lie in the directory it is of. Raises Invalid."""
    if isinstance(disk, PosixDisk) and place.directory is not None:
        target = place.directory.resolve()
        if target == disk.root or disk.root in target.parents:
            raise Invalid(f"{target} lies in the data directory, and would be lost with it: name another place")


class _Begun(msgspec.Struct, frozen=True):
    folder: str
    created_ms: int


def _begin(place: Place, created_ms: int) -> str:
    """Take an empty place, or one with an unfinished backup, which is removed; return the folder to fill.

    Raises Conflict for any other.
    """
    left = _unfinished(place)
    folder = secrets.token_hex(8)
    place.put(BEGUN, msgspec.json.encode(_Begun(folder, created_ms)))
    for start in range(0, len(left), _DELETED_AT_ONCE):
        place.delete(left[start : start + _DELETED_AT_ONCE])
    return folder


def _unfinished(place: Place) -> list[str]:
    """Return the objects of an unfinished backup. Raises Conflict where the place holds anything else."""
    left: list[str] = []
    for key in place.list_keys():
        if key == MANIFEST:
            raise Conflict(f"{place.name} holds a backup already: name another place", code="backup_exists")
        if _OURS.fullmatch(key):
            left.append(key)
        elif key != BEGUN:
            message = f"{place.name} is not empty, it holds {key!r}: name an empty or a new place"
            raise Conflict(message, code="not_empty")
    return left


def _finish(place: Place, folder: str, manifest: Manifest) -> None:
    """Write the manifest, unless another backup took the place over meanwhile. Raises Conflict."""
    begun = place.find(BEGUN)
    if begun is None or _folder_of(begun) != folder:
        raise Conflict(f"another backup into {place.name} was started meanwhile: name a place for each", code="taken")
    place.create(MANIFEST, encode_manifest(manifest))
    with suppress(TenureError):  # the manifest alone decides
        place.delete([BEGUN])


def _folder_of(begun: bytes) -> str:
    try:
        return msgspec.json.decode(begun, type=_Begun).folder
    except msgspec.MsgspecError:
        return ""


class _Copying:
    """The copying of one log into one folder of a place, file by file and piece by piece."""

    def __init__(
        self,
        disk: Disk,
        source: Source,
        place: Place,
        folder: str,
        pace: Pace,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._disk, self._source, self._place = disk, source, place
        self._folder, self._pace, self._on_progress = folder, pace, on_progress
        self._root = disk.root if isinstance(disk, PosixDisk) else None
        self._done = 0
        self._total = sum(map(source.used_bytes, range(len(source.heads))))

    def copy_segments(self) -> list[StoredFile]:
        """Copy and check every segment, oldest first: at a pace from the disk, and then from the system's cache."""
        source, stored = self._source, list[StoredFile]()
        for index, head in enumerate(source.heads):
            name = segment_name(head.number)
            is_sealed = index + 1 < len(source.heads)
            file = source.open(name)
            try:
                size = source.used_bytes(index)
                key = f"{self._folder}/segments/{head.number:010d}"
                path = self._path(name) if is_sealed else None
                stored.append(self._copy(file, key, number=head.number, size=size, path=path))
            finally:
                source.close(file)
            source.check(index)
            source.release(index)
        source.check_declared()
        return stored

    def copy_checkpoint(self) -> StoredFile | None:
        """Copy the newest checkpoint that the log goes through up to its end; None where there is none."""
        for name, position in checkpoint.find(self._disk):
            if not self._source.goes_through(position):
                continue
            with suppress(FileNotFoundError):  # a newer one took its place
                file = self._disk.open(name)
                try:
                    size, key = self._disk.size(file), f"{self._folder}/checkpoint"
                    return self._copy(file, key, number=position.batch, size=size, path=self._path(name))
                finally:
                    self._disk.close(file)
        return None

    def _path(self, name: str) -> Path | None:
        return None if self._root is None else self._root / name

    def _copy(self, file: File, key: str, *, number: int, size: int, path: Path | None) -> StoredFile:
        """Link or copy a file up to ``size``, and return what the manifest says of it."""
        whole = path is not None and self._place.link(path, key)
        stored = StoredFile(key, number, size, [], whole)
        piece_bytes = self._place.piece_bytes
        for index, start in enumerate(range(0, size, piece_bytes)):
            data = self._disk.pread(file, min(piece_bytes, size - start), start)
            if len(data) != min(piece_bytes, size - start):
                raise Corrupt(f"{key}: the file was cut short at {start + len(data)} bytes. Verify the directory.")
            stored.sha256.append(digest(data))
            if not whole:
                self._place.create(stored.piece_key(index), data)
            self._done += len(data)
            self._on_progress(self._done, self._total)
            self._pace.spend(len(data))
        return stored
