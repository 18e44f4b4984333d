"""Streaming offsets of the buffer, and the range of a micro-batch from a checkpoint's files.

An offset is ``{"seq": n, "low": m, "buffer": id}``: everything below ``n`` was taken, the micro-batch that ended there
began at ``m``. Spark's log holds the end of each micro-batch and never the start of the first one, which it asks for
again after a restart; with ``low`` each offset is complete by itself, and the range of a micro-batch is the same
whenever it is run. The buffer's id shows a checkpoint that is used with another buffer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from tenure.errors import Corrupt, Invalid, NotFound
from tenure.objects.background import background
from tenure.objects.store import ObjectMissing, open_store

__all__ = ["Offset", "StreamRange", "checkpoint_store_url", "offsets_of", "parse_offsets", "seq_of"]

T = TypeVar("T")

_OFFSETS_BYTES_MAX = 4 << 20
_FORMATS = ("v1", "v2")
_NAMED = re.compile(r"^[^{:]+:(?={)")  # format 2 writes each source's name before its offset


class Offset(msgspec.Struct, frozen=True):
    """An offset: everything of ``buffer`` below ``seq`` was taken, from ``low`` on by the last micro-batch."""

    seq: int
    low: int
    buffer: str

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Offset:
        """Parse an offset that Spark returns. Raises Corrupt (``checkpoint_damaged``)."""
        try:
            offset = msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise Corrupt(f"{value!r} is no offset of tenure-buffer: {error}", code="checkpoint_damaged") from None
        if not 0 <= offset.low <= offset.seq:
            raise Corrupt(f"{value!r} is no offset of tenure-buffer", code="checkpoint_damaged")
        return offset

    def plain(self) -> dict[str, Any]:
        """Return the offset for Spark's log. The order of the keys matters: Spark compares offsets as text."""
        return {"seq": self.seq, "low": self.low, "buffer": self.buffer}


class StreamRange(msgspec.Struct, frozen=True):
    """The batches of one micro-batch, ``low`` to ``high``, both included."""

    buffer: str
    low: int
    high: int


def offsets_of(checkpoint: str, batch_id: int) -> StreamRange | None:
    """Return the range that a micro-batch reads, from ``<checkpoint>/offsets``; None where it read nothing.

    Spark writes it before the micro-batch runs, so that it is there in ``foreachBatch`` and the same on a replay.
    ``checkpoint`` is a path or a URL that the buffer's stores can open. Raises NotFound where there is no such
    micro-batch, Invalid for other URLs and for a query that reads several buffers, Corrupt for files that are not
    Spark's.
    """
    data = _read_log(checkpoint, batch_id)
    if data is None:
        raise NotFound(f"{checkpoint} has no micro-batch {batch_id}", code="batch_unplanned")
    offset = parse_offsets(data)
    if offset is None or offset.low == offset.seq:
        return None
    before = _read_log(checkpoint, batch_id - 1) if batch_id else None  # Spark keeps the last hundred
    if before is not None and parse_offsets(before) == offset:
        return None
    return StreamRange(offset.buffer, offset.low, offset.seq - 1)


def seq_of(checkpoint: str, batch_id: int) -> int | None:
    """Return the seq that a micro-batch over one topic ends below; None where it was not planned, or is long ago.

    Raises Invalid for a URL that the buffer's stores cannot open, Corrupt for files that are not Spark's.
    """
    data = _read_log(checkpoint, batch_id)
    found = [] if data is None else _parse(data, _TopicOffset)
    return found[0].seq if found else None


def parse_offsets(data: bytes) -> Offset | None:
    """Return the buffer's offset in a file of Spark's offset log, of format 1 or 2; None if it had none yet."""
    found = _parse(data, Offset)
    if len(found) > 1:
        raise Invalid("the query reads several buffers: a range names one", code="several_buffers")
    return found[0] if found else None


class _TopicOffset(msgspec.Struct, frozen=True):
    seq: int


def _read_log(checkpoint: str, batch_id: int) -> bytes | None:
    """Return the log file of a micro-batch; None where there is none."""
    store = open_store(checkpoint_store_url(checkpoint))
    try:
        return background().run(store.get(f"offsets/{batch_id}", limit_bytes=_OFFSETS_BYTES_MAX))
    except ObjectMissing:
        return None


def _parse(data: bytes, kind: type[T]) -> list[T]:
    """Return the offsets of one kind; those of other sources, and ``-`` for none, are passed over."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] not in _FORMATS:
        raise Corrupt("this is no file of Spark's offset log, or a format to come", code="checkpoint_damaged")
    found: list[T] = []
    for line in lines[2:]:
        with suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(_NAMED.sub("", line), type=kind))
    return found


def checkpoint_store_url(checkpoint: str) -> str:
    """Return a checkpoint's URL for the buffer's stores: Spark takes plain paths and s3a:// besides."""
    if checkpoint.startswith("s3a://"):
        return "s3://" + checkpoint.removeprefix("s3a://")
    if checkpoint.startswith("file:"):
        checkpoint = "/" + checkpoint.removeprefix("file:").lstrip("/")  # Hadoop knows no %20 in paths
    if "://" in checkpoint:
        return checkpoint
    return "file://" + quote(str(Path(checkpoint).absolute()))
