"""A small world around one engine: what was asked, what was promised, and whether a disk that comes up later keeps it.

What holds in every fault (docs/faults.md): (a) an acknowledged produce is delivered or dead-lettered, (b) nothing
appears that nobody sent, (c) no two leases on one job overlap in log order, (d) an acknowledged ack is not undone,
(e) the log folded again equals the live state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, TypeVar

from tenure.broker.answer import Answer
from tenure.broker.durability import trim
from tenure.broker.engine import Engine
from tenure.contract.replies import Grant
from tenure.core import events
from tenure.core.fold import fold
from tenure.core.state.ranges import each
from tenure.core.state.snapshot import dump_state, dump_topic, load_topic
from tenure.core.state.state import State
from tenure.errors import Overloaded
from tenure.log import FileLog, checkpoint
from tenure.settings import Settings
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.kit import run

T = TypeVar("T")

SEGMENT_BYTES = 4096
SETTINGS = Settings(segment_bytes=SEGMENT_BYTES, spare_segments=1, trim_step_bytes=1024)
DAY_MS = 86_400_000


class Ledger:
    """What was asked of a queue and what was answered, in payloads, which are unique."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        #: Payloads that may be gone: somebody asked for it, whether or not the answer came.
        self.released: set[bytes] = set()
        #: Payloads that must be there, and payloads that must not come back.
        self.promised: set[bytes] = set()
        self.settled: set[bytes] = set()
        #: (batch, what it promises, payloads), as long as the batch may still be lost.
        self.open: list[tuple[int, str, list[bytes]]] = []
        self.written_batch = self.synced_batch = 0
        self._number = 0

    def payloads(self, count: int, *, size: int = 0) -> list[bytes]:
        made = []
        for _ in range(count):
            self._number += 1
            made.append(b'"%d%s"' % (self._number, b"." * size))
        self.sent.update(made)
        return made

    def note(self, engine: Engine) -> None:
        self.written_batch = max(self.written_batch, engine.log.written_batch)
        self.synced_batch = max(self.synced_batch, engine.log.synced_batch)

    def close_books(self, *, power_lost: bool) -> None:
        """The process is gone: what was acknowledged at the level that survives must hold, the rest may."""
        limit = self.synced_batch if power_lost else self.written_batch
        for batch, kind, payloads in self.open:
            if batch <= limit:
                (self.promised if kind == "produce" else self.settled).update(payloads)
        self.open = []
        self.written_batch = self.synced_batch = 0


class Session:
    """One opening of an engine; every command goes through here so that the ledger hears of it."""

    def __init__(self, disk: SimDisk, ledger: Ledger, clock: ManualClock, *, settings: Settings = SETTINGS) -> None:
        self.disk, self.ledger, self.clock = disk, ledger, clock
        self.log = FileLog.open(disk, segment_bytes=settings.segment_bytes)
        self.engine = Engine(self.log, clock=clock, settings=settings)
        self.engine.recover(checkpoint.load(disk))
        ledger.note(self.engine)

    def call(self, command: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run a command. One that is refused for lack of room has changed nothing and works when sent again."""
        before = picture(self.engine)
        try:
            return command(self.engine, *args, **options)
        except Overloaded as error:
            if error.code != "disk_full":
                raise
            assert picture(self.engine) == before, "refused, yet something changed"
            return command(self.engine, *args, **options)
        finally:
            self.ledger.note(self.engine)

    def queue(self, name: str = "q", **config: Any) -> None:
        self.call(run.put_topic, name, {"type": "queue", "durability": "fsync", **config})
        self.sync()

    def produce(self, count: int = 1, *, to: str = "q", size: int = 0, **options: Any) -> list[bytes]:
        payloads = self.ledger.payloads(count, size=size)
        outcome = self.call(run.produce, to, payloads, **options)
        self.ledger.open.append((outcome.batch, "produce", payloads))
        return payloads

    def claim(self, count: int = 1, *, name: str = "q", node: str = "w", **options: Any) -> Grant:
        return self.call(run.claim, name, node=node, max_count=count, **options).reply

    def ack(self, claim: Grant, *, copies: bool = False) -> None:
        """Ack a claim; ``copies`` says that the same records live on in another topic."""
        payloads = [job.data for job in claim.jobs]
        if not copies:
            self.ledger.released.update(payloads)
        outcome = self.call(run.ack, claim.topic, node=claim.node, seqs=claim.seqs)
        assert not outcome.reply.skipped
        self.ledger.open.append((outcome.batch, "ack", payloads))

    def nack(self, claim: Grant, **options: Any) -> None:
        outcome = self.call(run.nack, claim.topic, node=claim.node, seqs=claim.seqs, **options)
        assert not outcome.reply.skipped

    def route(self, name: str, *, source: str, dest: str) -> None:
        self.call(run.put_router, name, source=source, dest=dest)

    def forward(self, source: str) -> None:
        while self.call(run.forward, self.engine.state.topics[source]):
            pass

    def redrive(self, name: str, **options: Any) -> Answer[Any]:
        return self.call(run.redrive, name, **options)

    def trim(self) -> None:
        while trim.trim_due(self.engine):
            self.call(trim.trim_step)

    def checkpoint(self) -> None:
        self.sync()
        checkpoint.save(self.disk, self.log.position(), self.engine.checkpoint())

    def write(self) -> None:
        try:
            self.engine.write()
        finally:
            self.ledger.note(self.engine)

    def sync(self) -> None:
        try:
            self.engine.sync()
        finally:
            self.ledger.note(self.engine)

    def close(self) -> None:
        self.sync()
        self.log.close()


# Looking


def picture(engine: Engine) -> list[bytes]:
    """Everything that is folded, as bytes, with time let pass up to now on every queue."""
    return picture_of(engine.state, engine.now())


def picture_of(state: State, now: int) -> list[bytes]:
    for topic in state.by_id.values():
        state.pass_time(topic, now)
    return [dump_state(state), *(dump_topic(topic, now_ms=now) for _, topic in sorted(state.by_id.items()))]


def refold(engine: Engine) -> State:
    """The state that the log alone gives."""
    engine.write()
    state = State()
    for kind, _, location, body in engine.log.replay():
        fold(state, events.decode(kind, body), location)
    return state


def check_fold(engine: Engine) -> None:
    """(e): the log folded again equals the live state."""
    state = refold(engine)
    assert picture_of(state, engine.now()) == picture(engine), "the log folds to another state"


def check_leases(log_events: Iterable[events.Event]) -> None:
    """(c): going through the log, no claim takes a job that a live lease covers. Knows nothing of the engine's fold."""
    held: dict[tuple[int, int], int] = {}
    known: set[int] = set()
    for event in log_events:
        match event:
            case events.TopicPut() if event.created:
                known.add(event.topic)
            case events.TopicCarried():
                if event.topic not in known:
                    known.add(event.topic)
                    held.update(_carried_leases(event))
            case events.Claimed() if event.topic in known:
                for seq in each(event.runs):
                    deadline = held.get((event.topic, seq))
                    assert deadline is None or deadline < event.at_ms, f"job {seq} is claimed while held"
                    held[event.topic, seq] = event.deadline_ms
            case events.Extended() if event.topic in known:
                for seq in each(event.runs):
                    assert held.get((event.topic, seq), -1) >= event.at_ms, f"job {seq} is extended, but not held"
                    held[event.topic, seq] = event.deadline_ms
            case events.Acked() if event.topic in known:
                for seq in each(event.runs):
                    assert held.pop((event.topic, seq), -1) >= event.at_ms, f"job {seq} is acked, but not held"
            case events.Released() if event.topic in known:
                for seq in each(event.runs):
                    assert held.pop((event.topic, seq), -1) >= event.at_ms, f"job {seq} is released, but not held"
            case events.DeadLettered() | events.Deleted():
                for seq in each(event.runs):
                    held.pop((event.topic, seq), None)
            case events.Evicted() if event.topic in known:
                for seq in each(event.runs):
                    deadline = held.get((event.topic, seq))
                    assert deadline is None or deadline < event.at_ms, f"job {seq} is evicted while held"


def _carried_leases(event: events.TopicCarried) -> dict[tuple[int, int], int]:
    queue = load_topic(event.snapshot).queue
    if queue is None:
        return {}
    return {
        (event.topic, seq): deadline_ms
        for row in set(queue.in_flight.values())
        for seq, deadline_ms in queue.deadlines_of(row)
    }


def events_of(engine: Engine) -> list[events.Event]:
    engine.write()
    return [events.decode(kind, body) for kind, _, _, body in engine.log.replay()]


def records(engine: Engine, name: str) -> list[bytes]:
    """Every live record of a topic."""
    found: list[bytes] = []
    cursor = 0
    while True:
        page = run.diff(engine, name, from_seq=cursor, limit=1000)
        found += [record.data for record in page.records]
        cursor = page.next_from_seq
        if page.caught_up:
            return found


def drain(engine: Engine, clock: ManualClock) -> Counter[bytes]:
    """Deliver everything: parked jobs are redriven, leases and delays run out, each job is claimed and acked."""
    found: Counter[bytes] = Counter()
    for name, topic in sorted(engine.state.topics.items()):
        if topic.queue is None:
            continue
        clock.advance(DAY_MS)
        while True:
            claim = run.claim(engine, name, node="drain", max_count=1000).reply
            if topic.queue.parked:
                run.redrive(engine, name, limit=100_000)
            elif not claim.jobs:
                break
            if not claim.jobs:
                continue
            found.update(job.data for job in claim.jobs)
            assert not run.ack(engine, name, node="drain", seqs=claim.seqs).reply.skipped
            engine.sync()
        assert not topic.count, f"{topic.count} jobs of {name} are neither claimable nor acked"
    engine.sync()
    for name, topic in sorted(engine.state.topics.items()):
        if topic.queue is None:
            found.update(records(engine, name))
    return found


# Judging


def survive(disk: SimDisk, ledger: Ledger, clock: ManualClock, *, power_lost: bool, copies: int = 1) -> None:
    """Recover on a disk that came up and hold it against the ledger; then lose power again and look once more.

    ``copies`` is in how many topics a record may be at once: more than one only where a router or a parked copy is.
    """
    ledger = deepcopy(ledger)
    ledger.close_books(power_lost=power_lost)
    session = Session(disk, ledger, clock)
    engine = session.engine
    check_fold(engine)
    check_leases(events_of(engine))
    for topic in list(engine.state.topics.values()):
        if topic.queue is not None:
            letters_found = set(records(engine, topic.name))
            assert not letters_found & ledger.settled, "an acknowledged ack is undone"
    found = drain(engine, clock)
    lost = ledger.promised - ledger.released - set(found)
    assert not lost, f"acknowledged and gone: {sorted(lost)[:5]}"
    assert set(found) <= ledger.sent, "something appeared that nobody sent"
    doubled = [payload for payload, count in found.items() if count > copies]
    assert not doubled, f"in two places at once: {doubled[:5]}"
    check_fold(engine)
    check_leases(events_of(engine))
    engine.sync()
    again = Session(disk.crash("lost"), Ledger(), clock)
    assert all(not topic.count for topic in again.engine.state.by_id.values() if topic.queue is not None)
    check_fold(again.engine)
