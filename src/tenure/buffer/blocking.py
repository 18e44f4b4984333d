"""The blocking API of the buffer: each call runs the async one on the process's background loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.reading import consumer
from tenure.buffer.reading.lag import Lag
from tenure.buffer.settings import BufferSettings
from tenure.buffer.writing import producer
from tenure.buffer.writing.pending import Position, WriteHandle
from tenure.objects.background import background
from tenure.objects.store import ObjectStore

__all__ = ["BlockingWriteHandle", "Consumer", "Producer"]


class BlockingWriteHandle:
    """``WriteHandle`` for a thread that blocks."""

    def __init__(self, handle: WriteHandle) -> None:
        self._handle = handle
        self.count = handle.count

    @property
    def done(self) -> bool:
        return self._handle.done

    def durable(self) -> Position:
        return background().run(self._handle.durable())


class Producer:
    """As ``tenure.buffer.Producer``, started; safe from many threads.

    >>> import tempfile
    >>> from tenure.buffer.blocking import Producer
    >>> with tempfile.TemporaryDirectory() as directory, Producer(f"file://{directory}") as producer:
    ...     producer.produce([b"a", b"b"]).durable().seq
    0
    """

    def __init__(self, store: ObjectStore | str, *, settings: BufferSettings | None = None) -> None:
        self._inner = background().run(producer.Producer.open(store, settings=settings))

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def metrics(self) -> BufferMetrics:
        return self._inner.metrics

    def produce(self, entries: Sequence[bytes], metadata: bytes = b"") -> BlockingWriteHandle:
        return BlockingWriteHandle(background().run(self._inner.produce(entries, metadata)))

    def flush(self) -> None:
        background().run(self._inner.flush())

    def close(self, deadline_ms: int | None = None) -> None:
        background().run(self._inner.close(deadline_ms))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Consumer:
    """As ``tenure.buffer.Consumer``, started.

    >>> import tempfile
    >>> from tenure.buffer.blocking import Consumer, Producer
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with Producer(f"file://{directory}") as producer:
    ...         producer.produce([b"a"]).durable().seq
    ...     with Consumer(f"file://{directory}", create=True) as consumer:
    ...         consumer.next_batch().entries
    0
    [b'a']
    """

    def __init__(
        self,
        store: ObjectStore | str,
        last_acked: int | None = None,
        *,
        group: str = "default",
        settings: BufferSettings | None = None,
        create: bool = False,
        collect: bool = True,
    ) -> None:
        opening = consumer.Consumer.open(
            store, last_acked, group=group, settings=settings, create=create, collect=collect
        )
        self._inner = background().run(opening)

    @property
    def buffer_id(self) -> str:
        return self._inner.buffer_id

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def lag(self) -> Lag:
        return self._inner.lag

    @property
    def last_acked(self) -> int | None:
        return self._inner.last_acked

    @property
    def metrics(self) -> BufferMetrics:
        return self._inner.metrics

    def next_batch(self, *, wait_ms: int = 0) -> Batch | None:
        return background().run(self._inner.next_batch(wait_ms=wait_ms))

    def next_descriptors(self, count: int, *, wait_ms: int = 0) -> list[Descriptor]:
        return background().run(self._inner.next_descriptors(count, wait_ms=wait_ms))

    def descriptors(self, low: int, high: int) -> list[Descriptor]:
        return background().run(self._inner.descriptors(low, high))

    def end_seq(self) -> int:
        return background().run(self._inner.end_seq())

    def batches(self) -> Iterator[Batch]:
        while True:
            batch = self.next_batch(wait_ms=1_000)
            if batch is not None:
                yield batch

    def fetch_handle(self) -> FetchHandle:
        return self._inner.fetch_handle()

    def ack(self, seq: int) -> None:
        background().run(self._inner.ack(seq))

    def ack_through(self, seq: int) -> None:
        background().run(self._inner.ack_through(seq))

    def quarantine(self, seq: int, reason: str) -> None:
        background().run(self._inner.quarantine(seq, reason))

    def flush(self) -> None:
        background().run(self._inner.flush())

    def close(self) -> None:
        background().run(self._inner.close())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
