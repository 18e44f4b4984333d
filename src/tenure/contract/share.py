"""`Share`: the quota of one caller within limits that all callers share; `Unsynced`: its bytes that wait for a sync."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

__all__ = ["Share", "Unsynced"]

_MARKS: Final = 1024


class Unsynced:
    """The payload bytes of one owner that were appended and are not yet durable, at most about ``bytes_max``.

    A mark is how much the whole broker had appended after them: they are durable once it has synced that far. Small
    additions share a mark, so that there are about a thousand at the most. With 0 nothing is counted.
    """

    __slots__ = ("_held", "_marks", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._held = 0
        self._marks: deque[tuple[int, int]] = deque()

    def add(self, size: int, mark: int) -> None:
        """Count bytes that are durable once ``mark`` is."""
        marks = self._marks
        if self.bytes_max:
            self._held += size
            if marks and marks[-1][1] + size <= self.bytes_max // _MARKS:
                size += marks.pop()[1]
            marks.append((mark, size))

    def held(self, synced: int) -> int:
        """Return how many bytes are not durable while the broker has synced up to ``synced``."""
        marks = self._marks
        while marks and marks[0][0] <= synced:
            self._held -= marks.popleft()[1]
        return self._held

    def is_full(self, synced: int) -> bool:
        """Return whether no more should be added before the next sync."""
        return 0 < self.bytes_max <= self._held and self.bytes_max <= self.held(synced)


class Share(ABC):
    """The quota of one caller within limits that all callers share.

    A decision calls it after the limit itself leaves room; each method raises Overloaded where the quota does not. The
    command may still fail for another reason, so a share may count too much and never too little.
    """

    __slots__ = ()

    @abstractmethod
    def take_topic(self, name: str) -> None:
        """Count a topic that is about to be created."""

    @abstractmethod
    def take_router(self, name: str) -> None:
        """Count a router that is about to be created."""

    @abstractmethod
    def take_key(self, topic: str) -> None:
        """Count one more idempotency key that a topic is about to remember."""

    @abstractmethod
    def take_bytes(self, size: int, *, appended: int, synced: int) -> None:
        """Count payload that is about to be appended, while the broker has appended and synced so many bytes.

        Called only while many bytes wait for a sync: what came before that is not counted.
        """
