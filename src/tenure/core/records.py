"""The layout of records in a frame: blobs back to back, and a table of the offset where each ends.

Nothing is parsed on the way in or out beyond what the caller asked for. A call whose records are bare ``data``
(by far the most common) is *plain*: the blob is the data, so packing is one join and reading is one slice.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from tenure.contract.records import Record

__all__ = ["Extras", "Packed", "ends_of", "pack", "slice_blob", "unpack"]

_U32 = struct.Struct("<I")


class Extras(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The header of a blob when its call is not plain: what a record has besides its data."""

    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    hops: int = 0


class Packed(msgspec.Struct, frozen=True, gc=False):
    """Records laid out for a frame."""

    count: int
    ends: bytes
    blobs: bytes
    plain: bool


_BARE = Extras()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Extras).decode


def pack(records: Sequence[bytes | Record]) -> Packed:
    """Lay records out for a frame. ``bytes`` stands for a record that has nothing but data."""
    count = len(records)
    if all(type(record) is bytes for record in records):
        return _pack_blobs(records, plain=True)  # type: ignore[arg-type]
    full = [record if isinstance(record, Record) else Record(data=record) for record in records]
    if all(r.tag is None and r.node is None and r.meta is None and not r.hops for r in full):
        return _pack_blobs([r.data for r in full], plain=True)
    blobs = [_blob(record) for record in full]
    packed = _pack_blobs(blobs, plain=False)
    assert packed.count == count
    return packed


def _pack_blobs(blobs: Sequence[bytes], *, plain: bool) -> Packed:
    if len(blobs) == 1:  # a single record ends where its frame does: no table
        return Packed(1, b"", blobs[0], plain)
    return Packed(len(blobs), array("I", accumulate(map(len, blobs))).tobytes(), b"".join(blobs), plain)


def _blob(record: Record) -> bytes:
    extras = _encode(Extras(record.tag, record.node, record.meta, record.hops))
    return _U32.pack(len(extras)) + extras + record.data


def ends_of(ends: bytes, blobs_bytes: int) -> array[int]:
    """Return the offset where each blob ends."""
    table = array("I")
    if ends:
        table.frombytes(ends)
    else:
        table.append(blobs_bytes)
    return table


def slice_blob(ends: array[int], blobs: memoryview, index: int) -> bytes:
    """Return the bytes of record ``index``."""
    return bytes(blobs[ends[index - 1] if index else 0 : ends[index]])


def unpack(blob: bytes, plain: bool) -> tuple[bytes, Extras]:
    """Split a blob into its data and its header; a plain one has none."""
    if plain:
        return blob, _BARE
    (length,) = _U32.unpack_from(blob)
    return blob[4 + length :], _decode(blob[4 : 4 + length])
