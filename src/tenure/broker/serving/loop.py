"""The serving loop: after each command, wake long polls and streams, forward along routers, and plan the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

from tenure.broker.answer import Answer, OpenAnswer
from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.broker.serving.alarms import Alarms
from tenure.broker.serving.catch_up import CatchUp
from tenure.broker.serving.coordinator import Coordinator
from tenure.broker.serving.durable_claims import UnsyncedClaims
from tenure.broker.serving.forwarding import Forwarding
from tenure.broker.serving.grace import Graces
from tenure.broker.serving.lines import Lines
from tenure.broker.serving.long_commands import LongCommands
from tenure.broker.serving.publisher import Publisher
from tenure.broker.serving.stream_leases import StreamLeases
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.broker.serving.topic_turns import TopicTurns
from tenure.contract.commands import Claim
from tenure.contract.replies import Grant
from tenure.core.decide.decision import Decision
from tenure.core.decide.holding import give_back, release
from tenure.core.decide.losses import lose
from tenure.core.state.topic import Topic
from tenure.errors import Closed, NotLeader, Overloaded, TenureError
from tenure.turns import Turns

__all__ = ["ServingLoop", "closing"]


class ServingLoop:
    """The parts of an open broker that need an event loop, around one engine."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self.alarms = Alarms(
            loop, engine.now, clock=engine.clock_ms, check_ms=engine.settings.clock_check_ms, after=self.settle
        )
        self.committer = engine.durability = Committer(engine, loop, self._attend_if_awaited)
        self.committer.after_failure = self._on_failure
        self.committer.abandon = self._abandon
        engine.state.step_jobs_max = engine.settings.step_jobs_max
        clock_ms = engine.clock.boot_ms
        self.turns = Turns(loop, engine.settings.turn_ms_max, clock_ms=clock_ms, after=self.settle)
        self.coordinator = Coordinator(
            engine,
            self.alarms,
            on_time_passed=self.report_ended,
            attend_later=self.attend_later,
            may_serve=self.committer.has_grant,
            begin_turn=self.turns.begin,
        )
        self.catch_up = CatchUp(engine, self.turns)
        self.long_commands = LongCommands(
            engine, loop, turns=self.turns, catch_up=self.catch_up, check_waiters=self.check_waiters
        )
        self.forwarding = Forwarding(
            engine,
            loop,
            committer=self.committer,
            begin_turn=self.turns.begin,
            may_serve=self._may_attend,
            after=self.settle,
        )
        self.claims = UnsyncedClaims(
            engine, loop, self.alarms, give_back=self.give_back, settle=self.settle, check_open=self.check_open
        )
        self.graces = Graces(self.alarms, now=engine.now, grace_ms=engine.settings.lost_grace_ms, lose=self.lose)
        self.lines = self._make_lines()
        self.streams = self._make_streams()
        self._publisher = Publisher(engine, report_ended=self.report_ended)
        self._topic_turns = TopicTurns()
        self._again: set[Topic] = set()
        self._is_turn_planned = False
        self.is_closed = False
        #: Whether a command must call `check_open` first: it could be refused. Most brokers never look further.
        self.must_check = engine.log.granted_until_ms != inf
        #: The error after `close` where another process goes on.
        self._closed_with: NotLeader | None = None
        self.when_failed: Callable[[], None] = lambda: None
        engine.clock.subscribe(self._clock_moved)
        # A router may have been behind when the log was last closed, or when its writer died.
        engine.changed_topics.update(
            topic for name in engine.state.routers_from if (topic := engine.state.topics.get(name))
        )
        self.settle()

    def _make_lines(self) -> Lines:
        return Lines(
            self.engine,
            self.loop,
            self.alarms,
            coordinator=self.coordinator,
            claims=self.claims,
            catch_up=self.catch_up,
            turns=self.turns,
            graces=self.graces,
            check_open=self.check_open,
            check_writable=self.check_writable,
            check_waiters=self.check_waiters,
            attend_later=self.attend_later,
            settle=self.settle,
        )

    def _make_streams(self) -> StreamLeases:
        return StreamLeases(
            self.engine,
            self.coordinator,
            self.graces,
            answer=self._answer_claim,
            may_answer=self.committer.has_grant,
            release=self.release,
            report_ended=self.report_ended,
            settle=self.settle,
        )

    def close(self, hand_to: str | None = None) -> None:
        """Refuse all waiting callers; no command is taken after this.

        They are refused with Closed, or with NotLeader where another process goes on, at the URL ``hand_to`` if known.
        """
        if self.is_closed:
            return
        self.is_closed = self.must_check = True
        self.graces.close()
        self.alarms.close()
        self.turns.close()
        lost = lost_lead(self.committer.failed)
        if lost is None and hand_to is not None:
            lost = handed_over(hand_to, epoch=self.engine.log.epoch)
        self._closed_with = lost
        self._turn_away(lost or closing())
        self._publisher.close()

    def check_open(self) -> None:
        """Raise Closed after `close`, NotLeader once another process leads, Overloaded while there is no grant."""
        lost = self._closed_with or lost_lead(self.committer.failed)
        if lost is not None:
            raise NotLeader(lost.message, **lost.detail)  # one that was raised before holds its traceback
        if self.is_closed:
            raise closing()
        if not self.committer.has_grant():
            failed = self.engine.log.failed
            raise store_away() if failed is None else read_only(failed)

    def check_writable(self) -> None:
        """Raise as `check_open`, and Closed after the disk has failed: a claim must not be answered as if empty."""
        self.check_open()
        failed = self.engine.log.failed
        if failed is not None:
            raise read_only(failed)

    def _on_failure(self) -> None:
        """Refuse all waiting callers: the disk has failed, or another process leads, and nothing will come for them."""
        failed = self.committer.failed
        if failed is not None:
            lost = lost_lead(failed)
            self._turn_away(lost or read_only(failed))
            if lost is not None:
                self.must_check = True
                self._publisher.refuse(lost)
            self.when_failed()

    def _turn_away(self, error: Closed) -> None:
        self.lines.close(error)
        self.long_commands.refuse_all(error)

    def check_waiters(self) -> None:
        """Raise Overloaded where as many callers wait as may."""
        limit = self.engine.settings.waiters_max
        if len(self.lines) + len(self.long_commands) >= limit:
            raise Overloaded(
                f"{limit} callers are waiting already: try again later, or raise the broker's setting waiters_max",
                limit="waiters_max",
                max=limit,
            )

    # Jobs that nobody holds any more

    def _answer_claim(self, answer: Answer[Grant]) -> Answer[Grant] | OpenAnswer[Grant]:
        self.settle()
        return self.claims.answer(answer)

    def _abandon(self, reply: object) -> None:
        """Give back the jobs of a claim whose caller went away while it awaited its answer."""
        if isinstance(reply, Grant):
            self.give_back(reply)

    def give_back(self, grant: Grant) -> None:
        """Give back the jobs of a grant that its caller did not get. What cannot be given back expires."""
        topic = self.engine.state.topics.get(grant.topic)
        if grant.lease and topic is not None:
            self._let_go(topic, partial(give_back, self.engine.state, grant))

    def release(self, topic: Topic, numbers: Sequence[int]) -> None:
        """Give back leases whose connection is gone. What cannot be given back expires."""
        self._let_go(topic, partial(release, self.engine.state, topic, numbers))

    def lose(self, topic: Topic, numbers: Sequence[int]) -> None:
        """Lose leases whose worker has been silent for its whole grace. What cannot be lost now expires."""
        self._let_go(topic, partial(lose, self.engine.state, topic, numbers))

    def _let_go(self, topic: Topic, decide: Callable[[int], Decision[None]]) -> None:
        """Give jobs of a topic back; where it is behind, after it has caught up."""
        if self.is_closed:
            return
        now_ms = self.engine.now()
        if self.engine.state.advance(topic, now_ms):
            self._carry_out(decide, now_ms)
        else:
            self.catch_up.then(topic, partial(self._carry_out, decide))
        self.settle()

    def _carry_out(self, decide: Callable[[int], Decision[None]], now_ms: int) -> None:
        with suppress(TenureError):  # no room, or the log has failed
            self.engine.carry_out(decide(now_ms))

    # Streams

    def open_stream(self, topic: Topic, claim: Claim) -> WorkStream:
        """Open a work stream that waits on a queue for what this claim asks for. Raises Overloaded, Invalid."""
        self.check_waiters()
        stream = self.streams.open(topic, claim)
        self.coordinator.add(topic, stream)
        self.coordinator.serve(topic)
        self.settle()
        return stream

    def detach(self, topic: Topic | None, node: str | None) -> int:
        """End the work streams of a queue and a node, or of all; return how many. Jobs read from them stay leased."""
        ended = self.streams.of(topic, node)
        for stream in ended:
            stream.detach()
        return len(ended)

    def subscribe(self, topic: str | None) -> Subscription:
        """Follow the life of jobs, of one topic or of all."""
        return self._publisher.subscribe(topic)

    def report_ended(self) -> None:
        """Report the leases that expired since the last call to streams and subscriptions."""
        for topic, ended in self.engine.take_ended():
            self.streams.expire(ended)
            self._publisher.expire(topic, ended)

    # After each command

    def settle(self) -> None:
        """Serve waiting callers after a command, and plan the write."""
        engine = self.engine
        if engine.state.lost != engine.losses_marked:
            engine.mark_losses()
        if engine.state.behind:
            self.catch_up.begin()
        if engine.state.ended:
            self.report_ended()
        if engine.changed_topics:
            if self.coordinator.waiting or self.lines.reads_waiting or engine.state.routers_from:
                self._attend()
            else:
                engine.changed_topics.clear()
        engine.turn_ms = engine.last_now_ms  # until the write that is planned here: one turn, one time
        if not self.committer.flush_planned:
            self.committer.plan()

    def _attend_if_awaited(self) -> None:
        """Serve the changed topics, where a caller or a router waits for them."""
        if self.coordinator.waiting or self.lines.reads_waiting or self.engine.state.routers_from:
            self._attend()
        else:
            self.engine.changed_topics.clear()
            if self.engine.state.ended:
                self.report_ended()
        if self.engine.state.behind:  # what was served may have met the TTL of many jobs, and no command follows
            self.catch_up.begin()

    def _attend(self) -> None:
        """Serve the changed topics: forward along their routers, and wake the callers that wait on them.

        Where more topics have changed than one turn serves, they wait for their turns by priority. Without a grant they
        stay as they are: the next link that is committed serves them. A broker that closes forwards nothing more,
        because nothing writes that any more, and its last checkpoint would have it.
        """
        if not self._may_attend():
            return
        if self.forwarding.lines:
            self.forwarding.go_on()
        if 0 < self.engine.settings.turn_topics_max < len(self.engine.changed_topics):
            self._queue_up()
            self._attend_first(self._next_turn())
        else:
            self._attend_first([])

    def _may_attend(self) -> bool:
        return not self.is_closed and (not self.must_check or self.committer.has_grant())

    def _attend_first(self, topics: list[Topic]) -> None:
        """Serve these topics in their order, then the changed ones.

        Each topic is served once: one that changes again meanwhile is served in the loop's next turn, so that no turn
        takes longer than one pass.
        """
        changed, attended = self.engine.changed_topics, set[Topic]()
        for topic in topics:
            self._attend_once(topic, attended)
        while changed:
            self._attend_once(changed.pop(), attended)
        self.report_ended()
        for topic in changed:
            self.attend_later(topic)
        changed.clear()

    def _attend_once(self, topic: Topic, attended: set[Topic]) -> None:
        if topic in attended or topic in self.coordinator.resting:
            self.attend_later(topic)
        else:
            attended.add(topic)
            self._attend_to(topic)

    def _queue_up(self) -> None:
        """Queue every changed topic for its turn; among equals the one that was created first comes first."""
        engine = self.engine
        topics = sorted(engine.changed_topics, key=lambda topic: topic.id)
        self._topic_turns.add(topics, wall_ms=engine.now() + engine.state.wall_offset_ms)
        engine.changed_topics.clear()

    def _next_turn(self) -> list[Topic]:
        topics = self._topic_turns.take(self.engine.settings.turn_topics_max)
        if self._topic_turns:
            self._plan_turn()
        return topics

    def _attend_to(self, topic: Topic) -> None:
        if self.engine.stalled_routers:
            self._resume(topic.name)
        state = self.engine.state
        is_there = state.by_id.get(topic.id) is topic  # else another topic may have its name and its routers by now
        if is_there and topic.name in state.routers_from:
            self.forwarding.run(topic)
        self.lines.serve(topic)

    def attend_later(self, topic: Topic) -> None:
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
        if self.is_closed:
            return
        if self.must_check and not self.committer.has_grant():
            self.engine.changed_topics.update(self._topic_turns.take(len(self._topic_turns)))
            return
        if self._topic_turns:
            self._queue_up()
            self._attend_first(self._next_turn())
        self.settle()

    def _resume(self, dest: str) -> None:
        """Retry the routers that are stalled on this destination."""
        topics = self.engine.state.topics
        self.engine.changed_topics.update(
            topics[name] for name in self.engine.stalled_routers.pop(dest, ()) if name in topics
        )

    def _clock_moved(self) -> None:
        self.engine.turn_ms = self.engine.last_now_ms = 0
        if not self.is_closed:
            self.alarms.check()
            self.committer.beat()


def read_only(failed: TenureError) -> Closed:
    """Return the error for callers after the disk has failed."""
    return Closed(f"Nothing is taken in any more: {failed.message}")


def store_away() -> Overloaded:
    """Return the error for callers while the leader cannot know whether it still leads."""
    return Overloaded(
        "nothing happened: the store that this log lives in does not answer; try again shortly", code="store_away"
    )


def lost_lead(failed: TenureError | None) -> NotLeader | None:
    """Return the error that says who leads now, where that is why nothing is taken in any more."""
    if failed is None or isinstance(failed, NotLeader):
        return failed
    leader, epoch = failed.detail.get("leader"), failed.detail.get("epoch", 0)
    return None if leader is None else handed_over(leader, epoch=epoch)  # what waited is unknown, the rest is not


def handed_over(leader: str, *, epoch: int) -> NotLeader:
    """Return the error for callers after the lead was given to another process."""
    who = leader or "another process"
    return NotLeader(f"{who} goes on with this log: nothing happened here. Repeat it there", leader=leader, epoch=epoch)


def closing() -> Closed:
    """Return the error for callers after the broker is closed."""
    return Closed("this broker is closed: open it again", code="shutting_down")
