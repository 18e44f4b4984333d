"""Checkpoints: the folded state beside the log, so that a restart need not replay everything.

A checkpoint is only a cache. One that is damaged, empty, of another format or of another history is passed over, never
believed and never a reason to delete anything (fault 9).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from crc32c import crc32c

from tenure.errors import Corrupt, Overloaded
from tenure.log.disk import Disk, write_whole
from tenure.log.interface import Position

__all__ = ["CHECKPOINTS", "checkpoint_name", "exists", "find", "load", "publish", "save", "write"]

CHECKPOINTS = "checkpoints"
FORMAT = 1
_MAGIC = b"TENURCKP"
_KEPT_COUNT = 2
_PIECE_BYTES = 1 << 16
_SYNC_BYTES = 1 << 20
_FRONT = Struct("<8sII")
_BODY = Struct("<QQQQQQQ")
_HEAD_BYTES = _FRONT.size + _BODY.size
_NAME = re.compile(r"(\d{20})\.checkpoint")
_UNPUBLISHED = re.compile(r"(\d{20})\.(?:tmp|bases)")


def save(disk: Disk, position: Position, payload: bytes) -> None:
    """Save the state at a position, durably, and remove all checkpoints but the two newest. Raises as the two steps."""
    write(disk, position, payload)
    publish(disk, position)


def write(disk: Disk, position: Position, payload: bytes) -> None:
    """Write a checkpoint, durably, under a name that no reader looks at, and read it back.

    Raises Overloaded where it could not be written and Corrupt where it did not read back; the checkpoints before it
    are still there then.
    """
    body = _BODY.pack(*position, len(payload))
    head = _FRONT.pack(_MAGIC, FORMAT, crc32c(payload, crc32c(body))) + body
    name = _unpublished_name(position.batch)
    try:
        _store(disk, name, head, payload)
    except OSError as error:
        with suppress(OSError):
            disk.unlink(name)
        raise _unwritten(error) from error


def publish(disk: Disk, position: Position) -> None:
    """Give a checkpoint that was written its name, and remove all others but the newest before it.

    Only the owner of the directory does this: a process that outlived its owner may write, and nothing comes of it.
    Raises Overloaded.
    """
    try:
        disk.rename(_unpublished_name(position.batch), checkpoint_name(position.batch))
        disk.sync_dir(CHECKPOINTS)
        _forget_others(disk, position.batch)
    except OSError as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError) -> Overloaded:
    code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "checkpoint_failed"
    return Overloaded(f"the checkpoint could not be written: {error.strerror}", code=code)


def load(disk: Disk, *, skipped: list[str] | None = None) -> Iterator[tuple[Position, bytes]]:
    """Yield every whole checkpoint, newest first; names that are passed over, and why, go to ``skipped``."""
    try:
        batches = _batches(disk)
    except OSError as error:
        batches = []
        if skipped is not None:
            skipped.append(f"{CHECKPOINTS}: {error}")
    for batch in reversed(batches):
        try:
            yield _decode(_read(disk, checkpoint_name(batch)))
        except (OSError, ValueError) as error:
            if skipped is not None:
                skipped.append(f"{checkpoint_name(batch)}: {error}")


def find(disk: Disk) -> Iterator[tuple[str, Position]]:
    """Yield the name and the position of every whole checkpoint, newest first, reading each in small pieces."""
    for batch in reversed(_batches(disk)):
        with suppress(OSError, ValueError):
            yield checkpoint_name(batch), _read_position(disk, checkpoint_name(batch))


def _read_position(disk: Disk, name: str) -> Position:
    """Return the position of a checkpoint, after its checksum was verified. Raises ValueError, OSError."""
    file = disk.open(name)
    try:
        size = disk.size(file)
        position, crc = _decode_head(disk.pread(file, _HEAD_BYTES, 0), size)
        found = 0
        for start in range(_FRONT.size, size, _SYNC_BYTES):
            found = crc32c(disk.pread(file, min(_SYNC_BYTES, size - start), start), found)
    finally:
        disk.close(file)
    if found != crc:
        raise ValueError("fails its checksum")
    return position


def exists(disk: Disk) -> bool:
    """Return whether any checkpoint was ever completed here, whole or not."""
    return bool(_batches(disk))


def _store(disk: Disk, name: str, head: bytes, payload: bytes) -> None:
    """Write and read back in pieces: the state may be large, and there should not be four copies of it."""
    disk.mkdir(CHECKPOINTS)
    disk.sync_dir("")
    file = disk.create(name)
    try:
        write_whole(disk, file, head, offset=0)
        for start in range(0, len(payload), _PIECE_BYTES):
            write_whole(disk, file, payload[start : start + _PIECE_BYTES], offset=len(head) + start)
            if (start + _PIECE_BYTES) % _SYNC_BYTES == 0:
                disk.sync(file)  # in small parts, because a sync of the log waits for all that the disk has in hand
        disk.sync(file)
    finally:
        disk.close(file)
    _read_back(disk, name, head, payload)


def _read_back(disk: Disk, name: str, head: bytes, payload: bytes) -> None:
    file = disk.open(name)
    try:
        same = disk.size(file) == len(head) + len(payload) and disk.pread(file, len(head), 0) == head
        for start in range(0, len(payload), _PIECE_BYTES):
            piece = payload[start : start + _PIECE_BYTES]
            same = same and disk.pread(file, len(piece), len(head) + start) == piece
    finally:
        disk.close(file)
    if not same:
        raise Corrupt("the checkpoint does not read back as it was written", file=name)


def _forget_others(disk: Disk, batch: int) -> None:
    """Keep this checkpoint and the newest before it; later ones belong to a history that was lost.

    What was written and never published goes too.
    """
    batches = _batches(disk)
    earlier = [each for each in batches if each < batch]
    doomed = [checkpoint_name(each) for each in earlier[: max(0, len(earlier) - _KEPT_COUNT + 1)]]
    doomed += [checkpoint_name(each) for each in batches if each > batch]
    names = [match for name in disk.listdir(CHECKPOINTS) if (match := _UNPUBLISHED.fullmatch(name))]
    doomed += [f"{CHECKPOINTS}/{match[0]}" for match in names if int(match[1]) != batch]
    for name in doomed:
        disk.unlink(name)
    if doomed:
        disk.sync_dir(CHECKPOINTS)


def _batches(disk: Disk) -> list[int]:
    return sorted(int(match[1]) for name in disk.listdir(CHECKPOINTS) if (match := _NAME.fullmatch(name)))


def checkpoint_name(batch: int) -> str:
    """Return the name of the checkpoint before a batch."""
    return f"{CHECKPOINTS}/{batch:020d}.checkpoint"


def _unpublished_name(batch: int) -> str:
    return f"{CHECKPOINTS}/{batch:020d}.tmp"


def _read(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)


def _decode(data: bytes) -> tuple[Position, bytes]:
    """Decode a checkpoint; raises ValueError saying what is wrong with it."""
    position, crc = _decode_head(data, len(data))
    if crc32c(memoryview(data)[_FRONT.size :]) != crc:
        raise ValueError("fails its checksum")
    return position, data[_HEAD_BYTES:]


def _decode_head(data: bytes, size: int) -> tuple[Position, int]:
    """Decode the head of a checkpoint of ``size`` bytes: its position and its checksum. Raises ValueError."""
    if len(data) < _HEAD_BYTES:
        raise ValueError("not even a whole head")
    magic, version, crc = _FRONT.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("not a checkpoint")
    if version > FORMAT:
        raise ValueError(f"format {version} is newer than this program")
    *position, payload_bytes = _BODY.unpack_from(data, _FRONT.size)
    if payload_bytes != size - _HEAD_BYTES:
        raise ValueError("cut short or padded")
    return Position(*position), crc
