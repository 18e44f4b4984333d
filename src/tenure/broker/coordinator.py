"""Everybody who waits for jobs: long polls, cohorts and work streams, fed by one pass.

A pass divides what is ready among all who wait, in proportion to what each asks for, so nobody drains the head
because it came first. Nothing polls: a pass runs when something was appended, released or acked, and when the next
deadline comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tenure.broker.alarms import Alarm, Alarms
from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.broker.leases import claim
from tenure.broker.replies import Claim
from tenure.core.claim import claimable_count
from tenure.core.queue import NEVER
from tenure.core.topic import Topic
from tenure.errors import NotFound, Overloaded, TenureError

__all__ = ["ClaimWaiter", "Coordinator", "Taker", "divide"]


class Taker(Protocol):
    """Somebody who waits for jobs of one queue."""

    node: str
    lease_ms: int | None
    claim_id: str | None
    auto_ack: bool

    def wants(self) -> int:
        """How many jobs it would take right now; 0 while it is full."""

    def give(self, answer: Answer[Claim]) -> bool:
        """Hand over a claim; True if it wants no more, ever."""

    def refuse(self, error: TenureError) -> None:
        """The queue is gone, or the claim is impossible."""


class ClaimWaiter:
    """A claim that waits until something comes or its time is up."""

    def __init__(
        self,
        future: asyncio.Future[Answer[Claim]],
        *,
        node: str,
        max_count: int,
        lease_ms: int | None,
        claim_id: str | None,
        auto_ack: bool,
    ) -> None:
        self.future = future
        self.node = node
        self.max_count = max_count
        self.lease_ms = lease_ms
        self.claim_id = claim_id
        self.auto_ack = auto_ack

    def wants(self) -> int:
        return 0 if self.future.done() else self.max_count

    def give(self, answer: Answer[Claim]) -> bool:
        if not self.future.done():
            self.future.set_result(answer)
        return True

    def refuse(self, error: TenureError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def divide(ready: int, wants: Sequence[int], *, start: int = 0) -> list[int]:
    """Shares of ``ready`` in proportion to ``wants``; what is left over goes round from ``start``, one each."""
    total = sum(wants)
    if total <= ready:
        return list(wants)
    shares = [ready * want // total for want in wants]
    left, at = ready - sum(shares), start
    while left:
        index = at % len(wants)
        if shares[index] < wants[index]:
            shares[index] += 1
            left -= 1
        at += 1
    return shares


class Coordinator:
    """Who waits on which queue, and the passes that feed them. ``waiting`` counts them all."""

    def __init__(self, engine: Engine, alarms: Alarms) -> None:
        self._engine = engine
        self._alarms = alarms
        self._takers: dict[Topic, list[Taker]] = {}
        self._deadlines: dict[Topic, Alarm] = {}
        self._cohorts: dict[Topic, Alarm] = {}
        self._turn = 0
        self.waiting = 0

    def waits_on(self, topic: Topic) -> bool:
        """Whether anybody waits for jobs of this queue."""
        return topic in self._takers

    def add(self, topic: Topic, taker: Taker) -> None:
        """Let somebody wait; where the queue gathers cohorts, the first one opens the window."""
        self._takers.setdefault(topic, []).append(taker)
        self.waiting += 1
        jitter_ms = topic.config.claim_jitter_ms
        if jitter_ms and topic not in self._cohorts:
            due = self._engine.now() + jitter_ms
            self._cohorts[topic] = self._alarms.at(due, lambda: self._close_window(topic))
        self._watch(topic)

    def _close_window(self, topic: Topic) -> None:
        self._cohorts.pop(topic, None)
        self.serve(topic)

    def remove(self, topic: Topic, taker: Taker) -> None:
        """Somebody stops waiting."""
        takers = self._takers.get(topic, [])
        if taker in takers:
            takers.remove(taker)
            self.waiting -= 1
        if not takers:
            self._forget(topic)

    def _forget(self, topic: Topic) -> None:
        self.waiting -= len(self._takers.pop(topic, ()))
        for alarms in (self._deadlines, self._cohorts):
            alarm = alarms.pop(topic, None)
            if alarm is not None:
                alarm.cancel()

    def serve(self, topic: Topic) -> None:
        """One pass: divide what is ready among those who wait. While a window is open, it waits for its end."""
        if topic not in self._takers or topic in self._cohorts:
            return
        if topic.queue is None or self._engine.state.by_id.get(topic.id) is not topic:
            gone = NotFound(f"topic {topic.name!r} was deleted", code="topic_not_found", topic=topic.name)
            self._dismiss(topic, gone)
            return
        self._engine.pass_time(topic, self._engine.now())
        ready = claimable_count(topic, topic.queue)
        if ready:
            for taker, share in self._shares(self._takers[topic], ready):
                if share and not self._feed(topic, taker, share):
                    break
        self._watch(topic)

    def _shares(self, takers: list[Taker], ready: int) -> list[tuple[Taker, int]]:
        """Who gets how many. Fewer jobs than takers go round one each, so a thousand idle streams cost one look."""
        if ready >= len(takers):
            hungry = [(taker, wants) for taker in takers if (wants := taker.wants())]
            self._turn += 1
            shares = divide(ready, [wants for _, wants in hungry], start=self._turn) if hungry else []
            return [(taker, share) for (taker, _), share in zip(hungry, shares, strict=True)]
        chosen: list[tuple[Taker, int]] = []
        for _ in range(len(takers)):
            self._turn += 1
            taker = takers[self._turn % len(takers)]
            if taker.wants():
                chosen.append((taker, 1))
                if len(chosen) == ready:
                    break
        return chosen

    def _feed(self, topic: Topic, taker: Taker, share: int) -> bool:
        """Claim for one taker; False where there is nothing more to hand out."""
        try:
            answer = claim(
                self._engine,
                topic.name,
                node=taker.node,
                max_count=share,
                lease_ms=taker.lease_ms,
                claim_id=taker.claim_id,
                auto_ack=taker.auto_ack,
            )
        except Overloaded:
            return False  # a cap is reached: the next ack makes room and another pass
        except TenureError as error:
            taker.refuse(error)
            self.remove(topic, taker)
            return True
        if not answer.reply.jobs:
            return False
        if taker.give(answer):
            self.remove(topic, taker)
        return True

    def _dismiss(self, topic: Topic, error: TenureError) -> None:
        for taker in self._takers[topic]:
            taker.refuse(error)
        self._forget(topic)

    def close(self, error: TenureError) -> None:
        """Turn everybody away."""
        for topic in list(self._takers):
            self._dismiss(topic, error)

    def _watch(self, topic: Topic) -> None:
        """Wake up when time alone makes something claimable."""
        if topic not in self._takers or topic.queue is None:
            return
        due, alarm = topic.queue.next_at, self._deadlines.get(topic)
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
