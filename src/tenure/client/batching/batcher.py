"""`Batcher`: puts of a producer gathered into batches, without waiting for anything itself.

    put ──► waiting ──► pending ──► batch ──► settled
            no room     next batch  in flight

One batch is in flight at a time, so the order of puts is the order of seqs, and everything that comes meanwhile makes
up the next batch. Both producers, on an event loop and for threads, drive it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from tenure.client.batching.put import Put
from tenure.client.batching.settings import PUT_BYTES, ProducerSettings
from tenure.client.plan.encode import RecordText
from tenure.contract.replies import Produced
from tenure.errors import Invalid, TenureError

__all__ = ["Batch", "Batcher", "own"]

W = TypeVar("W")
_SENT = RecordText()
Batch = list[Put[W]]


class Batcher(Generic[W]):
    """Puts in the order of their callers, made into batches. Not safe for threads: the driver locks.

    ``report`` is called with every put that has its outcome, unless its caller gave up.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        report: Callable[[Put[W]], None],
    ) -> None:
        self._settings = settings
        self._report = report
        # Ordered, because a cancelled put is taken out of the middle: looking for the first entry of a plain dict would
        # pass over all that were taken out before it.
        self._waiting: OrderedDict[Put[W], None] = OrderedDict()
        self._pending: OrderedDict[Put[W], None] = OrderedDict()
        self._flying: Batch[W] = []
        self._numbers = 0
        self._bytes = 0

    # State

    @property
    def idle(self) -> bool:
        """Whether every put has its outcome."""
        return not (self._flying or self._pending or self._waiting)

    @property
    def crowded(self) -> bool:
        """Whether the next put would have to wait."""
        return self._bytes >= self._settings.pending_bytes_max

    @property
    def full(self) -> bool:
        """Whether waiting longer cannot make the next batch larger."""
        return len(self._pending) >= self._settings.batch_records_max or self._bytes >= self._settings.batch_bytes_max

    @property
    def next_number(self) -> int:
        """The number that the next put will get."""
        return self._numbers + 1

    @property
    def oldest_number(self) -> int:
        """The number of the oldest put without an outcome; `next_number` where there is none."""
        for puts in (self._flying, self._pending, self._waiting):
            for put in puts:
                return put.number
        return self._numbers + 1

    @property
    def head(self) -> Put[W] | None:
        """The first put of the next batch."""
        return next(iter(self._pending), None)

    # In

    def add(self, put: Put[W]) -> None:
        """Add a put. Raises Invalid for a bad record at once where there is room to encode it."""
        self._numbers += 1
        put.number = self._numbers
        if self.crowded:
            self._waiting[put] = None
        else:
            self._admit(put)

    def _admit(self, put: Put[W]) -> None:
        put.cost_bytes = PUT_BYTES + put.seal(record_bytes_max=self._settings.record_bytes_max)
        self._bytes += put.cost_bytes
        self._pending[put] = None

    def _admit_waiting(self) -> None:
        while self._waiting and self._bytes < self._settings.pending_bytes_max:
            put, _ = self._waiting.popitem(last=False)
            try:
                self._admit(put)
            except Exception as error:
                self._settle(put, error)

    # Out

    def take(self) -> Batch[W]:
        """Cut the next batch, which is in flight from now on, and return it; empty where nothing is pending."""
        assert not self._flying, "one batch is in flight at a time"
        self._flying = batch = self._cut()
        for put in batch:
            del self._pending[put]
        return batch

    def _cut(self) -> Batch[W]:
        batch: Batch[W] = []
        count_max, room = self._settings.batch_records_max, self._settings.batch_bytes_max
        for put in self._pending:
            room -= put.cost_bytes - PUT_BYTES
            if batch and (room < 0 or put.alone or len(batch) == count_max):
                break
            batch.append(put)
            if put.alone:
                break
        return batch

    def accept(self, part: Batch[W], produced: Produced) -> None:
        """Report success for all or a part of the batch in flight."""
        if len(produced.seqs) != len(part):
            message = f"the answer to {len(part)} records tells of {len(produced.seqs)}"
            self.refuse(part, TenureError(message, code="bad_answer"))
            return
        for put, seq in zip(part, produced.seqs, strict=True):
            put.seq = seq
            if not put.given_up:
                self._report(put)

    def refuse(self, part: Batch[W], error: Exception) -> list[Batch[W]]:
        """Report a failure of all or a part of the batch in flight, or return what to send instead, in order.

        A server refuses a batch as a whole for one bad record. Halves of it find that record in a few more requests,
        and its neighbours go through.
        """
        if isinstance(error, Invalid) and len(part) > 1:
            middle = len(part) // 2
            return [part[:middle], part[middle:]]
        for put in part:
            self._settle(put, error if len(part) == 1 else own(error))
        return []

    def finish_batch(self) -> None:
        """End the batch in flight, whose puts all have their outcome, and admit puts that wait for its room."""
        for put in self._flying:
            self._bytes -= put.cost_bytes
            put.text = _SENT
        self._flying = []
        self._admit_waiting()

    # The end

    def give_up(self, put: Put[W]) -> None:
        """Drop a put whose caller waits no longer: it is not sent, if it was not yet, and not reported."""
        put.given_up = True
        if put in self._pending:
            del self._pending[put]
            self._bytes -= put.cost_bytes
            self._admit_waiting()
        else:
            self._waiting.pop(put, None)

    def abandon(self, error: TenureError) -> None:
        """Fail everything that was not sent."""
        left = [*self._pending, *self._waiting]
        self._bytes -= sum(put.cost_bytes for put in self._pending)
        self._pending.clear()
        self._waiting.clear()
        for put in left:
            self._settle(put, own(error))

    def _settle(self, put: Put[W], error: Exception) -> None:
        put.error = error
        if not put.given_up:
            self._report(put)


def own(error: Exception) -> Exception:
    """Return a copy of an error for one caller of several: raising one object in many places mixes their tracebacks."""
    if not isinstance(error, TenureError):
        return error
    copy = type(error)(error.message, code=error.code)
    copy.detail = dict(error.detail)
    copy.__cause__ = error
    return copy
