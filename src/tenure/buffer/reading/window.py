"""The window of a consumer: descriptors of one manifest read that it has not handed out yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tenure.buffer.batch.format import Descriptor
from tenure.clock import Clock

__all__ = ["WINDOW_BATCHES", "Window"]

WINDOW_BATCHES = 100
"""Batches that a consumer takes one by one for one read of the manifest; their descriptors take some 40 kB."""
_WINDOW_MS = 10_000
"""The age after which the manifest is read again: a consumer that stood still meanwhile may be fenced."""


class Window:
    """The batches that follow a cursor, as one manifest read showed them: few, and for a short time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._descriptors = deque[Descriptor]()
        self._until_ms = 0

    def fill(self, descriptors: Sequence[Descriptor], *, read_ms: int) -> None:
        """Replace the descriptors; the manifest was read at ``read_ms`` since boot."""
        self._descriptors = deque(descriptors)
        self._until_ms = read_ms + _WINDOW_MS

    def at(self, seq: int) -> Descriptor | None:
        """Return the batch ``seq``, None where the manifest has to be read. Earlier ones are dropped."""
        while self._descriptors and self._descriptors[0].seq < seq:
            self._descriptors.popleft()
        if not self._descriptors or self._descriptors[0].seq > seq or self._clock.boot_ms() >= self._until_ms:
            return None
        return self._descriptors[0]

    def clear(self) -> None:
        """Have the manifest read again."""
        self._descriptors.clear()
