"""A checkpoint in a home: the folded state at a position, and where everything is that goes with it.

    magic 8 · length of the head u32 · head, JSON · payload

The state holds locations; payloads of jobs lie in segments. So a checkpoint names every sealed segment that was alive,
by its digest, and the place in the chain from which the open one must be read.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from tenure.chain.place import Place
from tenure.errors import Corrupt
from tenure.log.interface import Position

__all__ = [
    "CHECKPOINTS",
    "FRONT_BYTES",
    "SEGMENTS",
    "StoredCheckpoint",
    "StoredSegment",
    "batch_of",
    "checkpoint_key",
    "number_of",
    "segment_key",
    "sha256",
]

CHECKPOINTS: Final = "checkpoint/"
SEGMENTS: Final = "segments/"
_MAGIC: Final = b"TENURSCP"
_FORMAT: Final = 1
_LENGTH_BYTES: Final = 4
FRONT_BYTES: Final = len(_MAGIC) + _LENGTH_BYTES
"""What comes before the head of an object."""


def sha256(data: bytes) -> str:
    """Return the digest by which segments and payloads are known."""
    return hashlib.sha256(data).hexdigest()


class StoredSegment(msgspec.Struct, frozen=True):
    """A sealed segment in the home, byte for byte."""

    number: int
    bytes: int
    sha256: str


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a checkpoint. ``begin`` is the place before the link that began the segment of ``position``."""

    format: int = _FORMAT
    log_id: str
    epoch: int
    position: Position
    begin: Place
    segments: list[StoredSegment]
    closed: dict[int, int]
    payload_sha256: str
    #: The URL of the member that made it, empty where it has none, and what that was at the time.
    made_by: str = ""
    role: Literal["leader", "standby"] = "leader"

    def pack(self, payload: bytes) -> bytes:
        """Return the object."""
        head = msgspec.json.encode(self)
        return b"".join((_MAGIC, len(head).to_bytes(_LENGTH_BYTES, "little"), head, payload))

    @classmethod
    def unpack(cls, data: bytes, key: str) -> tuple[StoredCheckpoint, bytes]:
        """Decode an object into its head and its payload. Raises Corrupt."""
        end = cls.head_end(data, key)
        head = cls.decode(data[FRONT_BYTES:end], key)
        payload = data[end:]
        if sha256(payload) != head.payload_sha256:
            raise Corrupt(f"{key} fails its digest: it is damaged in the store", key=key)
        return head, payload

    @staticmethod
    def head_end(front: bytes, key: str) -> int:
        """Return where the head of an object ends, by its first bytes. Raises Corrupt."""
        if front[: len(_MAGIC)] != _MAGIC or len(front) < FRONT_BYTES:
            raise Corrupt(f"{key} is no checkpoint", key=key)
        return FRONT_BYTES + int.from_bytes(front[len(_MAGIC) : FRONT_BYTES], "little")

    @classmethod
    def decode(cls, data: bytes, key: str) -> StoredCheckpoint:
        """Decode the head of an object. Raises Corrupt."""
        try:
            head = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{key} cannot be read: {error}", key=key) from error
        if head.format > _FORMAT:
            message = f"{key} has format {head.format}, this program reads up to {_FORMAT}: use a newer one"
            raise Corrupt(message, code="format_too_new", key=key)
        return head


def checkpoint_key(epoch: int, batch: int) -> str:
    """Return the key of a checkpoint; the newest one of the newest epoch has the highest."""
    return f"{CHECKPOINTS}{epoch:010d}-{batch:020d}"


def batch_of(key: str) -> int:
    """Return the batch before which a checkpoint is, by its key."""
    return int(key.rpartition("-")[2])


def segment_key(segment: StoredSegment) -> str:
    """Return the key of a sealed segment: whoever stores it stores the same bytes."""
    return f"{SEGMENTS}{segment.number:010d}-{segment.sha256[:32]}"


def number_of(key: str) -> int:
    """Return the number of a sealed segment, by its key."""
    return int(key.removeprefix(SEGMENTS).partition("-")[0])
