"""Callers that wait for jobs: long polls, cohorts and work streams, served by one pass per queue.

A pass divides the ready jobs among all waiting callers, in proportion to what each asks for, so that the first one does
not drain the queue. Nothing polls: a pass runs when something was appended, released or acked, and when the next
deadline comes.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.broker.serving.alarms import Alarm, Alarms
from tenure.broker.serving.waiting_line import Line, QueueLines, Taker
from tenure.core.ready_jobs import claimable_count, ready_count
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.topic import Topic
from tenure.core.suspects import borrow_ms, isolates, waiting_count
from tenure.errors import NotFound, Overloaded, TenureError

__all__ = ["Coordinator"]


class Coordinator:
    """The waiting callers of each queue, and the passes that serve them. ``waiting`` counts them all.

    ``on_time_passed`` is called when a pass has let time pass on its queue, before it looks which callers want jobs.
    ``resting`` are queues on which a pass has dead-lettered jobs, or has used up its time: they get no other pass in
    this turn of the loop; ``attend_later`` plans one for each of them in the next. ``may_serve`` is asked before each
    pass; a queue that got none is served once there is a change. ``begin_turn`` measures the time of a pass.
    """

    def __init__(
        self,
        engine: Engine,
        alarms: Alarms,
        *,
        on_time_passed: Callable[[], None],
        attend_later: Callable[[Topic], None],
        may_serve: Callable[[], bool],
        begin_turn: Callable[[], Callable[[], bool]],
    ) -> None:
        self._engine = engine
        self._alarms = alarms
        self._on_time_passed = on_time_passed
        self._attend_later = attend_later
        self._may_serve = may_serve
        self._begin_turn = begin_turn
        self._lines: dict[Topic, QueueLines] = {}
        self._announced: set[Topic] = set()
        self._deadlines: dict[Topic, Alarm] = {}
        self._cohorts: dict[Topic, Alarm] = {}
        self.resting: set[Topic] = set()
        self.waiting = 0

    def waits_on(self, topic: Topic) -> bool:
        """Return whether a caller waits for jobs of this queue."""
        return topic in self._lines

    def add(self, topic: Topic, taker: Taker) -> None:
        """Add a waiting caller; where the queue gathers cohorts, the first one opens the window."""
        lines = self._lines.get(topic)
        if lines is None:
            lines = self._lines[topic] = QueueLines()
        lines.asking[taker.claim.suspects].add(taker)
        self.waiting += 1
        if topic in self._announced:
            self._announced.discard(topic)
            self._engine.changed_topics.add(topic)
        jitter_ms = topic.config.claim_jitter_ms
        if jitter_ms and topic not in self._cohorts:
            due = self._engine.now() + jitter_ms
            self._cohorts[topic] = self._alarms.at(due, lambda: self._close_window(topic))
        self._watch(topic)

    def _close_window(self, topic: Topic) -> None:
        self._cohorts.pop(topic, None)
        self.serve(topic)

    def wake(self, topic: Topic, taker: Taker, *, had_stopped: bool = False) -> None:
        """Look at a taker in the next pass: it was full and may want jobs again. One that ``had_stopped`` wanting any
        may still be in line, if no pass has looked at it since, and then no other pass may come.
        """
        lines = self._lines.get(topic)
        if lines is not None and (lines.asking[taker.claim.suspects].wake(taker) or had_stopped):
            self._engine.changed_topics.add(topic)

    def remove(self, topic: Topic, taker: Taker) -> None:
        """Remove a caller that stops waiting."""
        lines = self._lines.get(topic)
        if lines is None:
            return
        if lines.asking[taker.claim.suspects].remove(taker):
            self.waiting -= 1
        if taker.claim.suspects and topic.queue is not None and topic.queue.suspects.ready:
            self._engine.changed_topics.add(topic)  # the others hear that nobody takes suspects any more
        if lines.is_empty:
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        lines = self._lines.pop(topic, None)
        if lines is not None and not lines.is_empty:
            self.waiting -= len(lines)
        self._announced.discard(topic)
        for alarms in (self._deadlines, self._cohorts):
            alarm = alarms.pop(topic, None)
            if alarm is not None:
                alarm.cancel()

    def serve(self, topic: Topic) -> None:
        """Run one pass: divide the ready jobs among the waiting callers. An open window postpones it to its end."""
        if topic not in self._lines:
            return
        if topic.queue is None or self._engine.state.by_id.get(topic.id) is not topic:
            gone = NotFound(f"topic {topic.name!r} was deleted", code="topic_not_found", topic=topic.name)
            self._dismiss(topic, gone)
            return
        state = self._engine.state
        if topic in self._cohorts or topic in self.resting or topic in state.behind:
            return
        if not self._may_serve():
            self._engine.changed_topics.add(topic)
            return
        is_present = state.advance(topic, self._engine.now())
        self._on_time_passed()
        if not is_present:
            return  # the pass comes when it has caught up
        queue, lines = topic.queue, self._lines[topic]
        if queue.suspects.ready:
            self._pass_with_suspects(topic, queue, lines)
        else:
            self._announced.discard(topic)
            if lines.ordinary.is_hungry and (ready := claimable_count(topic, queue)):
                self._share_out(topic, lines.ordinary, ready, self._begin_turn())
        self._watch(topic)

    def _pass_with_suspects(self, topic: Topic, queue: Queue, lines: QueueLines) -> None:
        """Serve first those that ask for suspects, then the others with all else, then those that may have a suspect
        too.
        """
        ready = claimable_count(topic, queue) if lines.is_hungry else 0
        is_over, suspects = self._begin_turn(), waiting_count(topic, queue)
        if ready and not self._share_out(topic, lines.suspects, min(ready, suspects), is_over):
            return
        ready = min(ready_count(topic, queue) - waiting_count(topic, queue), claimable_count(topic, queue))
        if ready > 0 and not self._share_out(topic, lines.ordinary, ready, is_over):
            return
        if waiting_count(topic, queue) and self._lend(topic, queue, lines.ordinary, is_over):
            self._announce(topic, queue, lines)

    def _share_out(self, topic: Topic, line: Line, ready: int, is_over: Callable[[], bool]) -> bool:
        """Divide so many jobs among the takers of a line. Return False where the pass has to end, by dead letters or
        the end of its time: it continues in another turn of the loop.
        """
        totals = self._engine.totals
        dead_lettered = totals.dead_lettered
        for taker, share in line.shares(ready):
            fed = self._feed(topic, taker, share)
            if totals.dead_lettered > dead_lettered or (fed and is_over()):
                self.rest(topic)
                return False
            if not fed:
                break
        return True

    def _lend(self, topic: Topic, queue: Queue, line: Line, is_over: Callable[[], bool]) -> bool:
        """Offer suspects to takers that did not ask for them, one for each group; return False where the pass has to
        end.
        """
        totals, state = self._engine.totals, self._engine.state
        dead_lettered, may_borrow = totals.dead_lettered, self._engine.now() >= borrow_ms(state, queue)
        asked: set[str] = set()
        for taker in line.hungry():
            claim, want = taker.claim, taker.wants()
            is_plain = not isolates(state, claim)
            if not is_plain:
                group = claim.group or claim.node
                if not may_borrow or group in asked:
                    continue
                asked.add(group)
            if not want:
                continue
            fed = self._feed(topic, taker, want)
            if totals.dead_lettered > dead_lettered or (fed and is_over()):
                self.rest(topic)
                return False
            if is_plain and not fed:
                break  # it may have any job, and there is none
        return True

    def _announce(self, topic: Topic, queue: Queue, lines: QueueLines) -> None:
        """Let the streams know, once, that suspects wait and nobody asks for them."""
        count = waiting_count(topic, queue)
        if not count or lines.suspects or topic in self._announced:
            return
        self._announced.add(topic)
        for taker in list(lines.ordinary):
            taker.announce(count)

    def rest(self, topic: Topic) -> None:
        """Continue this queue in the next turn of the loop: it has taken up its part of this one."""
        self.resting.add(topic)
        self._attend_later(topic)

    def _feed(self, topic: Topic, taker: Taker, share: int) -> bool:
        """Claim for one taker; return False where there is nothing more to hand out."""
        try:
            outcome = self._engine.run(replace(taker.claim, max_count=share))
        except Overloaded:
            return False  # a cap is reached: the next ack makes room and another pass
        except TenureError as error:
            taker.refuse(error)
            self.remove(topic, taker)
            return True
        if not isinstance(outcome, Answer) or not outcome.reply.jobs:
            return False
        if len(outcome.reply.jobs) < share and self._has_more(topic):
            self.rest(topic)  # the answer could not carry more: the others that wait, or this one, go on
        if not outcome.reply.lease_ms and not taker.claim.auto_ack:  # a repeat: what was meant for it is for others
            self._engine.changed_topics.add(topic)
        self._lines[topic].asking[taker.claim.suspects].move_to_end(taker)
        taker.hand(outcome)
        return True

    def _has_more(self, topic: Topic) -> bool:
        return topic.queue is not None and claimable_count(topic, topic.queue) > 0

    def _dismiss(self, topic: Topic, error: TenureError) -> None:
        for taker in list(self._lines[topic]):
            taker.refuse(error)
        self._forget(topic)

    def close(self, error: TenureError) -> None:
        """Refuse all waiting callers with this error."""
        for topic in list(self._lines):
            self._dismiss(topic, error)

    def _watch(self, topic: Topic) -> None:
        """Set an alarm for the time at which a job becomes claimable without an event."""
        if topic not in self._lines or topic.queue is None:
            return
        due, alarm = topic.queue.next_change_ms, self._deadlines.get(topic)
        if topic.queue.suspects.ready:
            due = min(due, self._lend_ms(topic, topic.queue))
        if alarm is not None:
            if alarm.ring is not None and alarm.due_ms <= due:
                return
            alarm.cancel()
        if due < NEVER:
            self._deadlines[topic] = self._alarms.at(due, self._on_deadline(topic))

    def _lend_ms(self, topic: Topic, queue: Queue) -> int:
        """Return when time alone makes suspects claimable for a caller that did not ask for them."""
        if self._lines[topic].ordinary.is_hungry:
            lend_ms = borrow_ms(self._engine.state, queue)
            if lend_ms > self._engine.now():
                return lend_ms
        return NEVER

    def _on_deadline(self, topic: Topic) -> Callable[[], None]:
        def ring() -> None:
            self._deadlines.pop(topic, None)
            self.serve(topic)

        return ring
