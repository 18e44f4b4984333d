"""A link: one object of the chain, which holds the bytes of whole batches, or ends an epoch and begins the next.

    magic 8 · format u32 · kind u8 · flags u8 · grant u16 · log id 16 · epoch u32 · number u64
    prev 16 · nonce 16 · directory 16 · log_ms u64 · beat_ms u32 · first_batch u64 · last_batch u64
    url length u16 · url
    runs u16, then per run: segment u32 · offset u32 · length u32 · bytes              crc32c of all before it u32

A large link has its bytes in objects of their own, its parts, which are stored before it is. It has format 2, no bytes
behind the length of a run, and behind the runs: parts u16, then per part: length u32 · sha-256 32.

A run is a piece of a segment at its place, so a copy of the log that is written from links is the same, byte for byte.
``prev`` is the digest of the link before: a reader that went through another history cannot go on with this one.
The grant is in hundredths of a second; the version before wrote 0 there, and does not look at it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from tenure.errors import Corrupt

__all__ = ["DIGEST_BYTES", "FORMAT", "GRANT_MS_MAX", "NO_DIGEST", "Kind", "Link", "Part", "Run", "Span", "digest"]

T = TypeVar("T")

_MAGIC: Final = b"TENURLNK"
FORMAT: Final = 2
_FORMAT_WHOLE: Final = 1
"""Of a link that holds its own bytes, which every version reads."""
DIGEST_BYTES: Final = 16
NO_DIGEST: Final = bytes(DIGEST_BYTES)

_HEAD: Final = Struct("<8sIBBH16sIQ16s16s16sQIQQH")
_COUNT: Final = Struct("<H")
_RUN: Final = Struct("<III")
_PART: Final = Struct("<I32s")
_CRC: Final = Struct("<I")
_RELEASED: Final = 1
_ASKS: Final = 2
_GRANT_UNIT_MS: Final = 10
GRANT_MS_MAX: Final = 0xFFFF * _GRANT_UNIT_MS
"""The longest grant that a link can say."""


class Kind(IntEnum):
    """What a link does: it carries batches, or it ends its epoch."""

    DATA = 1
    FENCE = 2


class Run(NamedTuple):
    """A piece of a segment."""

    segment: int
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Part(NamedTuple):
    """A piece of what the runs of a large link hold, one after the other, in an object that its digest names."""

    length: int
    sha256: bytes


class Span(NamedTuple):
    """Where a run of a large link lies, whose bytes were not read yet."""

    segment: int
    offset: int
    length: int


class Link(NamedTuple):
    """One link. ``epoch`` is the leadership that it belongs to; a fence, which lies in the epoch before, begins it."""

    kind: Kind
    log_id: bytes
    epoch: int
    number: int
    prev: bytes
    #: Of the fence that began the epoch: no two are the same.
    nonce: bytes = bytes(16)
    #: The directory whose process wrote it, for as long as that directory is.
    directory: bytes = bytes(16)
    log_ms: int = 0
    #: The next link comes within this time; 0: nothing is promised.
    beat_ms: int = 0
    #: How long its writer may answer what is not committed, from when it first sent this; 0: it does not say.
    grant_ms: int = 0
    first_batch: int = 0
    last_batch: int = 0
    url: str = ""
    runs: Sequence[Run] = ()
    #: Its writer sends nothing after it, so that a successor need not wait.
    is_released: bool = False
    #: Who follows is to write its sign of life now. The version before does not look at it.
    asks: bool = False
    #: Of a large link; its ``runs`` are empty until its parts were read, and its ``spans`` say where they lie.
    parts: Sequence[Part] = ()
    spans: Sequence[Span] = ()

    @property
    def is_fence(self) -> bool:
        return self.kind is Kind.FENCE

    def pack(self) -> bytes:
        """Return the bytes of the object; they never change once they were sent."""
        url = self.url.encode()
        flags = (_RELEASED if self.is_released else 0) | (_ASKS if self.asks else 0)
        about = (self.log_id, self.epoch, self.number, self.prev, self.nonce, self.directory)
        times = (self.log_ms, self.beat_ms, self.first_batch, self.last_batch)
        grant = -(-self.grant_ms // _GRANT_UNIT_MS)  # rounded up: who waits for it may wait longer
        version = FORMAT if self.parts else _FORMAT_WHOLE
        pieces = [_HEAD.pack(_MAGIC, version, self.kind, flags, grant, *about, *times, len(url)), url]
        pieces += self._pack_spans() if self.parts else self._pack_runs()
        crc = 0
        for piece in pieces:
            crc = crc32c(piece, crc)
        return b"".join((*pieces, _CRC.pack(crc)))

    def _pack_runs(self) -> Iterator[bytes]:
        yield _COUNT.pack(len(self.runs))
        for run in self.runs:
            yield from (_RUN.pack(run.segment, run.offset, len(run.data)), run.data)

    def _pack_spans(self) -> Iterator[bytes]:
        spans = self.spans or [Span(run.segment, run.offset, len(run.data)) for run in self.runs]
        yield _COUNT.pack(len(spans))
        for span in spans:
            yield _RUN.pack(*span)
        yield _COUNT.pack(len(self.parts))
        for part in self.parts:
            yield _PART.pack(*part)

    @classmethod
    def unpack(cls, data: bytes, key: str) -> Link:
        """Decode an object; raises Corrupt where it is damaged, of a newer format, or no link."""
        if data[:8] == _MAGIC and len(data) >= 12 and (version := int.from_bytes(data[8:12], "little")) > FORMAT:
            message = f"{key} has format {version}, this program reads up to {FORMAT}: use a newer one"
            raise Corrupt(message, code="format_too_new", key=key, format=version)
        if len(data) < _HEAD.size + _CRC.size or data[:8] != _MAGIC:
            raise Corrupt(f"{key} is no link of a chain: something else wrote there", key=key)
        if crc32c(memoryview(data)[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise Corrupt(f"{key} fails its checksum: it is damaged in the store", key=key)
        try:
            return cls._decode(data)
        except (struct.error, ValueError) as error:
            raise Corrupt(f"{key} cannot be read: {error}", key=key) from error

    @classmethod
    def _decode(cls, data: bytes) -> Link:
        _, version, kind, flags, grant, *about, url_bytes = _HEAD.unpack_from(data)
        log_id, epoch, number, prev, nonce, directory, log_ms, beat_ms, first_batch, last_batch = about
        at = _HEAD.size + url_bytes
        url = data[_HEAD.size : at].decode()
        runs: list[Run] = []
        parts: list[Part] = []
        spans: list[Span] = []
        if version == _FORMAT_WHOLE:
            runs, at = _unpack_runs(data, at)
        else:
            spans, at = _unpack_all(data, at, _RUN, Span)
            parts, at = _unpack_all(data, at, _PART, Part)
        if at != len(data) - _CRC.size:
            raise ValueError(f"its parts take {at + _CRC.size} bytes, it has {len(data)}")
        return cls(
            *(Kind(kind), log_id, epoch, number, prev, nonce, directory),
            log_ms=log_ms,
            beat_ms=beat_ms,
            grant_ms=grant * _GRANT_UNIT_MS,
            first_batch=first_batch,
            last_batch=last_batch,
            url=url,
            runs=runs,
            is_released=bool(flags & _RELEASED),
            asks=bool(flags & _ASKS),
            parts=tuple(parts),
            spans=tuple(spans),
        )


def _unpack_runs(data: bytes, at: int) -> tuple[list[Run], int]:
    """Return the runs that begin here, and where they end."""
    [count] = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    runs = []
    for _ in range(count):
        segment, offset, length = _RUN.unpack_from(data, at)
        at += _RUN.size
        runs.append(Run(segment, offset, data[at : at + length]))
        at += length
    return runs, at


def _unpack_all(data: bytes, at: int, layout: Struct, kind: Callable[..., T]) -> tuple[list[T], int]:
    """Return the things of one layout that begin here, behind their count, and where they end."""
    [count] = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    end = at + count * layout.size
    return [kind(*fields) for fields in layout.iter_unpack(data[at:end])], end


def digest(data: bytes) -> bytes:
    """Return what the next link says of this one: the first half of the SHA-256 of the whole object."""
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]
