"""The moving parts of an open broker: after each command, those who wait are fed and the write is planned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from tenure.broker.answer import Answer
from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine, Listener
from tenure.broker.serving.alarms import Alarms
from tenure.broker.serving.coordinator import Coordinator
from tenure.broker.serving.durable_claims import UnsyncedClaims
from tenure.broker.serving.long_reads import ReadWaiter
from tenure.broker.serving.publisher import Publisher
from tenure.broker.serving.stream_leases import StreamLeases
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.broker.serving.topic_turns import Turns
from tenure.contract.commands import Claim
from tenure.contract.replies import Extended, Grant, Settled
from tenure.contract.values import check_whole
from tenure.core.decide.forward import forward
from tenure.core.decide.holding import give_back, release
from tenure.core.level import Level
from tenure.core.state.topic import Topic
from tenure.errors import Closed, Overloaded, TenureError

__all__ = ["ServingLoop"]

T = TypeVar("T")
S = TypeVar("S", Settled, Extended)


class ServingLoop:
    """The moving parts around one engine, on one event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self.alarms = Alarms(
            loop, engine.now, clock=engine.clock_ms, check_ms=engine.settings.clock_check_ms, after=self.settle
        )
        self.committer = engine.durability = Committer(engine, loop, self._attend)
        self.committer.after_failure = self._on_failure
        self.committer.abandon = self._abandon
        self.coordinator = Coordinator(
            engine, self.alarms, on_time_passed=self.tell_ended, attend_later=self._attend_later
        )
        self.readings: dict[Topic, set[ReadWaiter]] = {}
        self._unsynced = UnsyncedClaims(self)
        self._streams = StreamLeases(self)
        self._publisher = Publisher(self)
        self._turns = Turns()
        self._again: set[Topic] = set()
        self._is_turn_planned = False
        self._closed = False
        engine.clock.subscribe(self._clock_moved)
        # A router may have been behind when the log was last closed, or when its writer died.
        engine.changed_topics.update(
            topic for name in engine.state.routers_from if (topic := engine.state.topics.get(name))
        )
        self.settle()

    def close(self) -> None:
        """Turn away everybody who waits; no command is taken from here on."""
        if self._closed:
            return
        self._closed = True
        self.alarms.close()
        self._turn_away(closing())
        self._publisher.close()

    def check_open(self) -> None:
        """Raise Closed once the broker is."""
        if self._closed:
            raise closing()

    def check_writable(self) -> None:
        """Raise Closed once the broker is, or once its disk has failed: no claim is answered with nothing then."""
        failed = self.engine.log.failed
        if self._closed or failed is not None:
            raise closing() if failed is None else read_only(failed)

    def _on_failure(self) -> None:
        """The disk has failed: nothing will come for those who wait."""
        if self.committer.failed is not None:
            self._turn_away(read_only(self.committer.failed))

    def _turn_away(self, error: Closed) -> None:
        self.coordinator.close(error)
        for reading in [reading for readings in self.readings.values() for reading in readings]:
            reading.refuse(error)

    def check_waiters(self) -> None:
        """One more may wait. Raises Overloaded."""
        limit = self.engine.settings.waiters_max
        if self.coordinator.waiting + sum(map(len, self.readings.values())) >= limit:
            raise Overloaded(
                f"{limit} callers are waiting already: try again later, or raise the broker's setting waiters_max",
                limit="waiters_max",
                max=limit,
            )

    def clamp_wait(self, wait_ms: int) -> int:
        """How long a caller may wait, held within the limit."""
        return min(check_whole(wait_ms, "wait_ms"), self.engine.settings.wait_ms_max)

    # Answers

    def answer(self, answer: Answer[T]) -> Answer[T]:
        """The answer to a command that has been carried out."""
        self.settle()
        return answer

    def answer_holder(self, answer: Answer[S], node: str) -> Answer[S]:
        """The answer to a worker that settled or extended jobs, and thereby shows that it is alive."""
        if self._streams.by_node:
            self._streams.hear(answer.reply, node)
        self.settle()
        return answer

    def look(self, reply: T) -> T:
        """Looking may let time pass, and so make something claimable."""
        self.settle()
        return reply

    def claim(self, topic: Topic, command: Claim) -> Answer[Grant]:
        """Carry out a claim out of line. Where it had to dead-letter, the line has its turn in the next one."""
        dead_lettered = self.engine.totals.dead_lettered
        answer = self.engine.run(command)
        if self.engine.totals.dead_lettered > dead_lettered:
            self.coordinator.rest(topic)
        return answer

    def claim_now(self, topic: Topic, command: Claim, *, or_wait: bool) -> Awaitable[Grant] | None:
        """Claim without waiting; None where nothing was there and the caller would rather wait."""
        try:
            answer = self.claim(topic, command)
        except Overloaded:
            if or_wait:
                return None
            raise
        if not answer.reply.jobs and or_wait:
            return None
        return self.answer_claim(answer)

    def answer_claim(self, answer: Answer[Grant]) -> Awaitable[Grant]:
        """The answer to a claim; a caller that goes away while it waits gives back what it was about to get."""
        self.settle()
        if answer.level == Level.SYNCED and answer.reply.lease:
            return self._unsynced.answer(answer)
        return answer

    def _abandon(self, reply: object) -> None:
        """A caller went away while it awaited its answer: a claim is given back."""
        if isinstance(reply, Grant):
            self.give_back(reply)

    def give_back(self, grant: Grant) -> None:
        """Give back what a caller was about to get. What cannot be given back runs out by itself."""
        if grant.lease and not self._closed:
            with suppress(TenureError):  # no room, or the log has failed
                self.engine.carry_out(give_back(self.engine.state, grant, self.engine.now()))
            self.settle()

    def release(self, topic: Topic, numbers: Sequence[int]) -> None:
        """Give back leases whose connection is gone. What cannot be given back runs out by itself."""
        if not self._closed:
            with suppress(TenureError):  # no room, or the log has failed
                self.engine.carry_out(release(self.engine.state, topic, numbers, self.engine.now()))
            self.settle()

    # Streams

    def open_stream(self, topic: Topic, claim: Claim) -> WorkStream:
        """Let a stream wait on a queue, for what this claim asks for."""
        self.check_waiters()
        stream = self._streams.open(topic, claim)
        self.coordinator.add(topic, stream)
        self.coordinator.serve(topic)
        self.settle()
        return stream

    def detach(self, topic: Topic | None, node: str | None) -> int:
        """End the work streams of a queue and a node, or of all, without giving back what was read from them."""
        ended = self._streams.of(topic, node)
        for stream in ended:
            stream.detach()
        return len(ended)

    def subscribe(self, topic: str | None) -> Subscription:
        """Follow the life of jobs, of one topic or of all."""
        return self._publisher.subscribe(topic)

    def follow(self, listener: Listener) -> None:
        """Report every event from now on, before it is folded, and collect the leases that run out."""
        if not self.engine.listeners:
            self.engine.state.ended = []
        self.engine.listeners.append(listener)

    def unfollow(self, listener: Listener) -> None:
        """Report no more."""
        self.engine.listeners.remove(listener)
        if not self.engine.listeners:
            self.engine.state.ended = None

    def tell_ended(self) -> None:
        """Report the leases that ran out since the last call."""
        for topic, ended in self.engine.take_ended():
            self._streams.expire(ended)
            self._publisher.expire(topic, ended)

    # Moving on

    def settle(self) -> None:
        """After every command: feed those who wait, and plan the write."""
        engine = self.engine
        if engine.state.ended:
            self.tell_ended()
        if engine.changed_topics:
            if self.coordinator.waiting or self.readings or engine.state.routers_from:
                self._attend()
            else:
                engine.changed_topics.clear()
        engine.turn_ms = engine.last_now_ms  # until the write that is planned here: one turn, one time
        if not self.committer.flush_planned:
            self.committer.plan()

    def _attend(self) -> None:
        """Something became claimable or readable: forward, feed and wake whoever waits for it.

        Where that is true of more topics than one turn serves, they wait for their turns by priority.
        """
        if 0 < self.engine.settings.turn_topics_max < len(self.engine.changed_topics):
            self._queue_up()
            self._attend_first(self._next_turn())
        else:
            self._attend_first([])

    def _attend_first(self, topics: list[Topic]) -> None:
        """Attend to these topics in their order, then to those that are changed.

        Each topic once: one that is changed again meanwhile has its next turn in the loop's, so that no turn takes
        longer than one pass.
        """
        changed, attended = self.engine.changed_topics, set[Topic]()
        for topic in topics:
            self._attend_once(topic, attended)
        while changed:
            self._attend_once(changed.pop(), attended)
        self.tell_ended()
        for topic in changed:
            self._attend_later(topic)
        changed.clear()
        self.committer.plan()

    def _attend_once(self, topic: Topic, attended: set[Topic]) -> None:
        if topic in attended or topic in self.coordinator.resting:
            self._attend_later(topic)
        else:
            attended.add(topic)
            self._attend_to(topic)

    def _queue_up(self) -> None:
        """Let every topic that was changed wait for its turn; among equals the one that was made first comes first."""
        engine = self.engine
        topics = sorted(engine.changed_topics, key=lambda topic: topic.id)
        self._turns.add(topics, wall_ms=engine.now() + engine.state.wall_offset_ms)
        engine.changed_topics.clear()

    def _next_turn(self) -> list[Topic]:
        topics = self._turns.take(self.engine.settings.turn_topics_max)
        if self._turns:
            self._plan_turn()
        return topics

    def _attend_to(self, topic: Topic) -> None:
        if self.engine.stalled_routers:
            self._resume(topic.name)
        state = self.engine.state
        is_there = state.by_id.get(topic.id) is topic  # else another topic may have its name and its routers by now
        if is_there and topic.name in state.routers_from:
            self._forward(topic)
        self.coordinator.serve(topic)
        for reading in list(self.readings.get(topic, ())):
            reading.look_again()

    def _forward(self, topic: Topic) -> None:
        """Let the routers of a topic go a step; those that wait for their destination go on when it is changed."""
        engine = self.engine
        more, stalled = engine.carry_out(forward(engine.state, topic, engine.now(), engine.reader)).reply
        for dest in stalled:
            engine.stalled_routers.setdefault(dest, set()).add(topic.name)
        if more:
            self._attend_later(topic)

    def _attend_later(self, topic: Topic) -> None:
        self._again.add(topic)
        self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self.loop.call_soon(self._attend_again)

    def _attend_again(self) -> None:
        self._is_turn_planned = False
        self.coordinator.resting.clear()
        self.engine.changed_topics |= self._again
        self._again.clear()
        if self._closed:
            return
        if self._turns:
            self._queue_up()
            self._attend_first(self._next_turn())
        self.settle()

    def _resume(self, dest: str) -> None:
        """Something happened on a topic that routers wait for: let them try again."""
        topics = self.engine.state.topics
        self.engine.changed_topics.update(
            topics[name] for name in self.engine.stalled_routers.pop(dest, ()) if name in topics
        )

    def _clock_moved(self) -> None:
        self.engine.turn_ms = self.engine.last_now_ms = 0
        if not self._closed:
            self.alarms.check()


def read_only(failed: TenureError) -> Closed:
    """What callers hear once the disk has failed."""
    return Closed(f"Nothing is taken in any more: {failed.message}")


def closing() -> Closed:
    """What callers hear once the broker is closed."""
    return Closed("this broker is closed: open it again", code="shutting_down")
