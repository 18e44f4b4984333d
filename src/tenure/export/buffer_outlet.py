"""The buffer that an export writes to: one batch a call, under a producer name that never changes."""

from __future__ import annotations

from types import TracebackType

from tenure.buffer.writing.producer import Producer
from tenure.errors import NotFound
from tenure.log.disk import Disk
from tenure.log.segment import list_heads
from tenure.objects.store import ObjectStore

__all__ = ["BufferOutlet", "producer_name"]


def producer_name(log: Disk) -> str:
    """Return the producer name for a log's export: it is the log's own, so several brokers may share a buffer.

    Raises NotFound where there is no log.
    """
    heads = list_heads(log)
    if not heads:
        raise NotFound("there is no log here: name the directory of a broker that was opened once", code="no_log")
    return f"export-{heads[0].log_id.hex()}"


class BufferOutlet:
    """The exporter's outlet on a producer: ``async with BufferOutlet(store, name)``."""

    def __init__(self, store: ObjectStore | str, name: str) -> None:
        self._producer = Producer(store, name=name, replays=True)
        self.buffer = ""
        self.ordinal = -1
        self.recalled = b""

    async def __aenter__(self) -> BufferOutlet:
        await self._producer.start()
        self.buffer, self.ordinal = self._producer.buffer_id, self._producer.last_ordinal
        if self.ordinal >= 0:
            self.recalled = await self._producer.last_metadata() or b""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._producer.close()

    async def send(self, rows: list[bytes], metadata: bytes) -> None:
        """Commit the rows as one batch. Raises what the producer raises; then the outcome is unknown."""
        handle = await self._producer.produce(rows, metadata)
        await self._producer.flush()
        await handle.durable()
        self.ordinal += 1
