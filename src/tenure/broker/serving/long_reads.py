"""Long polls of readers: reads that wait for their first record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.broker.serving.pending import Pending
from tenure.contract.commands import Diff
from tenure.contract.replies import Difference
from tenure.errors import NotFound, TenureError

if TYPE_CHECKING:
    from tenure.broker.serving.loop import ServingLoop

__all__ = ["ReadWaiter", "Reading"]


class ReadWaiter:
    """A read that is run again after each event on its topic, until there is something to read.

    ``found`` is the result of the first read. Where it is empty, ``start`` makes it wait.
    """

    def __init__(self, serving: ServingLoop, command: Diff) -> None:
        self._serving = serving
        self._command = command
        self._topic = serving.engine.state.topic(command.topic)
        self._time_is_up = False
        self.found = self._look()

    def _look(self) -> Difference:
        return self._serving.engine.run(self._command).reply

    def start(self, wait_ms: int) -> asyncio.Future[Difference]:
        """Wait up to ``wait_ms``. Raises Overloaded where too many callers wait."""
        self._serving.check_waiters()
        self._future: asyncio.Future[Difference] = self._serving.loop.create_future()
        self._serving.readings.setdefault(self._topic, set()).add(self)
        self._alarm = self._serving.alarms.at(self._serving.engine.now() + wait_ms, self._time_up)
        self._go_on(self.found)
        return self._future

    def look_again(self) -> None:
        """Read again after an event on the topic, and answer if there is something to read now."""
        if self._serving.engine.state.by_id.get(self._topic.id) is not self._topic:
            self.refuse(
                NotFound(
                    f"topic {self._command.topic!r} was deleted", code="topic_not_found", topic=self._command.topic
                )
            )
            return
        try:
            if self._serving.must_check:
                self._serving.check_open()
            found = self._look()
        except TenureError as error:
            self.refuse(error)
            return
        if self._time_is_up or found.records or found.tombstone is not None:
            self.stop()
            if not self._future.done():
                self._future.set_result(found)
        else:  # what was passed over, such as the reader's own records, need not be read again
            self._go_on(found)

    def _go_on(self, found: Difference) -> None:
        """Go on after what was passed over, in the next turn where there is more than one read looks at."""
        from_seq = max(self._command.from_seq, found.next_from_seq)
        self._command = replace(self._command, from_seq=from_seq)
        if not found.caught_up:
            self._serving.attend_later(self._topic)

    def _time_up(self) -> None:
        self._time_is_up = True
        self.look_again()

    def refuse(self, error: TenureError) -> None:
        """Answer with this error."""
        self.stop()
        if not self._future.done():
            self._future.set_exception(error)

    def stop(self) -> None:
        """Stop waiting."""
        self._alarm.cancel()
        readings = self._serving.readings.get(self._topic)
        if readings is not None:
            readings.discard(self)
            if not readings:
                del self._serving.readings[self._topic]


class Reading(Pending[Difference]):
    """The result of a read, to be awaited. Cancelling or dropping it ends its wait."""

    def __init__(self, serving: ServingLoop, waiter: ReadWaiter, *, wait_ms: int) -> None:
        found = waiter.found
        waits = wait_ms and not found.records and found.tombstone is None
        self._waiter = waiter
        self._future = waiter.start(wait_ms) if waits else None
        super().__init__(serving.loop)
        serving.settle()

    async def _finish(self) -> Difference:
        if self._future is None:
            return self._waiter.found
        try:
            return await self._future
        finally:
            self._waiter.stop()

    def _abandon(self) -> None:
        if self._future is not None:
            self._waiter.stop()
            self._future.cancel()
