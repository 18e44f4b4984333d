"""A stream of bytes that are read once, with a look ahead."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Stream"]

_PIECE_BYTES = 1 << 16


class Stream(io.RawIOBase):
    """The bytes that ``read`` returns, in order. A read returns what is there, and waits only for the first byte."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._ahead = b""
        self.at_end = False
        """Whether ``read`` has returned all it has; what was looked at is still to be read."""
        self.bytes_read = 0
        """Bytes that ``read`` has returned."""

    def look(self, size: int, *, until: Callable[[bytes], bool] = lambda ahead: False) -> bytes:
        """Return the next bytes without consuming them: ``size``, or fewer at the end or where ``until`` holds."""
        while len(self._ahead) < size and not self.at_end and not until(self._ahead):
            self._ahead += self._more(max(_PIECE_BYTES, size - len(self._ahead)))
        return self._ahead[:size]

    def skip(self, size: int) -> None:
        """Consume bytes that were looked at."""
        assert size <= len(self._ahead)
        self._ahead = self._ahead[size:]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view: Any = memoryview(buffer).cast("B")
        found = self.take(len(view))
        view[: len(found)] = found
        return len(found)

    def take(self, size: int) -> bytes:
        """Consume and return up to ``size`` bytes; none at the end."""
        if self._ahead:
            found, self._ahead = self._ahead[:size], self._ahead[size:]
            return found
        return b"" if self.at_end else self._more(size)

    def _more(self, size: int) -> bytes:
        found = self._read(size)
        self.bytes_read += len(found)
        self.at_end = not found
        return found
