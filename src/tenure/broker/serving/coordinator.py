"""Callers that wait for jobs: long polls, cohorts and work streams, served by one pass per queue.

A pass divides the ready jobs among all waiting callers, in proportion to what each asks for, so that the first one does
not drain the queue. Nothing polls: a pass runs when something was appended, released or acked, and when the next
deadline comes.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tenure.broker.engine import Engine
from tenure.broker.serving.alarms import Alarm, Alarms
from tenure.broker.serving.waiting_line import Line, Taker
from tenure.core.ready_jobs import claimable_count
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.topic import Topic
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
        self._lines: dict[Topic, Line] = {}
        self._deadlines: dict[Topic, Alarm] = {}
        self._cohorts: dict[Topic, Alarm] = {}
        self.resting: set[Topic] = set()
        self.waiting = 0

    def waits_on(self, topic: Topic) -> bool:
        """Return whether a caller waits for jobs of this queue."""
        return topic in self._lines

    def add(self, topic: Topic, taker: Taker) -> None:
        """Add a waiting caller; where the queue gathers cohorts, the first one opens the window."""
        line = self._lines.get(topic)
        if line is None:
            line = self._lines[topic] = Line()
        line.add(taker)
        self.waiting += 1
        jitter_ms = topic.config.claim_jitter_ms
        if jitter_ms and topic not in self._cohorts:
            due = self._engine.now() + jitter_ms
            self._cohorts[topic] = self._alarms.at(due, lambda: self._close_window(topic))
        self._watch(topic)

    def _close_window(self, topic: Topic) -> None:
        self._cohorts.pop(topic, None)
        self.serve(topic)

    def wake(self, topic: Topic, taker: Taker) -> None:
        """Look at a taker in the next pass: it was full and may want jobs again."""
        line = self._lines.get(topic)
        if line is not None and line.wake(taker):
            self._engine.changed_topics.add(topic)

    def remove(self, topic: Topic, taker: Taker) -> None:
        """Remove a caller that stops waiting."""
        line = self._lines.get(topic)
        if line is None:
            return
        if line.remove(taker):
            self.waiting -= 1
        if not line:
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        self.waiting -= len(self._lines.pop(topic, ()))
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
        self._pass(topic, topic.queue, self._lines[topic])
        self._watch(topic)

    def _pass(self, topic: Topic, queue: Queue, line: Line) -> None:
        """Serve the takers whose turn it is. Dead letters end the pass, and so does the end of its time: it continues
        in another turn of the loop.
        """
        ready = claimable_count(topic, queue) if line.is_hungry else 0
        if not ready:
            return
        totals = self._engine.totals
        dead_lettered, is_over = totals.dead_lettered, self._begin_turn()
        for taker, share in line.shares(ready):
            fed = self._feed(topic, taker, share)
            if totals.dead_lettered > dead_lettered or (fed and is_over()):
                self.rest(topic)
                return
            if not fed:
                return

    def rest(self, topic: Topic) -> None:
        """Continue this queue in the next turn of the loop: it has taken up its part of this one."""
        self.resting.add(topic)
        self._attend_later(topic)

    def _feed(self, topic: Topic, taker: Taker, share: int) -> bool:
        """Claim for one taker; return False where there is nothing more to hand out."""
        try:
            answer = self._engine.run(replace(taker.claim, max_count=share))
        except Overloaded:
            return False  # a cap is reached: the next ack makes room and another pass
        except TenureError as error:
            taker.refuse(error)
            self.remove(topic, taker)
            return True
        if not answer.reply.jobs:
            return False
        if not answer.reply.lease_ms and not taker.claim.auto_ack:  # a repeat: what was meant for it is for others
            self._engine.changed_topics.add(topic)
        self._lines[topic].move_to_end(taker)
        if taker.give(answer):
            self.remove(topic, taker)
        return True

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
        if alarm is not None:
            if alarm.ring is not None and alarm.due_ms <= due:
                return
            alarm.cancel()
        if due < NEVER:
            self._deadlines[topic] = self._alarms.at(due, self._on_deadline(topic))

    def _on_deadline(self, topic: Topic) -> Callable[[], None]:
        def ring() -> None:
            self._deadlines.pop(topic, None)
            self.serve(topic)

        return ring
