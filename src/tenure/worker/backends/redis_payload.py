"""Pack the meta of a timer in front of its payload, because Redis keeps only the payload.

{"to": 42}                               a payload without meta is itself, as `Timers.schedule` stores it
NUL, length of the meta, meta, payload   no JSON begins with a NUL
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["pack", "unpack"]

_HEAD: Final = struct.Struct(">xI")


def pack(data: bytes, meta: bytes | None) -> bytes:
    """Return the stored form of a payload and its meta."""
    return data if meta is None else _HEAD.pack(len(meta)) + meta + data


def unpack(payload: bytes) -> tuple[bytes, bytes | None]:
    """Return a stored payload and its meta; bytes that `pack` did not write are all payload."""
    if payload[:1] != b"\0" or len(payload) < _HEAD.size:
        return payload, None
    start = _HEAD.size + _HEAD.unpack_from(payload)[0]
    return payload[start:], payload[_HEAD.size : start]
