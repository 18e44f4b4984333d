"""The files of a backup, read piece by piece; no byte is handed out before the digest of its piece was verified."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from tenure.backup.manifest import MANIFEST, Manifest, StoredFile, decode_manifest, digest
from tenure.backup.place import Place
from tenure.errors import Corrupt, NotFound
from tenure.log.disk import File
from tenure.log.segment import HEAD_BYTES, Head, parse_head, segment_name
from tenure.objects.store import ObjectMissing

__all__ = ["BackupFiles", "read_manifest"]

_PIECES_KEPT: Final = 2
"""A walk reads on, so that at most two neighbouring pieces are needed at once."""


def read_manifest(place: Place) -> Manifest:
    """Return the manifest of a backup. Raises NotFound where there is none, Corrupt for a damaged one."""
    data = place.find(MANIFEST)
    if data is None:
        raise NotFound(
            f"{place.name} holds no finished backup, there is no {MANIFEST}: name another place, or take it again",
            code="no_backup",
        )
    return decode_manifest(data)


class BackupFiles:
    """The segments of a backup as a `Files` for a scan, and every stored file in pieces.

    Raises Corrupt where a piece is missing or is not what the manifest says.
    """

    def __init__(self, place: Place, manifest: Manifest) -> None:
        self._place = place
        self._piece_bytes = manifest.piece_bytes
        self._segments = manifest.segments
        self._index = {segment_name(segment.number): index for index, segment in enumerate(manifest.segments)}
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def heads(self) -> list[Head]:
        """Return the heads of the segments, oldest first."""
        return [
            parse_head(self.pread(index, HEAD_BYTES, 0), segment.number) for index, segment in enumerate(self._segments)
        ]

    def pieces(self, file: StoredFile) -> Iterator[bytes]:
        """Yield the pieces of a file, in order."""
        for index in range(len(file.sha256)):
            yield self.piece(file, index)

    def piece(self, file: StoredFile, index: int) -> bytes:
        """Return one piece of a file, verified."""
        start = index * self._piece_bytes
        length = min(self._piece_bytes, file.bytes - start)
        key = file.piece_key(index)
        try:
            data = self._place.read(key, start if file.whole else 0, length)
        except ObjectMissing as error:
            raise _damaged(key, "it is missing", start) from error
        if digest(data) != file.sha256[index]:
            raise _damaged(key, "it is not what was backed up", start)
        return data

    # What a scan needs of a disk

    def open(self, name: str) -> File:
        return self._index[name]

    def close(self, file: File) -> None:
        """Do nothing: no file is open."""

    def size(self, file: File) -> int:
        return self._segments[file].bytes

    def pread(self, file: File, count: int, offset: int) -> bytes:
        segment = self._segments[file]
        end = min(offset + count, segment.bytes)
        parts: list[bytes] = []
        while offset < end:
            index, start = divmod(offset, self._piece_bytes)
            part = self._kept_piece(segment, index)[start : start + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _kept_piece(self, segment: StoredFile, index: int) -> bytes:
        place = (segment.key, index)
        if place not in self._kept:
            self._kept[place] = self.piece(segment, index)
            if len(self._kept) > _PIECES_KEPT:
                self._kept.popitem(last=False)
        return self._kept[place]


def _damaged(key: str, why: str, offset: int) -> Corrupt:
    message = f"the backup is damaged: {key}, from byte {offset} of its file on: {why}. Use another backup."
    return Corrupt(message, code="backup_damaged", file=key, offset=offset)
