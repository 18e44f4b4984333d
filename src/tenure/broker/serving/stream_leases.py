"""Leases of work streams: how many jobs each stream holds, updated by the events about its leases.

So an ack looks at the stream that owns the lease, and at no other. The engine reports events here only while a stream
is open: a broker without streams pays nothing for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from tenure.broker.answer import Answer, OpenAnswer
from tenure.broker.engine import Engine
from tenure.broker.serving.coordinator import Coordinator
from tenure.broker.serving.grace import Graces
from tenure.broker.serving.streams import WorkStream
from tenure.contract import replies
from tenure.contract.commands import Claim
from tenure.contract.names import check_node
from tenure.core.decide.claim import check_isolation, clamp_claim
from tenure.core.decide.settle import clamp_lease
from tenure.core.events import (
    Acked,
    Begun,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Lost,
    Released,
    Returned,
)
from tenure.core.level import Level
from tenure.core.state.lease import Ended
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each
from tenure.core.state.topic import Topic
from tenure.core.suspects import isolates

__all__ = ["StreamLeases"]


class _Lent:
    """A lease of a stream: how many jobs are left of it, and how many signs of life its worker had given before it."""

    __slots__ = ("left", "signs_count", "stream")

    def __init__(self, stream: WorkStream, left: int, signs_count: int) -> None:
        self.stream = stream
        self.left = left
        self.signs_count = signs_count


class StreamLeases:
    """The work streams of a broker, ``by_node``, and the stream of each lease. A stream whose reader has
    ``unread_bytes_max`` to read is given no more.

    ``answer`` makes the answer of a claim that waits for its sync, ``may_answer`` says whether anything may be answered
    before its sync, ``release`` gives leases back, and ``report_ended`` reports those that have expired by now.
    """

    def __init__(
        self,
        engine: Engine,
        coordinator: Coordinator,
        graces: Graces,
        *,
        answer: Callable[[Answer[replies.Grant]], Answer[replies.Grant] | OpenAnswer[replies.Grant]],
        may_answer: Callable[[], bool],
        release: Callable[[Topic, Sequence[int]], None],
        report_ended: Callable[[], None],
        settle: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._coordinator = coordinator
        self._graces = graces
        self._may_answer = may_answer
        self._release = release
        self._report_ended = report_ended
        self._settle = settle
        self.answer = answer
        self.unread_bytes_max = engine.settings.claim_bytes_max
        self.by_node: dict[str, list[WorkStream]] = {}
        self._lent: dict[int, _Lent] = {}

    def open(self, topic: Topic, claim: Claim) -> WorkStream:
        """Return a new stream that is in no line yet. Raises Invalid."""
        check_node(claim.node)
        check_isolation(claim)
        max_count = clamp_claim(claim.max_count, self._engine.settings)
        lease_ms = None if claim.lease_ms is None else clamp_lease(claim.lease_ms)
        stream = WorkStream(self, topic, replace(claim, max_count=max_count, lease_ms=lease_ms))
        if not self.by_node:
            self._engine.follow(self._observe)
        self.by_node.setdefault(stream.node, []).append(stream)
        return stream

    def of(self, topic: Topic | None, node: str | None) -> list[WorkStream]:
        """Return the streams of a queue and a node; None stands for all."""
        lists = self.by_node.values() if node is None else [self.by_node.get(node, [])]
        return [stream for streams in lists for stream in streams if topic in (None, stream.topic)]

    def note_sign_of_life(self, reply: replies.Settled | replies.Extended, node: str) -> None:
        """Record a sign of life for the streams of a worker that named jobs which it does not hold any more.

        For jobs that it still holds, the events about them are the sign, for the one stream that they were given to.
        """
        done = reply.count if isinstance(reply, replies.Settled) else reply.deadlines
        if done and not reply.skipped:
            return
        for stream in self.by_node.get(node, ()):
            if stream.topic.name == reply.topic:
                self._note_alive(stream)

    def _note_alive(self, stream: WorkStream) -> None:
        self._coordinator.wake(stream.topic, stream, had_stopped=stream.note_alive())

    # What is held

    def _observe(self, event: Event) -> None:
        """Update the streams that an event takes jobs from, and those whose worker it shows to be alive.

        The event is about to be folded.
        """
        match event:
            case Acked() | DeadLettered():
                leaves, is_sign = True, True
            case Extended():
                leaves, is_sign = False, event.cause == "extend"
            case Released():
                leaves, is_sign = True, event.cause == "nack"
            case Begun():
                leaves, is_sign = False, not event.is_over
            case Returned() | Lost():
                leaves, is_sign = True, False
            case Deleted() | Evicted():
                leaves, is_sign = True, False
            case _:
                return
        topic = self._engine.state.by_id.get(event.topic)
        if topic is None or topic.queue is None:
            return
        self._engine.state.pass_time(topic, event.at_ms)  # as the fold will: what runs out by then is not settled by it
        self._report_ended()
        for number, job_count in self._named(topic.queue, event.runs).items():
            stream = self._lent[number].stream
            if leaves:
                self._take(number, job_count)
            if is_sign:
                self._note_alive(stream)

    def _named(self, queue: Queue, runs: list[int]) -> dict[int, int]:
        """Return how many jobs of these runs are held under each lease of a stream, at the cost of the smaller set."""
        seqs: Iterable[int] = each(runs)
        if runs[1] > 1 and count(runs) > len(queue.in_flight):
            seqs = [seq for seq in queue.in_flight if any(lo <= seq < lo + n for lo, n in _pairs(runs))]
        counts = Counter(map(queue.in_flight.get, seqs))
        numbers = ((queue.leases.number(row), job_count) for row, job_count in counts.items() if row is not None)
        return {number: job_count for number, job_count in numbers if number in self._lent}

    def expire(self, ended: Ended) -> None:
        """Take away a lease that expired, or a part of it."""
        lent = self._lent.get(ended.lease)
        if lent is not None:
            lent.stream.expire(ended.lease, signs_count=lent.signs_count)
            self._take(ended.lease, count(ended.runs))

    def _take(self, number: int, job_count: int) -> None:
        lent = self._lent[number]
        lent.left -= job_count
        if not lent.left:
            del self._lent[number]
            lent.stream.leases.discard(number)
        lent.stream.held_count -= job_count
        self._coordinator.wake(lent.stream.topic, lent.stream)

    # For the streams

    def lend(self, stream: WorkStream, number: int, job_count: int, *, signs_count: int) -> None:
        """Record that a stream is given a lease."""
        self._lent[number] = _Lent(stream, job_count, signs_count)
        stream.leases.add(number)
        stream.held_count += job_count

    def read(self, answer: Answer[replies.Grant]) -> Answer[replies.Grant] | None:
        """Return the jobs that are still held of a claim which may have waited for its reader; None for none."""
        claim = self._engine.still_held(answer.reply)
        self._report_ended()
        level = answer.level if self._may_answer() else Level.SYNCED
        if claim is answer.reply and level == answer.level:
            return answer
        return Answer(claim, answer.batch, level, answer.durability) if claim.jobs else None

    def wake(self, stream: WorkStream) -> None:
        """Look at a stream again, which had stopped wanting jobs."""
        self._coordinator.wake(stream.topic, stream, had_stopped=True)
        self._settle()

    def end(self, stream: WorkStream, unread: list[int], *, is_cut: bool) -> None:
        """Remove a stream that has ended; give back the leases that were not read of it, and where it was cut, also the
        others, or let their grace begin.
        """
        mine = sorted(stream.leases)
        for number in mine:
            del self._lent[number]
        stream.leases.clear()
        streams = self.by_node[stream.node]
        streams.remove(stream)
        if not streams:
            del self.by_node[stream.node]
        if not self.by_node:
            self._engine.unfollow(self._observe)
        self._coordinator.remove(stream.topic, stream)
        self._release(stream.topic, unread)
        if is_cut:
            self._let_go(stream, sorted(set(mine).difference(unread)))

    def _let_go(self, stream: WorkStream, read: list[int]) -> None:
        """Give back leases that were read of a stream that was cut, or let their grace begin where they isolate."""
        if isolates(self._engine.state, stream.claim):
            self._graces.begin(stream.topic, stream.node, read)
        else:
            self._release(stream.topic, read)


def _pairs(runs: list[int]) -> Iterable[tuple[int, int]]:
    return zip(runs[::2], runs[1::2], strict=True)
