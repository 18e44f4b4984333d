"""What keeps an open broker moving: after each command, those who wait are fed and the write is planned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tenure.broker import leases, routing
from tenure.broker.alarms import Alarms
from tenure.broker.answer import Answer, Level
from tenure.broker.committer import Committer
from tenure.broker.coordinator import Coordinator
from tenure.broker.engine import Engine
from tenure.broker.lifecycle import Lifecycle, expired, translate
from tenure.broker.replies import Claim
from tenure.broker.streams import Subscription, WorkStream
from tenure.broker.unsynced import UnsyncedClaims
from tenure.broker.waiting import Asked, Reading
from tenure.core.events import Event
from tenure.core.names import check_node
from tenure.core.topic import Topic
from tenure.core.values import check_whole
from tenure.errors import Closed, Overloaded

__all__ = ["Pump"]

T = TypeVar("T")


class Pump:
    """The moving parts around one engine, on one event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self.alarms = Alarms(loop, engine.now)
        self.committer = engine.gate = Committer(engine, loop, self._attend)
        self.coordinator = Coordinator(engine, self.alarms)
        self._unsynced = UnsyncedClaims(engine, self.alarms)
        self.readings: dict[Topic, set[Reading]] = {}
        self._subscriptions: list[Subscription] = []
        self._streams: dict[str, list[WorkStream]] = {}  # by node
        self._closed = False
        engine.clock.subscribe(self._clock_moved)
        # A router may have been behind when the log was last closed, or when its writer died.
        engine.touched.update(topic for name in engine.state.routers_from if (topic := engine.state.topics.get(name)))
        self.settle()

    def close(self) -> None:
        """Turn away everybody who waits; no command is taken from here on."""
        if self._closed:
            return
        self._closed = True
        self.alarms.close()
        self.coordinator.close(closing())
        for reading in [reading for readings in self.readings.values() for reading in readings]:
            reading.refuse(closing())
        for subscription in list(self._subscriptions):
            subscription.close()

    def check_open(self) -> None:
        """Raise Closed once the broker is."""
        if self._closed:
            raise closing()

    def check_waiters(self) -> None:
        """One more may wait. Raises Overloaded."""
        limit = self.engine.settings.waiters_max
        if self.coordinator.waiting + sum(map(len, self.readings.values())) >= limit:
            raise Overloaded(f"{limit} callers are waiting already", limit="waiters_max", max=limit)

    def clamp_wait(self, wait_ms: int) -> int:
        """How long a caller may wait, held within the limit."""
        return min(check_whole(wait_ms, "wait_ms"), self.engine.settings.wait_ms_max)

    # Answers

    def answer(self, answer: Answer[T], node: str | None = None) -> Answer[T]:
        """The answer to a command that has been carried out; ``node`` has shown by it that it lives."""
        if node in self._streams:
            self._hear(node)
        self.settle()
        return answer

    def look(self, reply: T) -> T:
        """Looking may let time pass, and so make something claimable."""
        self.settle()
        return reply

    def claim_now(self, topic: str, asked: Asked, *, or_wait: bool) -> Awaitable[Claim] | None:
        """Claim without waiting; None where nothing was there and the caller would rather wait."""
        try:
            answer = asked.claim(self.engine, topic)
        except Overloaded:
            if or_wait:
                return None
            raise
        if not answer.reply.jobs and or_wait:
            return None
        return self.answer_claim(answer)

    def answer_claim(self, answer: Answer[Claim]) -> Awaitable[Claim]:
        """The answer to a claim; where it waits for a sync, a slow one moves the deadline (fault 15)."""
        self.settle()
        if answer.level == Level.SYNCED and answer.reply.lease:
            return self._answer_synced(answer, self.engine.now())
        return answer

    async def _answer_synced(self, answer: Answer[Claim], started: int) -> Claim:
        claim = await self._unsynced.answer(answer, started=started)
        if claim is not answer.reply:
            self.settle()
        return claim

    # Streams

    def _hear(self, node: str) -> None:
        for stream in self._streams[node]:
            if stream.heard():
                self.engine.touched.add(stream.topic)

    def open_stream(self, topic: Topic, *, node: str, max_count: int, lease_ms: int | None) -> WorkStream:
        """Let a stream wait on a queue."""
        self.check_waiters()
        stream = WorkStream(
            topic,
            node=check_node(node),
            max_count=leases.clamp_claim(self.engine, max_count),
            lease_ms=None if lease_ms is None else leases.clamp_lease(lease_ms),
            answer=self.answer_claim,
            on_close=self._close_stream,
        )
        self._streams.setdefault(stream.node, []).append(stream)
        self.coordinator.add(topic, stream)
        self.coordinator.serve(topic)
        self.settle()
        return stream

    def detach(self, topic: Topic | None, node: str | None) -> int:
        """End the work streams of a queue and a node, or of all, without giving back what was read from them."""
        lists = self._streams.values() if node is None else [self._streams.get(node, [])]
        ended = [stream for streams in lists for stream in streams if topic in (None, stream.topic)]
        for stream in ended:
            stream.detach()
        return len(ended)

    def _close_stream(self, stream: WorkStream) -> None:
        self.coordinator.remove(stream.topic, stream)
        self._streams[stream.node].remove(stream)
        if not self._streams[stream.node]:
            del self._streams[stream.node]
        if not self._closed and self.committer.failed is None:
            leases.release(self.engine, stream.topic, stream.leases)
            self.settle()

    def subscribe(self, topic: str | None) -> Subscription:
        """Follow the life of jobs; the first subscriber makes the engine tell of it."""
        rows_max = self.engine.settings.subscriber_events_max
        subscription = Subscription(topic, rows_max=rows_max, on_close=self._unsubscribe)
        if not self._subscriptions:
            self.engine.state.ended = []
            self.engine.listeners.append(self._publish)
        self._subscriptions.append(subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self.engine.state.ended = None
            self.engine.listeners.remove(self._publish)

    def _publish(self, event: Event) -> None:
        self._publish_ended()
        row = translate(self.engine.state, event)
        if row is not None:
            self._offer(row)

    def _publish_ended(self) -> None:
        for topic, ended in self.engine.take_ended():
            self._offer(expired(self.engine.state, topic, ended))

    def _offer(self, row: Lifecycle) -> None:
        for subscription in self._subscriptions:
            subscription.offer(row)

    # Moving on

    def settle(self) -> None:
        """After every command: feed those who wait, and plan the write."""
        engine = self.engine
        if engine.touched:
            self._attend()
        if engine.state.ended:
            self._publish_ended()
        engine.held_ms = engine.last_ms  # until the write that is planned here: one turn, one time
        if not self.committer.flush_planned:
            self.committer.plan()

    def _attend(self) -> None:
        """Something became claimable or readable: forward, feed and wake whoever waits for it."""
        touched, routers = self.engine.touched, self.engine.state.routers_from
        if not routers and not self.readings and not self.coordinator.waiting:
            touched.clear()
            return
        while touched:
            topic = touched.pop()
            if self.engine.stalled:
                self._resume(topic.name)
            if topic.name in routers and routing.forward(self.engine, topic):
                self.loop.call_soon(self._forward_more, topic)
            self.coordinator.serve(topic)
            for reading in list(self.readings.get(topic, ())):
                reading.look_again()
            routers = self.engine.state.routers_from
        self.committer.plan()

    def _resume(self, dest: str) -> None:
        """Something happened on a topic that routers wait for: let them try again."""
        topics = self.engine.state.topics
        self.engine.touched.update(topics[name] for name in self.engine.stalled.pop(dest, ()) if name in topics)

    def _forward_more(self, topic: Topic) -> None:
        if not self._closed:
            self.engine.touched.add(topic)
            self.settle()

    def _clock_moved(self) -> None:
        self.engine.held_ms = self.engine.last_ms = 0
        if not self._closed:
            self.alarms.check()
            self.settle()


def closing() -> Closed:
    """What callers hear once the broker is closed."""
    return Closed("this broker is closed: open it again", code="shutting_down")
