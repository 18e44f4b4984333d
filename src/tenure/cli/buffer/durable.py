"""Entries handed to a producer, and how many of them, from the first one on, are durable."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.buffer.blocking import BlockingWriteHandle, Producer

__all__ = ["DurableCount"]


class DurableCount:
    """Calls of one producer in their order. Where an import ends early, the next one continues after ``count``."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._waiting: deque[BlockingWriteHandle] = deque()
        self.count = 0

    def produce(self, entries: list[bytes], metadata: bytes) -> None:
        """Produce one call. Raises what a call before it has failed with."""
        self._waiting.append(self._producer.produce(entries, metadata))
        while self._waiting and self._waiting[0].done:
            self._settle()

    def finish(self) -> None:
        """Wait until everything is durable. Raises the first failure."""
        self._producer.flush()
        while self._waiting:
            self._settle()

    def is_exact(self) -> bool:
        """Wait for what is on its way; return whether all of it is durable, so that nothing beyond ``count`` is."""
        with suppress(TenureError):
            self._producer.flush()
        with suppress(TenureError):
            while self._waiting and self._waiting[0].done:
                self._settle()
        return not self._waiting

    def _settle(self) -> None:
        self._waiting[0].durable()
        self.count += self._waiting.popleft().count
