"""A broker whose records are of the largest size that is allowed, stepped turn by turn and measured in each.

The largest record is small here, so that a world takes no time, and every budget is one of a few records. A turn of the
loop reads and writes what a step of each kind may, once: a command or a step of one, a router, trimming.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import tenure.broker.records as records_module
from tenure import Broker, Overloaded, Record, Settings
from tenure.contract.records import Stored
from tenure.contract.replies import Grant
from tenure.core.state.topic import Topic
from tenure.testing import SimDisk
from tests.lives.loop import LifeClock, TurnLoop

__all__ = ["LARGEST", "World", "longest_prefix", "measured"]

T = TypeVar("T")

LARGEST = 16_384
"""`record_bytes_max`: ``data`` and ``meta`` of a record."""
STAMP = 2_048
"""What a copy weighs more than its record, with room to spare: provenance, hops, names."""
APPEND_MAX = 2 * LARGEST + STAMP
SMALL = 40
#: What one turn writes beside records: events, names, heads of segments.
OVERHEAD = 24_000


class MeasuredDisk(SimDisk):
    """Counts the bytes that are read and written."""

    read_bytes = written_bytes = 0

    def pread(self, file: int, count: int, offset: int) -> bytes:
        data = super().pread(file, count, offset)
        self.read_bytes += len(data)
        return data

    def pwrite(self, file: int, data: bytes, offset: int) -> int:
        done = super().pwrite(file, data, offset)
        self.written_bytes += done
        return done


@contextmanager
def measured() -> Iterator[None]:
    """Have nothing kept in memory that a step would have to read, and sets of topics in an order of their own."""
    saved = records_module.LARGE_BYTES, records_module._YOUNG_BYTES, Topic.__hash__
    records_module.LARGE_BYTES, records_module._YOUNG_BYTES = LARGEST // 2, 700
    Topic.__hash__ = _hash  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        records_module.LARGE_BYTES, records_module._YOUNG_BYTES = saved[:2]
        Topic.__hash__ = saved[2]  # type: ignore[method-assign]


def _hash(topic: Topic) -> int:
    return topic.id


def longest_prefix(weights: Sequence[tuple[int, int]], bytes_max: int) -> list[int]:
    """The rule, one record after the other: the seqs of the longest prefix that fits, and at least the first."""
    taken: list[int] = []
    for seq, weight in weights:
        bytes_max -= weight
        if taken and bytes_max < 0:
            break
        taken.append(seq)
    return taken


def random_settings(random: Random) -> Settings:
    """Budgets of less than a record, of exactly two, and of three."""
    few = (1, 2 * LARGEST, 3 * LARGEST + 500)
    return Settings(
        record_bytes_max=LARGEST,
        append_bytes_max=APPEND_MAX,
        meta_bytes_max=2_000,
        claim_bytes_max=random.choice(few),
        step_bytes_max=random.choice(few),
        diff_bytes_max=random.choice(few),
        router_step_bytes=random.choice(few),
        router_pending_bytes_max=random.choice((1, 1 << 30)),
        segment_bytes=random.choice((4, 16)) * LARGEST,
        trim_step_bytes=LARGEST,
        spare_segments=1,
        turn_ms_max=0,
        frame_cache_bytes=1,
    )


class World:
    """One broker, and the measure of its turns. ``limit_*`` is what a turn may read and write beside what it is given.

    ``waiting`` is how many callers wait while a turn runs: each of them may be served in it.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.settings = random_settings(self.random)
        self.clock = LifeClock()
        self.disk = MeasuredDisk(seed)
        self.loop = TurnLoop(self.clock, lambda: (0, True))
        self.waiting = 0
        self.given_bytes = 0
        self.turns = 0
        self.most_read = self.most_written = 0
        self.is_measured = False
        #: What one step may copy to a topic.
        self.copies_max: dict[str, int] = {}
        self.broker: Broker = self.do(lambda: Broker.open(self.disk, clock=self.clock, settings=self.settings))
        self.is_measured = True

    # Turns

    def _limits(self) -> tuple[int, int]:
        """Return how much a turn may read and write, beside what callers give."""
        s = self.settings
        copied, forwarded, trimmed = s.step_bytes_max, s.router_step_bytes, s.trim_step_bytes + APPEND_MAX
        answered = max(s.claim_bytes_max, s.diff_bytes_max)
        shares = 1 + self.waiting
        read = shares * (read_for(answered) + read_for(copied)) + read_for(forwarded) + read_for(trimmed)
        written = shares * at_least_one(copied) + at_least_one(forwarded) + trimmed
        return read + OVERHEAD, written + OVERHEAD

    def turn(self) -> None:
        """Run one turn, and hold what it read, wrote and copied against what its steps may."""
        disk, self.turns = self.disk, self.turns + 1
        disk.read_bytes = disk.written_bytes = 0
        heads = {name: topic.head_seq for name, topic in self._topics().items() if name in self.copies_max}
        self.loop.turn()
        self.most_read, self.most_written = (
            max(self.most_read, disk.read_bytes),
            max(self.most_written, disk.written_bytes),
        )
        if not self.is_measured:
            return
        read_max, written_max = self._limits()
        given, self.given_bytes = self.given_bytes, 0
        assert disk.read_bytes <= read_max, f"a turn read {disk.read_bytes} bytes, its steps may {read_max}"
        wrote = disk.written_bytes - given
        assert wrote <= written_max, f"a turn wrote {wrote} bytes, its steps may {written_max}"
        if not given:
            self._check_copies(heads)

    def _topics(self) -> dict[str, Topic]:
        return self.broker._engine.state.topics if self.is_measured else {}

    def _check_copies(self, heads: dict[str, int]) -> None:
        """What was copied to each topic in this turn is one record, or what one step may."""
        for name, head in heads.items():
            topic = self._topics().get(name)
            if topic is None or topic.head_seq <= head + 1:
                continue
            weights = [weight for _, weight in self.weights(name, range(head + 1, topic.head_seq + 1))]
            size, bytes_max = sum(weights) - len(weights) * STAMP, self.copies_max[name]
            assert size <= bytes_max, f"a turn copied {size} bytes to {name}, a step may {bytes_max}"

    def settle(self) -> None:
        """Run turns until there is nothing to do; there must be an end of it."""
        before = self.turns
        while not self.loop.is_idle:
            assert self.turns - before < 2_000, "the broker goes on and on"
            self.turn()
        assert not self.loop.escaped, self.loop.escaped

    def do(self, call: Callable[[], Awaitable[T]], *, reads_max: int | None = None) -> T:
        """Call something, and run until its answer is there; no turn of it reads more than ``reads_max``."""
        self.most_read = 0

        async def wait() -> T:
            return await call()

        task, before = self.loop.create_task(wait()), self.turns
        while not task.done():
            assert self.turns - before < 2_000, "no answer comes"
            if self.loop.is_idle:
                self.clock.advance(1)
            self.turn()
        self.settle()
        assert reads_max is None or self.most_read <= reads_max, f"read {self.most_read} in a turn, not {reads_max}"
        return task.result()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.settle()

    def close(self) -> None:
        self.is_measured = False
        self.do(self.broker.close)
        self.loop.die()

    # Commands, and what their answers must be

    def record(self, *, may_be_small: bool = True) -> Record:
        """Return a record, most of the time as large as may be."""
        random = self.random
        if may_be_small and random.random() < 0.25:
            return Record(data=b"x" * random.randrange(SMALL))
        meta = b'{"m":"%s"}' % (b"y" * random.choice((0, 1_000))) if random.random() < 0.3 else None
        return Record(data=b"x" * (LARGEST - len(meta or b"")), meta=meta)

    def produce(self, topic: str, count: int, *, may_be_small: bool = True, **options: Any) -> bool:
        """Append some records; return whether they were taken."""
        records = [self.record(may_be_small=may_be_small) for _ in range(count)]
        while sum(len(record.data) + len(record.meta or b"") for record in records) > 2 * LARGEST:
            records.pop()
        self.given_bytes += sum(len(record.data) + len(record.meta or b"") + STAMP for record in records)
        try:
            self.do(lambda: self.broker.produce(topic, records, **options))
        except Overloaded:
            return False
        return True

    def weights(self, topic: str, seqs: Sequence[int]) -> list[tuple[int, int]]:
        """Return what live records weigh in the log."""
        engine = self.broker._engine
        found, wanted = engine.state.topics[topic], set(seqs)
        return [pair for pair in engine.reader.sizes(found, found.floor, found.head_seq + 1) if pair[0] in wanted]

    def claim(self, topic: str, *, node: str, max_count: int, **options: Any) -> Grant:
        """Claim; the answer is the longest prefix of what is ready, if nothing is buried first and no suspect waits."""
        ready = self.broker.jobs(topic, state="ready", limit=1_000).items
        limit, weights = self.broker.topic(topic).config.max_deliveries, self.weights(topic, [row.seq for row in ready])
        grant = self.do(lambda: self.broker.claim(topic, node=node, max_count=max_count, **options))
        self.check_answer(grant.jobs, self.settings.claim_bytes_max)
        if not any(row.lost or row.deliveries >= limit > 0 for row in ready):
            expected = longest_prefix(weights[:max_count], self.settings.claim_bytes_max)
            assert grant.seqs == expected, f"{grant.seqs} of {weights} within {self.settings.claim_bytes_max}"
        return grant

    def read(self, topic: str, *, from_seq: int = 0, node: str | None = None) -> tuple[list[Stored], int]:
        """Read once; without records that are left out, the answer is the longest prefix of what is there."""
        reads_max = read_for(self.settings.diff_bytes_max) + read_for(0) + OVERHEAD  # and the record after the last
        if node is not None:
            reads_max += read_for(self.settings.step_bytes_max)
        found = self.do(lambda: self.broker.diff(topic, from_seq=from_seq, limit=1_000, node=node), reads_max=reads_max)
        self.check_answer(found.records, self.settings.diff_bytes_max)
        assert found.next_from_seq > from_seq or found.caught_up, "a read that gets nowhere"
        return found.records, found.next_from_seq

    def read_all(self, topic: str, *, node: str | None = None) -> list[int]:
        """Read on until the end; every answer but the last has no room for the record after it."""
        answers, from_seq = list[list[Stored]](), 0
        while from_seq < self.broker.topic(topic).head_seq:
            records, from_seq = self.read(topic, from_seq=from_seq, node=node)
            answers.append(records)
        if node is None:
            for records, following in pairwise(answers):
                if records and following:
                    size = sum(map(_answered, records)) + _answered(following[0])
                    assert size > self.settings.diff_bytes_max, "an answer that had room for one more"
        return [record.seq for records in answers for record in records]

    def check_answer(self, records: Sequence[Stored], bytes_max: int) -> None:
        """No answer is above its budget, but for a record that is so alone."""
        size = sum(map(_answered, records))
        assert len(records) <= 1 or size <= bytes_max, f"an answer of {size} bytes, the budget is {bytes_max}"


def at_least_one(budget: int) -> int:
    return max(budget, LARGEST + STAMP)


def read_for(budget: int) -> int:
    """Return what is read for a prefix of so many bytes: each record, and the append of two to verify it."""
    return 3 * at_least_one(budget) + APPEND_MAX


def _answered(record: Stored) -> int:
    return len(record.data) + len(record.meta or b"")
