"""`AsyncProducer`: gather the puts of many tasks into few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from tenure.client.batching.batcher import Batch, Batcher
from tenure.client.batching.put import PLAIN, Put, PutOptions, outcomes
from tenure.client.batching.settings import ProducerOptions, ProducerSettings
from tenure.client.closing import AsyncClosing
from tenure.client.config import ConfigFields, careful_queue
from tenure.contract.names import check_topic_name
from tenure.contract.options import declare_options
from tenure.errors import Closed, Indeterminate, Invalid

if TYPE_CHECKING:
    from tenure.client.client import Calls
    from tenure.client.transport.wire import AsyncWire

__all__ = ["AsyncProducer"]


class _Crowd:
    """The waiter of one call for many puts."""

    __slots__ = ("future", "left")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.left = 1  # the caller itself, until it has put them all

    def leave(self) -> None:
        """Count one put that has its outcome."""
        self.left -= 1
        if self.left == 0 and not self.future.done():
            self.future.set_result(None)


_Waiter = asyncio.Future[int] | _Crowd


class AsyncProducer(AsyncClosing):
    """A producer that gathers concurrent puts to one topic, and answers each caller once its record is durable.

    Puts of one turn of the loop, or made while a request is in flight, go out together, in the order of the calls.
    A put that is cancelled before its record was sent is not sent.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.testing import AppWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
    ...         async with client.producer("mail") as producer:
    ...             return await asyncio.gather(producer.put("a"), producer.put("b"))
    >>> asyncio.run(main())
    [1, 2]
    """

    def __init__(
        self,
        client: Calls[AsyncWire],
        topic: str,
        *,
        config: ConfigFields | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.topic = check_topic_name(topic)
        self.settings = ProducerSettings(**options)
        self.sent_count = 0
        """Requests so far."""
        self._client = client
        self._config = (config or careful_queue(self.topic)) if self.settings.create else None
        self._batcher: Batcher[_Waiter] = Batcher(self.settings, report=_report)
        self._sender: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()
        self._full: asyncio.Future[None] | None = None
        self._closed = False

    @declare_options
    async def put(self, data: Any, **options: Unpack[PutOptions]) -> int:
        """Append one record and return its seq once it is durable, by the topic's class; wait while there is no room.

        A record with a ``unique_key`` goes in a request of its own. Raises Invalid for a record that cannot be stored,
        Closed after `close`, Indeterminate where it may or may not be stored, and the errors of the broker.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        put: Put[_Waiter] = Put((data, options), future)
        self._enter(put)
        try:
            return await future
        except asyncio.CancelledError:
            self._batcher.give_up(put)
            raise

    async def put_many(self, items: Iterable[Any]) -> list[int]:
        """Append records and return their seqs once all are durable. They may go in several requests.

        Items are drawn as there is room. Where some fail, the others are stored all the same, and the first error is
        raised once all have their outcome, with a note of which item it was.
        """
        crowd = _Crowd(asyncio.get_running_loop().create_future())
        puts: list[Put[_Waiter]] = []
        try:
            for item in items:
                while self._batcher.crowded:
                    await self._landed.wait()
                puts.append(self._submit_among(item, crowd))
            crowd.leave()
            await crowd.future
        except BaseException:
            for put in puts:
                self._batcher.give_up(put)
            raise
        return outcomes(puts)

    async def flush(self) -> None:
        """Return once everything that was put before has its outcome."""
        number = self._batcher.next_number
        while self._batcher.oldest_number < number:
            await self._landed.wait()

    async def close(self, *, deadline_ms: int | None = None) -> None:
        """Send what is pending and take nothing more; a later put raises Closed.

        After ``deadline_ms`` what was not sent fails with Closed, and what is in flight with Indeterminate.
        """
        self._closed = True
        sender = self._sender
        if sender is None:
            return
        seconds = None if deadline_ms is None else deadline_ms / 1000
        done, _ = await asyncio.wait({sender}, timeout=seconds)
        if not done:
            self._batcher.abandon(Closed("the producer was closed before the record was sent: put it elsewhere"))
            sender.cancel()
            await asyncio.wait({sender})

    # Sending

    def _enter(self, put: Put[_Waiter]) -> None:
        if self._closed:
            raise Closed(f"the producer of {self.topic} is closed: make another one")
        self._batcher.add(put)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        elif self._full is not None and self._batcher.full and not self._full.done():
            self._full.set_result(None)

    def _submit_among(self, item: Any, crowd: _Crowd) -> Put[_Waiter]:
        """Enter one put of many; an error of it is reported with the outcomes of the others."""
        put: Put[_Waiter] = Put((item, PLAIN), crowd)
        try:
            self._enter(put)
        except Invalid as error:
            put.error = error
        else:
            crowd.left += 1
        return put

    async def _send_all(self) -> None:
        """Send batch after batch until nothing is pending."""
        try:
            if self.settings.linger_ms:
                await self._linger()
            while batch := self._batcher.take():
                await self._send(batch)
                self._batcher.finish_batch()
                self._wake_flushers()
                # The callers just answered run before this task does, and what they put next joins the batch.
                await asyncio.sleep(0)
        finally:
            self._sender = None
            self._wake_flushers()

    def _wake_flushers(self) -> None:
        self._landed.set()
        self._landed.clear()

    async def _linger(self) -> None:
        loop = asyncio.get_running_loop()
        self._full = loop.create_future()
        if not self._batcher.full:
            await asyncio.wait({self._full}, timeout=self.settings.linger_ms / 1000)
        self._full = None

    async def _send(self, batch: Batch[_Waiter]) -> None:
        parts = [batch]
        while parts:
            part = parts.pop(0)
            self.sent_count += 1
            try:
                produced = await self._client.produce(
                    self.topic, [put.text for put in part], create=self.settings.create, config=self._config
                )
            except Exception as error:
                parts[:0] = self._batcher.refuse(part, error)
            except asyncio.CancelledError:
                message = "the producer was closed while the record was on its way: look for it before putting it again"
                for lost in (part, *parts):
                    self._batcher.refuse(lost, Indeterminate(message))
                self._batcher.finish_batch()
                raise
            else:
                self._batcher.accept(part, produced)


def _report(put: Put[_Waiter]) -> None:
    waiter = put.waiter
    if isinstance(waiter, _Crowd):
        waiter.leave()
    elif not waiter.done():  # or it is cancelled, and its task has not yet run
        if put.error is None:
            waiter.set_result(put.seq)
        else:
            waiter.set_exception(put.error)
