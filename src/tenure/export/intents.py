"""Intents: the exporter's next commit, recorded before it is made, so that a restart can resolve a commit in doubt.

The buffer shows how many batches of this exporter it holds, and this file which part of the log each of the last two
was made of. Together they determine, after any crash, how far the export has come, also where the batch itself has long
been consumed and collected. Two slots are overwritten in turn, so one of them is always whole, and a record costs one
sync.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
from crc32c import crc32c

from tenure.export.rows import Place

__all__ = ["Intent", "Intents"]

_SLOT_BYTES: Final = 4_096
_FRONT: Final = Struct("<QII")


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """An intent: the batch ``ordinal`` of this exporter contains the rows of the log from ``before`` to ``after``.

    ``ts`` is when the last of them happened, wall ms.
    """

    ordinal: int
    before: Place
    after: Place
    ts: int


_decode: Final = msgspec.msgpack.Decoder(Intent).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Intents:
    """The last two intents, durable, newest first."""

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if is_new:
            os.posix_fallocate(self._file, 0, 2 * _SLOT_BYTES)
            os.fsync(self._file)
            _sync_directory(path.parent)
        found = sorted((each for slot in (0, 1) if (each := self._read(slot)) is not None), key=_serial, reverse=True)
        self._serial = found[0][0] if found else 0
        self.known = [intent for _, intent in found]

    def write(self, intent: Intent) -> None:
        """Store this intent beside the newest, and return once it is durable. Raises OSError where it cannot be."""
        body = _encode(intent)
        self._serial += 1
        data = _FRONT.pack(self._serial, len(body), crc32c(body)) + body
        assert len(data) <= _SLOT_BYTES
        os.pwrite(self._file, data, self._serial % 2 * _SLOT_BYTES)
        os.fdatasync(self._file)
        self.known = [intent, *self.known[:1]]

    def _read(self, slot: int) -> tuple[int, Intent] | None:
        data = os.pread(self._file, _SLOT_BYTES, slot * _SLOT_BYTES)
        if len(data) < _FRONT.size:
            return None
        serial, size, crc = _FRONT.unpack_from(data)
        body = data[_FRONT.size : _FRONT.size + size]
        if not size or crc32c(body) != crc:
            return None
        try:
            return serial, _decode(body)
        except msgspec.MsgspecError:
            return None

    def close(self) -> None:
        os.close(self._file)


def _serial(found: tuple[int, Intent]) -> int:
    return found[0]


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
