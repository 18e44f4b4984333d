"""Bytes on their way out: kept as they were given and not copied, so that an answer shared by many is there once."""

from __future__ import annotations

from collections import deque

__all__ = ["OutQueue"]


class OutQueue:
    """A queue of bytes; its length is how many there are."""

    __slots__ = ("_at", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._at = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, data: bytes) -> None:
        """Add bytes at the end."""
        if data:
            self._parts.append(data)
            self._size += len(data)

    def take(self, size: int) -> bytes:
        """Remove so many bytes from the beginning, or all there are, and return them."""
        taken: list[bytes] = []
        left = size = min(size, self._size)
        while left:
            first, end = self._parts[0], self._at + left
            part = first[self._at : end]
            left -= len(part)
            self._at = end
            if end >= len(first):
                self._parts.popleft()
                self._at = 0
            taken.append(part)
        self._size -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def clear(self) -> None:
        """Forget everything."""
        self._parts.clear()
        self._at = self._size = 0
