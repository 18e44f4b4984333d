"""A batch on its way from produce to durable, and the caller's handle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tenure.buffer.batch.format import Range
from tenure.buffer.manifest.format import Entry
from tenure.buffer.writing.outage import DeliveryTime
from tenure.objects.store import Bytes

__all__ = ["PendingBatch", "Position", "WriteHandle"]

_ENTRY_WEIGHT = 64
"""The cost of holding one entry beside its bytes, so that a million empty ones are bounded, too."""
_RANGE_BYTES = 64


class Position(msgspec.Struct, frozen=True):
    """The position of a produce call's entries: in the batch ``seq``, from index ``start`` on."""

    seq: int
    start: int
    count: int


class PendingBatch:
    """A batch that gathers produce calls, and is then uploaded and committed.

    ``awaited`` is called with it whenever a caller begins to wait for its outcome.
    """

    def __init__(self, awaited: Callable[[PendingBatch], None]) -> None:
        loop = asyncio.get_running_loop()
        self.begun_s = loop.time()
        self._awaited = awaited
        self.calls: list[tuple[Sequence[bytes], Range]] = []
        self.count = 0
        self.bytes = 0
        self.footer_bytes = 0
        self.weight = 0
        self.ordinal = -1
        self.data: Bytes = b""
        self.entry: Entry | None = None
        self.time: DeliveryTime
        """Set when it is sealed."""
        self.is_prepared = False
        self.is_reported = False
        """Whether a caller waits, or has waited, for the outcome."""
        self.done: asyncio.Future[int] = loop.create_future()
        self.done.add_done_callback(_look)

    def add(self, entries: Sequence[bytes], size: int, metadata: bytes, now_ms: int) -> WriteHandle:
        """Add a call's entries, and return its handle."""
        handle = WriteHandle(self, self.count, len(entries))
        self.calls.append((entries, Range(self.count, now_ms, metadata)))
        self.count += len(entries)
        self.bytes += size
        self.footer_bytes += footer_bytes_of(metadata)
        self.weight += weight_of(size + len(metadata), len(entries))
        return handle

    async def outcome(self) -> int:
        """Wait for the sequence, and report that a caller waits; raises the failure."""
        self.is_reported = True
        self._awaited(self)
        return await asyncio.shield(self.done)

    def succeed(self, seq: int) -> None:
        if not self.done.done():
            self.done.set_result(seq)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def weight_of(size: int, count: int) -> int:
    """Return the weight in a producer's budget of a call with that many bytes, metadata included, and entries."""
    return size + _ENTRY_WEIGHT * count


def footer_bytes_of(metadata: bytes) -> int:
    """Return the most that a call takes of its batch's footer: its range, and its metadata in base64."""
    return _RANGE_BYTES + (len(metadata) + 2) // 3 * 4


def _look(done: asyncio.Future[int]) -> None:
    """Retrieve the exception, so that the loop does not complain of a handle whose outcome is never awaited."""
    if not done.cancelled():
        done.exception()


class WriteHandle:
    """The handle that ``produce`` returns: it waits until the entries are durable."""

    def __init__(self, batch: PendingBatch, start: int, count: int) -> None:
        self._batch = batch
        self._start = start
        self.count = count

    @property
    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._batch.done.done()

    async def durable(self) -> Position:
        """Wait until the entries are stored and their location is committed, and return it; raises the failure.

        Their batch is flushed ``flush_awaited_ms`` after its first entry, or at once where that has passed. Durable
        does not mean that a consumer has seen them, or that any database has.
        """
        return Position(await self._batch.outcome(), self._start, self.count)
