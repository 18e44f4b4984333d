"""What each work stream holds: kept up to date by the events about its leases, and never counted again.

So an ack looks at the stream that owns the lease, and at no other. The engine reports to this book only while a stream
is open: a broker without streams pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.broker.answer import Answer
from tenure.broker.serving.streams import WorkStream
from tenure.contract import replies
from tenure.contract.commands import Claim
from tenure.contract.names import check_node
from tenure.core.decide.claim import clamp_claim
from tenure.core.decide.holding import keep_held
from tenure.core.decide.settle import clamp_lease
from tenure.core.events import Acked, DeadLettered, Deleted, Event, Evicted, Extended, Released
from tenure.core.state.lease import Ended
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each
from tenure.core.state.topic import Topic

if TYPE_CHECKING:
    from tenure.broker.serving.loop import ServingLoop

__all__ = ["StreamLeases"]


class _Lent:
    """A lease that a stream was given: how many jobs are left of it, and how much had been heard of its worker."""

    __slots__ = ("left", "signs_count", "stream")

    def __init__(self, stream: WorkStream, left: int, signs_count: int) -> None:
        self.stream = stream
        self.left = left
        self.signs_count = signs_count


class StreamLeases:
    """The work streams of a broker, ``by_node``, and which of them was given which lease."""

    def __init__(self, serving: ServingLoop) -> None:
        self._serving = serving
        self.by_node: dict[str, list[WorkStream]] = {}
        self._lent: dict[int, _Lent] = {}

    def open(self, topic: Topic, claim: Claim) -> WorkStream:
        """Return a stream that stands in no line yet."""
        check_node(claim.node)
        max_count = clamp_claim(claim.max_count, self._serving.engine.settings)
        lease_ms = None if claim.lease_ms is None else clamp_lease(claim.lease_ms)
        stream = WorkStream(self, topic, replace(claim, max_count=max_count, lease_ms=lease_ms))
        if not self.by_node:
            self._serving.follow(self._observe)
        self.by_node.setdefault(stream.node, []).append(stream)
        return stream

    def of(self, topic: Topic | None, node: str | None) -> list[WorkStream]:
        """The streams of a queue and a node; None stands for all."""
        lists = self.by_node.values() if node is None else [self.by_node.get(node, [])]
        return [stream for streams in lists for stream in streams if topic in (None, stream.topic)]

    def hear(self, reply: replies.Settled | replies.Extended, node: str) -> None:
        """A worker named jobs that are not its own any more: its streams on that queue have a sign of life.

        Jobs that are still its own are told by the events about them, to the one stream that they were given to.
        """
        done = reply.count if isinstance(reply, replies.Settled) else reply.deadlines
        if done and not reply.skipped:
            return
        for stream in self.by_node.get(node, ()):
            if stream.topic.name == reply.topic:
                self._hear(stream)

    def _hear(self, stream: WorkStream) -> None:
        stream.hear()
        self._serving.coordinator.wake(stream.topic, stream)

    # What is held

    def _observe(self, event: Event) -> None:
        """An event is about to be folded: see which streams it takes jobs from, and of which it is a sign of life."""
        match event:
            case Acked() | DeadLettered():
                leaves, is_sign = True, True
            case Extended():
                leaves, is_sign = False, event.cause == "extend"
            case Released():
                leaves, is_sign = True, event.cause == "nack"
            case Deleted() | Evicted():
                leaves, is_sign = True, False
            case _:
                return
        topic = self._serving.engine.state.by_id.get(event.topic)
        if topic is None or topic.queue is None:
            return
        self._serving.engine.state.pass_time(
            topic, event.at_ms
        )  # as the fold will: what runs out by then is not settled by it
        self._serving.tell_ended()
        for number, job_count in self._named(topic.queue, event.runs).items():
            stream = self._lent[number].stream
            if leaves:
                self._take(number, job_count)
            if is_sign:
                self._hear(stream)

    def _named(self, queue: Queue, runs: list[int]) -> dict[int, int]:
        """How many jobs in these runs are held under which leases of streams, at the cost of the lesser of the two."""
        seqs: Iterable[int] = each(runs)
        if runs[1] > 1 and count(runs) > len(queue.in_flight):
            seqs = [seq for seq in queue.in_flight if any(lo <= seq < lo + n for lo, n in _pairs(runs))]
        named: dict[int, int] = {}
        for seq in seqs:
            lease = queue.in_flight.get(seq)
            if lease is not None and lease.number in self._lent:
                named[lease.number] = named.get(lease.number, 0) + 1
        return named

    def expire(self, ended: Ended) -> None:
        """A lease ran out, or a part of it."""
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
        self._serving.coordinator.wake(lent.stream.topic, lent.stream)

    # For the streams

    def lend(self, stream: WorkStream, number: int, job_count: int, *, signs_count: int) -> None:
        """A stream is given a lease."""
        self._lent[number] = _Lent(stream, job_count, signs_count)
        stream.leases.add(number)
        stream.held_count += job_count

    def read(self, answer: Answer[replies.Grant]) -> Answer[replies.Grant] | None:
        """What a reader gets of a claim that may have waited for it: the jobs that are still held; None for none."""
        engine = self._serving.engine
        claim = keep_held(engine.state, answer.reply, engine.now())
        self._serving.tell_ended()
        if claim is answer.reply:
            return answer
        return Answer(claim, answer.batch, answer.level, answer.durability) if claim.jobs else None

    def answer(self, answer: Answer[replies.Grant]) -> Awaitable[replies.Grant]:
        """The claim, once it may be handed out."""
        return self._serving.answer_claim(answer)

    def wake(self, stream: WorkStream) -> None:
        """A stream may want something again."""
        self._serving.coordinator.wake(stream.topic, stream)
        self._serving.settle()

    def end(self, stream: WorkStream, numbers: list[int] | None) -> None:
        """A stream is over: give back these leases, or all that it has."""
        mine = sorted(stream.leases)
        for number in mine:
            del self._lent[number]
        stream.leases.clear()
        streams = self.by_node[stream.node]
        streams.remove(stream)
        if not streams:
            del self.by_node[stream.node]
        if not self.by_node:
            self._serving.unfollow(self._observe)
        self._serving.coordinator.remove(stream.topic, stream)
        self._serving.release(stream.topic, mine if numbers is None else numbers)


def _pairs(runs: list[int]) -> Iterable[tuple[int, int]]:
    return zip(runs[::2], runs[1::2], strict=True)
