"""Callers that wait: for jobs to claim, or for records to read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.broker import leases, reads
from tenure.broker.answer import Answer
from tenure.broker.coordinator import ClaimWaiter
from tenure.broker.engine import Engine
from tenure.broker.replies import Claim, Difference
from tenure.core.names import check_key, check_node
from tenure.core.topic import Topic
from tenure.core.values import check_flag, check_whole
from tenure.errors import NotFound, TenureError
from tenure.settings import Settings

if TYPE_CHECKING:
    from tenure.broker.pump import Pump

__all__ = ["Asked", "Reading", "Waiting"]


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What a claim asks for."""

    node: str
    max_count: int
    lease_ms: int | None
    claim_id: str | None
    auto_ack: bool

    def check(self, settings: Settings) -> None:
        """Raise Invalid now for what would be refused once its turn comes."""
        check_node(self.node)
        check_whole(self.max_count, "max")
        if self.lease_ms is not None:
            check_whole(self.lease_ms, "lease_ms")
        if self.claim_id is not None:
            check_key(self.claim_id, field="claim_id", bytes_max=settings.key_bytes_max)
        check_flag(self.auto_ack, "auto_ack")

    def claim(self, engine: Engine, topic: str) -> Answer[Claim]:
        """Carry it out."""
        return leases.claim(
            engine,
            topic,
            node=self.node,
            max_count=self.max_count,
            lease_ms=self.lease_ms,
            claim_id=self.claim_id,
            auto_ack=self.auto_ack,
        )


class Waiting:
    """A claim that waits: in a cohort, or until something comes or its time is up. Cancelling it gives back what it
    got.
    """

    def __init__(self, pump: Pump, topic: Topic, asked: Asked, *, wait_ms: int) -> None:
        asked.check(pump.engine.settings)
        pump.check_waiters()
        self._pump = pump
        self._topic = topic
        self._asked = asked
        self._waiter = ClaimWaiter(
            pump.loop.create_future(),
            node=asked.node,
            max_count=leases.clamp_claim(pump.engine, asked.max_count),
            lease_ms=asked.lease_ms,
            claim_id=asked.claim_id,
            auto_ack=asked.auto_ack,
        )
        pump.coordinator.add(topic, self._waiter)
        pump.coordinator.serve(topic)
        self._alarm = pump.alarms.at(pump.engine.now() + wait_ms, self._time_up)
        if not wait_ms:
            self._time_up()
        pump.settle()

    def _time_up(self) -> None:
        """The last moment: take what is there, if only an empty hand or the reason why."""
        if self._waiter.future.done():
            return
        self._pump.coordinator.remove(self._topic, self._waiter)
        try:
            self._waiter.give(self._asked.claim(self._pump.engine, self._topic.name))
        except TenureError as error:
            self._waiter.refuse(error)
        self._pump.settle()

    def __await__(self) -> Generator[Any, None, Claim]:
        future = self._waiter.future
        try:
            answer = yield from future
            return (yield from self._pump.answer_claim(answer).__await__())
        except asyncio.CancelledError:
            self._give_back(future)
            raise
        finally:
            self._alarm.cancel()
            self._pump.coordinator.remove(self._topic, self._waiter)

    def _give_back(self, future: asyncio.Future[Answer[Claim]]) -> None:
        if future.done() and not future.cancelled() and future.exception() is None:
            lease = future.result().reply.lease
            if lease:
                leases.release(self._pump.engine, self._topic, [lease])
                self._pump.settle()


class Reading:
    """A read that may wait for its first record."""

    def __init__(
        self, pump: Pump, topic: str, *, from_seq: int, limit: int, node: str | Collection[str] | None
    ) -> None:
        self._pump = pump
        self._name = topic
        self._from_seq, self._limit, self._node = from_seq, limit, node
        self._topic = pump.engine.state.topic(topic)
        self._found = self._look()
        self._future: asyncio.Future[Difference] | None = None
        self._time_is_up = False

    def _look(self) -> Difference:
        return reads.diff(self._pump.engine, self._name, from_seq=self._from_seq, limit=self._limit, node=self._node)

    def start(self, wait_ms: int) -> None:
        """Wait that long if nothing is there yet."""
        if wait_ms and not self._found.records and self._found.tombstone is None:
            self._pump.check_waiters()
            self._future = self._pump.loop.create_future()
            self._pump.readings.setdefault(self._topic, set()).add(self)
            self._alarm = self._pump.alarms.at(self._pump.engine.now() + wait_ms, self._time_up)
        self._pump.settle()

    def look_again(self) -> None:
        """Something happened on the topic: answer if there is something to read now."""
        if self._pump.engine.state.by_id.get(self._topic.id) is not self._topic:
            self.refuse(NotFound(f"topic {self._name!r} was deleted", code="topic_not_found", topic=self._name))
            return
        try:
            found = self._look()
        except TenureError as error:
            self.refuse(error)
            return
        if self._time_is_up or found.records or found.tombstone is not None:
            self._finish(found)
        else:  # what was passed over, such as the reader's own records, need not be read again
            self._from_seq = max(self._from_seq, found.next_from_seq)

    def _time_up(self) -> None:
        self._time_is_up = True
        self.look_again()

    def _finish(self, found: Difference) -> None:
        self._stop()
        if self._future is not None and not self._future.done():
            self._future.set_result(found)

    def refuse(self, error: TenureError) -> None:
        """There will be nothing to read."""
        self._stop()
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)

    def _stop(self) -> None:
        if self._future is None:
            return
        self._alarm.cancel()
        readings = self._pump.readings.get(self._topic)
        if readings is not None:
            readings.discard(self)
            if not readings:
                del self._pump.readings[self._topic]

    def __await__(self) -> Generator[Any, None, Difference]:
        if self._future is None:
            return self._found
        try:
            return (yield from self._future)
        finally:
            self._stop()
