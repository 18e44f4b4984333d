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

__all__ = ["exists", "load", "publish", "save", "write"]

CHECKPOINTS = "checkpoints"
FORMAT = 1
_MAGIC = b"TENURCKP"
_KEPT_COUNT = 2
_PIECE_BYTES = 1 << 16
_SYNC_BYTES = 1 << 20
_FRONT = Struct("<8sII")
_BODY = Struct("<QQQQQQQ")
_NAME = re.compile(r"(\d{20})\.checkpoint")
_UNPUBLISHED = re.compile(r"\d{20}\.tmp")


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
        disk.rename(_unpublished_name(position.batch), _name(position.batch))
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
            yield _decode(_read(disk, _name(batch)))
        except (OSError, ValueError) as error:
            if skipped is not None:
                skipped.append(f"{_name(batch)}: {error}")


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
    doomed = [_name(each) for each in earlier[: max(0, len(earlier) - _KEPT_COUNT + 1)]]
    doomed += [_name(each) for each in batches if each > batch]
    doomed += [f"{CHECKPOINTS}/{name}" for name in disk.listdir(CHECKPOINTS) if _UNPUBLISHED.fullmatch(name)]
    for name in doomed:
        disk.unlink(name)
    if doomed:
        disk.sync_dir(CHECKPOINTS)


def _batches(disk: Disk) -> list[int]:
    return sorted(int(match[1]) for name in disk.listdir(CHECKPOINTS) if (match := _NAME.fullmatch(name)))


def _name(batch: int) -> str:
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
    start = _FRONT.size + _BODY.size
    if len(data) < start:
        raise ValueError("not even a whole head")
    magic, version, crc = _FRONT.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("not a checkpoint")
    if version > FORMAT:
        raise ValueError(f"format {version} is newer than this program")
    *position, size = _BODY.unpack_from(data, _FRONT.size)
    if size != len(data) - start:
        raise ValueError("cut short or padded")
    if crc32c(memoryview(data)[_FRONT.size :]) != crc:
        raise ValueError("fails its checksum")
    return Position(*position), data[start:]
