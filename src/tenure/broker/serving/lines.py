"""The callers that wait on topics: claims and reads that are run at once, or get in line until there is something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tenure.broker.answer import Answer, OpenAnswer
from tenure.broker.engine import Engine, Outcome
from tenure.broker.serving.alarms import Alarms
from tenure.broker.serving.catch_up import CatchUp
from tenure.broker.serving.coordinator import Coordinator
from tenure.broker.serving.durable_claims import UnsyncedClaims
from tenure.broker.serving.grace import Graces
from tenure.broker.serving.waiting import WaitingClaim, WaitingRead
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Claim, Diff
from tenure.contract.replies import Difference, Grant
from tenure.contract.values import check_whole
from tenure.core.decide.claim import check_claim, clamp_claim
from tenure.core.level import Level
from tenure.core.state.topic import Topic
from tenure.errors import NotFound, Overloaded, TenureError
from tenure.turns import Turns

__all__ = ["Lines"]


class Lines:
    """The lines of waiting callers; its length is how many there are.

    To serve a caller is to decide its command again: what comes out empty while there is time left stays in line.
    ``check_open`` raises where nothing may be answered now, ``check_writable`` also where nothing may be logged any
    more, and ``check_waiters`` where as many callers wait as may.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        alarms: Alarms,
        *,
        coordinator: Coordinator,
        claims: UnsyncedClaims,
        catch_up: CatchUp,
        turns: Turns,
        graces: Graces,
        check_open: Callable[[], None],
        check_writable: Callable[[], None],
        check_waiters: Callable[[], None],
        attend_later: Callable[[Topic], None],
        settle: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._alarms = alarms
        self._coordinator = coordinator
        self._claims = claims
        self._catch_up = catch_up
        self._turns = turns
        self._graces = graces
        self._check_open = check_open
        self._check_writable = check_writable
        self._check_waiters = check_waiters
        self._attend_later = attend_later
        self._settle = settle
        self._reads: dict[Topic, set[WaitingRead]] = {}
        self._to_read: dict[Topic, dict[WaitingRead, None]] = {}
        self.reads_waiting = 0

    def __len__(self) -> int:
        return self._coordinator.waiting + self.reads_waiting

    def serve(self, topic: Topic) -> None:
        """Serve the callers that wait on a topic on which something has changed.

        What this turn has no time to read is read in the next ones, before those that are to be read once more.
        """
        self._coordinator.serve(topic)
        reads = self._reads.get(topic)
        if reads:
            is_under_way = topic in self._to_read
            self._to_read.setdefault(topic, {}).update(dict.fromkeys(reads))
            if not is_under_way:
                step = partial(self._read_next, topic)
                if not self._turns.run(step):
                    self._turns.add(step)

    def close(self, error: TenureError) -> None:
        """Refuse all waiting callers with this error."""
        self._coordinator.close(error)
        for read in [read for reads in self._reads.values() for read in reads]:
            read.refuse(error)

    def _clamp_wait(self, wait_ms: int) -> int:
        return min(check_whole(wait_ms, "wait_ms"), self._engine.settings.wait_ms_max)

    # Claims

    def claim(self, command: Claim, bounds: Bounds | None) -> Answer[Grant] | OpenAnswer[Grant]:
        """Claim at once where no caller waits, else in turn; with ``wait_ms``, wait for a job to come.

        A read-only broker refuses it, because it must not be answered as if there were no jobs.
        """
        engine, name, wait_ms = self._engine, command.topic, command.wait_ms
        if engine.log.failed is not None:
            self._check_writable()
        if self._graces.waiting and isinstance(command.node, str):
            self._graces.heard(command.node)
        found = engine.state.topics.get(name) if name.__class__ is str else None
        if (
            wait_ms
            or wait_ms.__class__ is not int
            or found is None
            or found.config.claim_jitter_ms
            or self._coordinator.waiting
        ):
            return self._claim_in_turn(command, wait_ms=self._clamp_wait(wait_ms))
        outcome = engine.run(command)
        if not isinstance(outcome, Answer):
            return self._get_in_line(found, command, wait_ms=0)
        self._settle()
        return outcome if outcome.level != Level.SYNCED else self._claims.answer(outcome)

    def _claim_in_turn(self, command: Claim, *, wait_ms: int) -> Answer[Grant] | OpenAnswer[Grant]:
        """Run a claim that may have to wait: for callers before it, for its cohort, or for a job to come."""
        topic, queue = self._engine.state.queue(command.topic)
        is_alone = not topic.config.claim_jitter_ms and not self._coordinator.waits_on(topic)
        if is_alone or (isinstance(command.claim_id, str) and command.claim_id in queue.claims):
            answer = self._claim_now(topic, command, may_wait=wait_ms > 0)
            if answer is not None:
                self._settle()
                return self._claims.answer(answer)
        return self._get_in_line(topic, command, wait_ms=max(wait_ms, topic.config.claim_jitter_ms))

    def _claim_now(self, topic: Topic, command: Claim, *, may_wait: bool) -> Answer[Grant] | None:
        """Claim without waiting; None where nothing was ready and the caller may wait, or the queue is behind."""
        try:
            outcome = self._run(topic, partial(self._engine.run, command))
        except Overloaded:
            if may_wait:
                return None
            raise
        if not isinstance(outcome, Answer) or (may_wait and not outcome.reply.jobs):
            return None
        return outcome

    def _run(self, topic: Topic, run: Callable[[], Outcome[Grant]]) -> Outcome[Grant]:
        """Run a claim before those that wait. Where it dead-lettered jobs, these are served in the next turn."""
        totals = self._engine.totals
        dead_lettered = totals.dead_lettered
        outcome = run()
        if totals.dead_lettered > dead_lettered:
            self._coordinator.rest(topic)
        return outcome

    def _get_in_line(self, topic: Topic, command: Claim, *, wait_ms: int) -> OpenAnswer[Grant]:
        settings = self._engine.settings
        check_claim(command, settings)
        self._check_waiters()
        max_count = clamp_claim(command.max_count, settings)
        leave_line = partial(self._coordinator.remove, topic)
        claim = WaitingClaim(self._claims, command, max_count=max_count, leave_line=leave_line)
        answer = OpenAnswer(claim, self._loop)
        self._coordinator.add(topic, claim)
        self._coordinator.serve(topic)
        if claim.is_open:
            if wait_ms:
                claim.alarm = self._alarms.at(self._engine.now() + wait_ms, partial(self._end_wait, topic, claim))
            else:
                self._end_wait(topic, claim)
        self._settle()
        return answer

    def _end_wait(self, topic: Topic, claim: WaitingClaim, came_ms: int | None = None) -> None:
        """Answer with what is ready, also if that is nothing; on a queue that is behind, when it has caught up, and by
        the time at which the wait has ended.
        """
        if not claim.is_open:
            return
        run = partial(self._engine.run, claim.claim)
        if came_ms is not None:
            run = partial(self._engine.run_as_of, claim.claim, came_ms)
        try:
            self._check_open()
            outcome = self._run(topic, run)
        except TenureError as error:
            claim.refuse(error)
        else:
            if isinstance(outcome, Answer):
                claim.give(outcome)
            else:
                self._catch_up.then(topic, partial(self._end_wait, topic, claim))

    # Reads

    def read(self, command: Diff, bounds: Bounds | None) -> Answer[Difference] | OpenAnswer[Difference]:
        """Read at once; with ``wait_ms``, wait that long for a record to come where there is none."""
        wait_ms = self._clamp_wait(command.wait_ms)
        outcome = self._engine.run(command)
        assert isinstance(outcome, Answer), "a read waits for no present"
        found = outcome.reply
        if not wait_ms or found.records or found.tombstone is not None:
            self._settle()
            return outcome
        self._check_waiters()
        topic = self._engine.state.topic(command.topic)
        read = WaitingRead(command, leave_line=partial(self._leave, topic))
        answer = OpenAnswer(read, self._loop)
        self._reads.setdefault(topic, set()).add(read)
        self.reads_waiting += 1
        read.alarm = self._alarms.at(self._engine.now() + wait_ms, partial(self._end_read, topic, read))
        self._go_on(topic, read, found)
        self._settle()
        return answer

    def _end_read(self, topic: Topic, read: WaitingRead) -> None:
        read.is_time_up = True
        self._read_again(topic, read)

    def _read_next(self, topic: Topic) -> bool:
        """Read again for the next one of those that wait on a topic; return True after the last."""
        to_read = self._to_read[topic]
        read = next(iter(to_read))
        del to_read[read]
        if not to_read:
            del self._to_read[topic]
        if read.is_open:
            self._read_again(topic, read)
        return not to_read

    def _read_again(self, topic: Topic, read: WaitingRead) -> None:
        """Read again after an event on the topic, and answer if there is something to read now, or the time is up."""
        name = read.command.topic
        if self._engine.state.by_id.get(topic.id) is not topic:
            read.refuse(NotFound(f"topic {name!r} was deleted", code="topic_not_found", topic=name))
            return
        try:
            self._check_open()
            outcome = self._engine.run(read.command)
        except TenureError as error:
            read.refuse(error)
            return
        assert isinstance(outcome, Answer), "a read waits for no present"
        if read.is_time_up or outcome.reply.records or outcome.reply.tombstone is not None:
            read.finish(outcome.reply)
        else:
            self._go_on(topic, read, outcome.reply)

    def _go_on(self, topic: Topic, read: WaitingRead, found: Difference) -> None:
        """Read on after what was passed over, in the next turn where there is more than one read looks at."""
        read.pass_over(found)
        if not found.caught_up:
            self._attend_later(topic)

    def _leave(self, topic: Topic, read: WaitingRead) -> None:
        reads = self._reads.get(topic)
        if reads is not None and read in reads:
            reads.remove(read)
            self.reads_waiting -= 1
            if not reads:
                del self._reads[topic]
