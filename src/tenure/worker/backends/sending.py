"""Send puts to the broker: single puts batched by a producer per queue, other puts in a request of their own.

Every request carries the declared config, which takes effect only where it creates the queue; so a put needs no round
trip to look for the queue, and no scope beyond write where it exists. The first puts of a queue, which often come all
at once, are batched like any others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.contract.records import Record
from tenure.worker.blocking import check_no_loop, run_now
from tenure.worker.middleware import Middleware, Outgoing, Put, around_put
from tenure.worker.observing.metrics import Stats
from tenure.worker.payload import encode

if TYPE_CHECKING:
    from tenure.client.batching.blocking_producer import Producer
    from tenure.client.batching.producer import AsyncProducer
    from tenure.client.client import AsyncClient, Client

__all__ = ["AsyncSending", "BlockingSending"]


class AsyncSending:
    """Puts on an event loop, through one client."""

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop, stats: Stats) -> None:
        self.client = client
        self.loop = loop
        self._stats = stats
        self._producers: dict[str, AsyncProducer] = {}

    async def send(self, put: Put, middlewares: Sequence[Middleware]) -> list[int]:
        """Append the records of ``put`` through the put hooks, and return their seqs once they are durable."""
        return await (around_put(middlewares, self._append)(put) if middlewares else self._append(put))

    async def close(self, *, deadline_ms: int | None = None) -> None:
        """Send pending puts, then close the client.

        After ``deadline_ms``, and where this is cancelled, puts that were not sent fail with Closed, and those in
        flight with Indeterminate.
        """
        producers = list(self._producers.values())
        try:
            await asyncio.gather(*(producer.close(deadline_ms=deadline_ms) for producer in producers))
        finally:
            for producer in producers:
                await producer.close(deadline_ms=0)
            await self.client.close()

    async def _append(self, put: Put) -> list[int]:
        stats = self._stats.queue(put.queue)
        if _is_plain(put):
            producer = self._producers.get(put.queue)
            if producer is None:
                producer = self.client.producer(put.queue, config=put.task.options.queue_config())
                self._producers[put.queue] = producer
            seqs = [await producer.put(_record(put.records[0]))]
            stats.producer_batches = producer.sent_count
        else:
            produced = await self.client.produce(
                put.queue,
                [_record(record) for record in put.records],
                idempotency_key=put.idempotency_key,
                config=put.task.options.queue_config(),
            )
            seqs = list(produced.seqs)
        stats.puts += len(seqs)
        return seqs


class BlockingSending:
    """Puts from threads, through one blocking client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._producers: dict[str, Producer] = {}

    def send(self, put: Put, middlewares: Sequence[Middleware]) -> list[int]:
        """As `AsyncSending.send`; the hooks run without a loop, so they must not wait for anything."""
        check_no_loop("task.blocking", instead="task.put(…)")
        if not middlewares:
            return self._append(put)
        refusal = "a middleware's put hook waited for something: with task.blocking it must not"
        return run_now(self._append_with_hooks(put, middlewares), refusal=refusal)

    async def _append_with_hooks(self, put: Put, middlewares: Sequence[Middleware]) -> list[int]:
        async def append(put: Put) -> list[int]:
            return self._append(put)

        return await around_put(middlewares, append)(put)

    def _append(self, put: Put) -> list[int]:
        if _is_plain(put):
            return [self._producer(put).put(_record(put.records[0]))]
        records = [_record(record) for record in put.records]
        produced = self.client.produce(
            put.queue, records, idempotency_key=put.idempotency_key, config=put.task.options.queue_config()
        )
        return list(produced.seqs)

    def _producer(self, put: Put) -> Producer:
        """Return the producer of a queue, one for all threads: of two made at once the first is kept."""
        producer = self._producers.get(put.queue)
        if producer is None:
            made = self.client.producer(put.queue, config=put.task.options.queue_config())
            producer = self._producers.setdefault(put.queue, made)
        return producer


def _is_plain(put: Put) -> bool:
    """Return whether a put may share a request with others: one job, and no key that is per request."""
    return len(put.records) == 1 and put.records[0].unique_key is None and put.idempotency_key is None


def _record(outgoing: Outgoing) -> Record:
    return Record(
        data=outgoing.data,
        tag=outgoing.tag,
        meta=None if outgoing.meta is None else encode(outgoing.meta, what="meta"),
        delay_ms=outgoing.delay_ms,
        deliver_at=outgoing.deliver_at,
        unique_key=outgoing.unique_key,
    )
