"""The rules alone: commands decided and folded on a bare state, without an engine, a log or a loop.

`Rules.run` is the whole driver: decide, fold the events, go on. The methods have the names and arguments of the
broker's, and return the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict

from tenure import Record, Settings
from tenure.contract import commands as c
from tenure.contract import replies
from tenure.contract.bounds import Bounds, Reaches
from tenure.contract.records import Stored
from tenure.contract.share import Share
from tenure.core.decide.decision import Behind, Decided, ForgetKeys, Pass, Refused, Step, append_copies
from tenure.core.decide.forward import forward
from tenure.core.decide.holding import release
from tenure.core.decide.losses import lose
from tenure.core.decide.table import DECIDES, PASSES
from tenure.core.events import Appended, Event, Opened
from tenure.core.fold import fold
from tenure.core.ready_jobs import ready_count
from tenure.core.records import ends_of, slice_blob, unpack
from tenure.core.state.invariants import invariants
from tenure.core.state.ranges import each, to_runs
from tenure.core.state.router import Router
from tenure.core.state.snapshot import dump_checkpoint
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt
from tenure.testing.clock import ManualClock

T = TypeVar("T")


class NotYet(Exception):
    """A command that waits for its topic to catch up; the rules alone cannot wait."""

    def __init__(self, behind: Behind) -> None:
        super().__init__(behind.topic.name)
        self.behind = behind


class Payloads:
    """Every record that was ever appended, and what it weighs."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], tuple[Stored, int]] = {}

    def keep(self, event: Appended) -> None:
        ends, blobs = ends_of(event.ends, len(event.blobs)), memoryview(event.blobs)
        for index in range(event.count):
            blob, seq = slice_blob(ends, blobs, index), event.first_seq + index
            data, extras = unpack(blob, event.plain)
            record = Stored(seq, event.ts_ms, data, extras.tag, extras.node, extras.meta, extras.hops)
            self._records[event.topic, seq] = record, len(blob)

    def records(self, topic: Topic, runs: list[int]) -> list[Stored]:
        return [self._records[topic.id, seq][0] for seq in each(runs)]

    def readable(self, topic: Topic, runs: list[int]) -> tuple[list[Stored], dict[int, Corrupt]]:
        return self.records(topic, runs), {}

    def fitting(self, topic: Topic, runs: list[int], bytes_max: int) -> list[int]:
        taken, left = list[int](), bytes_max
        for seq in each(runs):
            left -= self.weigh(topic, [seq, 1])
            if left < 0 and taken:
                break
            taken.append(seq)
        return to_runs(taken)

    def weigh(self, topic: Topic, runs: list[int]) -> int:
        return sum(self._records[topic.id, seq][1] for seq in each(runs))

    def sizes(self, topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        return ((seq, self._records[topic.id, seq][1]) for seq in each(topic.live_runs(lo, hi)))


class Rules:
    """A bare state and the time that its clock says. Everything that is folded is durable at once."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        settings: Settings | None = None,
        *,
        features: frozenset[str] = frozenset({"returns"}),
    ) -> None:
        self.clock = clock or ManualClock()
        self.state = State(settings)
        self.state.features = features
        self.payloads = Payloads()
        self._location = 1 << 32
        self.open()

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def open(self) -> None:
        """Open the log, for the first time or again."""
        epoch = self.state.epoch + 1
        self._fold([Opened(self.now_ms, epoch, self.clock.boot_id, self.clock.boot_ms(), 0)])
        self.state.opened_ms = self.now_ms

    def run(self, command: c.Command[T], bounds: Bounds | None = None) -> T:
        """Decide a command and fold what comes of it; then routers pass on what is new."""
        waits, topic = PASSES.get(type(command)), self.state.find(getattr(command, "topic", None))
        if waits is not None and topic is not None and not self.state.advance(topic, self.now_ms) and waits:
            raise NotYet(Behind(topic))
        decide = DECIDES[type(command)]
        more = () if bounds is None else (bounds,)
        reply: T = self._carry_out(decide(self.state, command, self.now_ms, self.payloads, *more))
        self._check_counts(reply)
        for name in list(self.state.routers_from):
            for router in list(self.state.routers_from[name]):
                while self._carry_out(forward(self.state, router, self.now_ms, self.payloads)).more:
                    pass
        invariants(self.state)
        return reply

    def _check_counts(self, reply: object) -> None:
        """A reply about jobs is put together before the fold: it must say what a look after it finds."""
        if isinstance(reply, replies.Settled | replies.Grant):
            topic, queue = self.state.queue(reply.topic)
            assert reply.ready == ready_count(topic, queue)
            if isinstance(reply, replies.Settled):
                assert reply.in_flight == len(queue.in_flight)
            else:
                known = {seq: queue.deliveries[seq] for seq in reply.seqs if seq in queue.deliveries}
                assert reply.redelivered == known or not reply.lease

    def _carry_out(self, decided: Decided[T]) -> T:
        if isinstance(decided, Refused):
            raise decided.error
        if isinstance(decided, tuple):
            events, reply, _ = decided
            self._fold(events if isinstance(events, list) else [] if events is None else [events])
            return reply
        try:
            self._take(next(decided))
            while True:
                self._take(decided.send(self.now_ms))
        except StopIteration as done:
            if isinstance(done.value, Behind):
                raise NotYet(done.value) from None
            if isinstance(done.value, Refused):
                raise done.value.error from None
            return done.value[0]  # type: ignore[no-any-return]

    def _take(self, step: Step) -> None:
        if isinstance(step, Pass):
            self.state.advance(step.topic, step.until_ms)
        elif isinstance(step, ForgetKeys):
            self.state.expire_keys(self.now_ms)
        else:
            self._fold(step)

    def _fold(self, events: list[Event]) -> None:
        for event in events:
            self._location += 1
            fold(self.state, event, self._location)
            if isinstance(event, Appended):
                self.payloads.keep(event)
        for topic in self.state.by_id.values():
            topic.durable_seq = topic.head_seq

    def plant(self, topic: str, metas: Sequence[bytes]) -> None:
        """Put records "1", "2", … with these metas into a topic, also metas that an append may not have."""
        found = self.state.topics.get(topic)
        if found is None:
            self.put_topic(topic, {})
            found = self.state.topic(topic)
        records = [Record(data=b"%d" % number, meta=meta) for number, meta in enumerate(metas, 1)]
        self._fold([append_copies(self.state, found.id, found.head_seq + 1, records, now_ms=self.now_ms)])

    # Commands by the names of the broker's methods

    def produce(
        self, topic: str, records: Sequence[bytes | Record], *, share: Share | None = None, **fields: Any
    ) -> replies.Produced:
        return self.run(c.Append(topic=topic, records=records, **fields), Bounds(share=share))

    def diff(self, topic: str, **fields: Any) -> replies.Difference:
        return self.run(c.Diff(topic=topic, **fields))

    def delete_records(self, topic: str, **fields: Any) -> replies.DeletedRecords:
        return self.run(c.DeleteRecords(topic=topic, **fields))

    def claim(self, topic: str, **fields: Any) -> replies.Grant:
        return self.run(c.Claim(topic=topic, **fields))

    def ack(self, topic: str, **fields: Any) -> replies.Settled:
        return self.run(c.Ack(topic=topic, **fields))

    def nack(self, topic: str, **fields: Any) -> replies.Settled:
        return self.run(c.Nack(topic=topic, **fields))

    def return_jobs(self, topic: str, **fields: Any) -> replies.Settled:
        return self.run(c.Return(topic=topic, **fields))

    def begin(self, topic: str, **fields: Any) -> replies.BegunJob:
        return self.run(c.Begin(topic=topic, **fields))

    def end_node(self, topic: str, **fields: Any) -> replies.EndedNode:
        return self.run(c.EndNode(topic=topic, **fields))

    def lose(self, topic: str, *leases: int) -> None:
        """Lose leases whose worker fell silent."""
        self.state.advance(self.state.topics[topic], self.now_ms)
        self._carry_out(lose(self.state, self.state.topics[topic], leases, self.now_ms))
        invariants(self.state)

    def release(self, topic: str, *leases: int) -> None:
        """Give leases back whose connection is gone."""
        self.state.advance(self.state.topics[topic], self.now_ms)
        self._carry_out(release(self.state, self.state.topics[topic], leases, self.now_ms))
        invariants(self.state)

    def extend(self, topic: str, **fields: Any) -> replies.Extended:
        return self.run(c.Extend(topic=topic, **fields))

    def redrive(self, topic: str, *, reaches: Reaches | None = None, **fields: Any) -> replies.Redriven:
        return self.run(c.Redrive(topic=topic, **fields), Bounds(reaches=reaches))

    def put_topic(
        self, topic: str, config: Mapping[str, Any] | None = None, *, share: Share | None = None
    ) -> tuple[replies.TopicInfo, bool]:
        return self.run(c.PutTopic(topic=topic, config={} if config is None else config), Bounds(share=share))

    def patch_topic(self, topic: str, config: Mapping[str, Any]) -> replies.TopicInfo:
        return self.run(c.PatchTopic(topic=topic, config=config))

    def delete_topic(self, topic: str, *, reaches: Reaches | None = None, **fields: Any) -> tuple[bool, list[str]]:
        return self.run(c.DeleteTopic(topic=topic, **fields), Bounds(reaches=reaches))

    def put_router(self, router: str, *, share: Share | None = None, **fields: Any) -> tuple[Router, bool]:
        return self.run(c.PutRouter(router=router, **fields), Bounds(share=share))

    def delete_router(self, router: str) -> bool:
        return self.run(c.DeleteRouter(router=router))

    def router(self, router: str) -> Router:
        found: Router = self.run(c.GetRouter(router=router))
        return found

    def routers(self, *, reaches: Reaches | None = None, **fields: Any) -> replies.Page[Any]:
        return self.run(c.ListRouters(**fields), Bounds(reaches=reaches))

    def topic(self, topic: str, **fields: Any) -> replies.TopicInfo:
        return self.run(c.GetTopic(topic=topic, **fields))

    def topics(self, **fields: Any) -> replies.Page[str]:
        return self.run(c.ListTopics(**fields))

    def jobs(self, topic: str, **fields: Any) -> replies.Page[replies.JobRow]:
        return self.run(c.ListJobs(topic=topic, **fields))

    def job(self, topic: str, seq: int) -> replies.JobInfo:
        return self.run(c.GetJob(topic=topic, seq=seq))

    def leases(self, topic: str, **fields: Any) -> replies.Page[replies.LeaseRow]:
        return self.run(c.ListLeases(topic=topic, **fields))

    def strip(self, topic: str, **fields: Any) -> replies.QueueStrip:
        return self.run(c.Strip(topic=topic, **fields))


def make_queue(rules: Rules, name: str = "q", *, jobs: int = 0, **config: Any) -> None:
    """A queue with ``jobs`` jobs in it, whose data are their seqs."""
    rules.put_topic(name, {"type": "queue", **config})
    if jobs:
        rules.produce(name, [b"%d" % seq for seq in range(1, jobs + 1)])


def read(rules: Rules, topic: str) -> list[Stored]:
    """Every record that a reader from the start can see."""
    return rules.diff(topic, limit=1000).records


def numbers(rules: Rules, topic: str = "q") -> dict[str, int]:
    """The counters of a queue."""
    queue = rules.topic(topic).queue
    assert queue is not None
    return asdict(queue)


def snapshot(rules: Rules) -> bytes:
    """The whole state as canonical bytes: equal before and after means that nothing changed."""
    return dump_checkpoint(rules.state)


def fail_by_expiry(rules: Rules, clock: ManualClock, times: int = 1, *, topic: str = "q") -> replies.Grant | None:
    """Claim everything and let the leases run out, some times over; the last claim."""
    claim = None
    for _ in range(times):
        claim = rules.claim(topic, node="w", max_count=1000, lease_ms=1000)
        clock.advance(1001)
    return claim
