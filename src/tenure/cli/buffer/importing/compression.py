"""Compressed input, known by its first bytes whatever its name is."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Final

from tenure.cli.buffer.importing.part import bad_input
from tenure.cli.buffer.importing.stream import Stream

__all__ = ["decompressed"]

_MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC_BYTES: Final = 4


def decompressed(stream: Stream, name: str) -> tuple[Stream, str | None]:
    """Return the stream without its compression, and which it was: ``gzip``, ``zstd`` or None.

    Reading raises Invalid (``bad_input``) where the data is cut short or damaged; ModuleNotFoundError for zstd
    without pyarrow.
    """
    head = stream.look(_MAGIC_BYTES)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind is None:
        return stream, None
    read = _gzip(stream) if kind == "gzip" else _zstd(stream)

    def checked(size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the file, not of what is in it
                raise
            problem = f"its {kind} data is cut short or damaged after {inflated.bytes_read:,} bytes of content: {error}"
            raise bad_input(name, problem) from error

    inflated = Stream(checked)
    return inflated, kind


def _gzip(stream: Stream) -> Callable[[int], bytes]:
    return gzip.GzipFile(fileobj=stream, mode="rb").read1


def _zstd(stream: Stream) -> Callable[[int], bytes]:
    import pyarrow

    read: Callable[[int], bytes] = pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, mode="r"), "zstd").read
    return read
