"""`Producer`: gather the puts of many threads into few requests.

One thread, the leader, sends for all, and passes the lead on once its own put is done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from tenure.client.batching.batcher import Batch, Batcher
from tenure.client.batching.put import PLAIN, Given, Put, PutOptions, outcomes
from tenure.client.batching.settings import ProducerOptions, ProducerSettings
from tenure.client.closing import Closing
from tenure.client.config import ConfigFields, careful_queue
from tenure.client.transport.fork import renew_in_child
from tenure.contract.names import check_topic_name
from tenure.contract.options import declare_options
from tenure.errors import Closed, Indeterminate, Invalid

if TYPE_CHECKING:
    from tenure.client.client import Calls
    from tenure.client.transport.wire import Wire

__all__ = ["Producer"]


class _Gate:
    """The waiter of one thread: until its puts have their outcomes, or until it leads."""

    __slots__ = ("leads", "left", "lock")

    def __init__(self) -> None:
        self.leads = False
        self.left = 0
        self.lock = threading.Lock()
        self.lock.acquire()

    def open(self) -> None:
        """Wake the thread. The caller holds the producer's lock, so no other thread opens the gate meanwhile."""
        if self.lock.locked():
            self.lock.release()


class Producer(Closing):
    """A producer that gathers the puts of many threads to one topic; each returns once its record is durable.

    Puts made while a request is in flight go out together, in the order of the calls.
    """

    def __init__(
        self, client: Calls[Wire], topic: str, *, config: ConfigFields | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self.topic = check_topic_name(topic)
        self.settings = ProducerSettings(**options)
        self._client = client
        self._config = (config or careful_queue(self.topic)) if self.settings.create else None
        self._closed = False
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start with nothing pending: the parent sends what was put before the fork."""
        self._batcher: Batcher[_Gate] = Batcher(self.settings, report=_report)
        self._lock = threading.Lock()
        self._landed = threading.Condition(self._lock)
        self._led = False

    @declare_options
    def put(self, data: Any, **options: Unpack[PutOptions]) -> int:
        """Append one record and return its seq once it is durable, by the topic's class; wait while there is no room.

        Goes alone with a ``unique_key``, and raises, as `AsyncProducer.put` does.
        """
        (put,) = self._put_all([(data, options)])
        if put.error is not None:
            raise put.error
        return put.seq

    def put_many(self, items: Iterable[Any]) -> list[int]:
        """Append records and return their seqs once all are durable. They go batch by batch.

        Where some fail, the others are stored all the same, and the first error is raised once all have their outcome;
        a note on it has the index of its item.
        """
        puts: list[Put[_Gate]] = []
        drawn = iter(items)
        while some := list(islice(drawn, self.settings.batch_records_max)):
            puts += self._put_all([(item, PLAIN) for item in some])
        return outcomes(puts)

    def flush(self) -> None:
        """Return once everything that was put before has its outcome."""
        with self._lock:
            number = self._batcher.next_number
            self._landed.wait_for(lambda: self._batcher.oldest_number >= number)

    def close(self, *, deadline_ms: int | None = None) -> None:
        """Wait until what is pending has been sent, and take nothing more; a later put raises Closed.

        After ``deadline_ms`` what was not sent fails with Closed; a request in flight ends by its own timeout.
        """
        with self._lock:
            self._closed = True
            seconds = None if deadline_ms is None else deadline_ms / 1000
            if not self._landed.wait_for(lambda: self._batcher.idle, seconds):
                self._batcher.abandon(Closed("the producer was closed before the record was sent: put it elsewhere"))

    # Waiting

    def _put_all(self, givens: list[Given]) -> list[Put[_Gate]]:
        """Enter puts and return them once they have their outcomes."""
        gate = _Gate()
        puts = [Put(given, gate) for given in givens]
        try:
            with self._lock:
                for put in puts:
                    self._enter(put)
                lingers = self._take_the_lead(gate)
            while gate.left:
                if gate.leads:
                    self._round(lingers=lingers)
                    lingers = False
                else:
                    gate.lock.acquire()
        except BaseException:
            with self._lock:
                for put in puts:
                    self._batcher.give_up(put)
            raise
        finally:
            self._pass_the_lead(gate)
        return puts

    def _enter(self, put: Put[_Gate]) -> None:
        if self._closed:
            raise Closed(f"the producer of {self.topic} is closed: make another one")
        try:
            self._batcher.add(put)
        except Invalid as error:
            put.error = error
        else:
            put.waiter.left += 1

    def _take_the_lead(self, gate: _Gate) -> bool:
        """Make this thread the leader where there is none; return whether it leads."""
        if gate.left == 0 or self._led:
            if self._batcher.full:
                self._landed.notify_all()  # a leader that lingers
            return False
        self._led = gate.leads = True
        return True

    def _pass_the_lead(self, gate: _Gate) -> None:
        with self._lock:
            if gate.leads:
                gate.leads = False
                head = self._batcher.head
                self._led = head is not None
                if head is not None:
                    head.waiter.leads = True
                    head.waiter.open()

    # Sending

    def _round(self, *, lingers: bool) -> None:
        """Send one batch for all threads."""
        with self._lock:
            if lingers and self.settings.linger_ms:
                self._landed.wait_for(lambda: self._batcher.full, self.settings.linger_ms / 1000)
            batch = self._batcher.take()
        try:
            self._send(batch)
        finally:
            with self._lock:
                self._batcher.finish_batch()
                self._landed.notify_all()

    def _send(self, batch: Batch[_Gate]) -> None:
        parts = [batch] if batch else []
        while parts:
            part = parts.pop(0)
            try:
                produced = self._client.produce(
                    self.topic, [put.text for put in part], create=self.settings.create, config=self._config
                )
            except Exception as error:
                with self._lock:
                    parts[:0] = self._batcher.refuse(part, error)
            except BaseException:  # the leading thread was interrupted: the others must not wait for it
                unknown = Indeterminate(
                    "the sending thread was interrupted: look for the record before putting it again"
                )
                with self._lock:
                    for lost in (part, *parts):
                        self._batcher.refuse(lost, unknown)
                raise
            else:
                with self._lock:
                    self._batcher.accept(part, produced)


def _report(put: Put[_Gate]) -> None:
    gate = put.waiter
    gate.left -= 1
    if gate.left == 0:
        gate.open()
