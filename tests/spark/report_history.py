"""A random life of several queues on a real broker, as exported entries, and the report's figures in plain Python."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec

from tenure import Broker, TenureError
from tenure.broker.serving.streams import Subscription
from tenure.contract.replies import Lifecycle
from tenure.core.state.ranges import each
from tenure.export.rows import Exported, decode_row, encode_row
from tenure.testing import ManualClock, memory_broker

__all__ = ["QUEUES", "Counts", "Step", "entries_of", "kind_of", "random_history", "steps_in"]

QUEUES = {
    "moved": {"type": "queue", "lease_ms": 1_000, "max_deliveries": 2, "dead_letter": "dead"},
    "parked": {"type": "queue", "lease_ms": 3_000, "max_deliveries": 3, "dlq_strategy": "block"},
    "slow": {"type": "queue", "lease_ms": 60_000, "retry_backoff": {"min_ms": 500}},
}
NODES = ("ann", "bob", "cat")
REASONS = (None, "busy", "<script>alert(1)</script>")
GIVEN_BACK = ("released", "returned", "expired", "lost")


def random_history(seed: int, *, steps: int) -> list[Exported]:
    """The history of a broker in memory, as an exporter would export it."""
    return [decode_row(entry) for entry in entries_of(asyncio.run(_history(seed, steps=steps)))]


def entries_of(rows: list[Exported]) -> list[bytes]:
    """The rows as the entries of a buffer."""
    return [msgspec.json.encode(row) for row in rows]


async def _history(seed: int, *, steps: int) -> list[Exported]:
    random, clock = Random(seed), ManualClock()
    entries: list[bytes] = []
    async with memory_broker(clock) as broker:
        for name, config in QUEUES.items():
            await broker.put_topic(name, config)
        await broker.put_topic("journal", {"type": "log"})
        events = broker.events()
        for number in range(steps):
            with suppress(TenureError):  # refused commands are ignored
                await _step(broker, clock, random)
            entries += [encode_row(row, batch=number, n=n) for n, row in enumerate(await _told(events))]
    return [decode_row(entry) for entry in entries]


async def _told(events: Subscription) -> list[Lifecycle]:
    """Return the rows so far; the broker hands rows on in its next turn."""
    await asyncio.sleep(0)
    return events.drain()


async def _step(broker: Broker, clock: ManualClock, random: Random) -> None:
    name, node = random.choice(list(QUEUES)), random.choice(NODES)
    held = [job.seq for job in broker.jobs(name, state="in_flight", limit=100).items]
    some = sorted(random.sample(held, min(len(held), random.randint(1, 12))))
    match random.randrange(10):
        case 0 | 1:
            await broker.produce(name, [b'"x"'] * random.randint(1, 20))
        case 2 | 3:
            isolate = random.random() < 0.3
            suspects = isolate and random.random() < 0.3
            claimed = await broker.claim(
                name, node=node, max_count=random.randint(1, 12), isolate=isolate, suspects=suspects
            )
            if isolate and claimed.lease_id is not None and random.random() < 0.3:
                await broker.begin(name, node=node, seq=claimed.jobs[0].seq, lease_id=claimed.lease_id)
        case 4 | 5 if some:
            await broker.ack(name, node=node, seqs=some)
        case 6 if some:
            dead = random.random() < 0.2
            await broker.nack(name, node=node, seqs=some, reason=random.choice(REASONS), dead=dead)
        case 7 if some:
            await broker.extend(name, node=node, seqs=some, lease_ms=5_000)
        case 9 if some and random.random() < 0.5:
            await broker.return_jobs(name, node=node, seqs=some, reason=random.choice(REASONS))
        case 9 if random.random() < 0.3:
            await broker.end_node(name, node=node, seqs=some, exit_code=random.choice([None, 137]))
        case 8 if random.random() < 0.3:
            await broker.redrive(random.choice(["dead", "parked"]))
            await broker.produce("journal", [b"1"])
        case _:
            clock.advance(random.choice([1, 20, 20, 300, 300, 1_500, 9_000]))


class Step(NamedTuple):
    """One event of one job, with what came right before."""

    queue: str
    seq: int
    life: int
    row: Exported
    before: Exported | None
    began: Exported | None
    deliveries: int


def steps_in(rows: list[Exported]) -> list[Step]:
    """The ways of all jobs, in the order of the log."""
    before: dict[tuple[str, int], Exported] = {}
    lives: Counter[tuple[str, int]] = Counter()
    began: dict[tuple[str, int], Exported] = {}
    claims: Counter[tuple[str, int]] = Counter()
    found = []
    for row in rows:
        if row.event in ("gap", "extended", "begun"):
            continue
        for seq in each(row.runs):
            job = row.topic, seq
            if kind_of(row) in ("produced", "moved_in") or (row.event == "redriven" and row.dest == row.topic):
                lives[job] += 1
                began[job] = row
                claims[job] = 0
            claims[job] += row.event == "claimed"
            found.append(Step(*job, lives[job], row, before.get(job), began.get(job), claims[job]))
            before[job] = row
    return found


class Counts:
    """The figures of one queue, or of all where ``queue`` is None."""

    def __init__(self, rows: list[Exported], queue: str | None = None) -> None:
        rows = [row for row in rows if queue in (None, row.topic) and row.event != "gap"]
        steps = steps_in(rows)
        self.jobs: Counter[str] = Counter()
        for row in rows:
            if row.event != "begun":  # it changes nothing
                self.jobs[kind_of(row)] += sum(row.runs[1::2])
        last = {(step.queue, step.seq, step.life): step for step in steps}
        self.ends = list(last.values())
        self.durations: dict[str, list[int]] = defaultdict(list)
        self.returned: Counter[tuple[str, str]] = Counter()
        self.redelivered: Counter[tuple[str, str]] = Counter()
        self.acked_by: Counter[str] = Counter()
        self.held_ms_by: Counter[str] = Counter()
        holder: dict[tuple[str, int], str | None] = {}
        for step in steps:
            self._add(step, holder)

    def _add(self, step: Step, holder: dict[tuple[str, int], str | None]) -> None:
        row, before, job = step.row, step.before, (step.queue, step.seq)
        if row.event == "claimed":
            holder[job] = row.node
            self.acked_by[str(row.node)] += 0
            if before is not None and before.event in ("produced", "redriven"):
                self.durations["wait"].append(row.ts - before.ts)
            elif before is not None and before.event in GIVEN_BACK:
                self.durations["wait_again"].append(row.ts - before.ts)
                self.redelivered[before.event, why(before)] += 1
        if row.event in GIVEN_BACK:
            self.returned[row.event, why(row)] += 1
        if row.event in ("acked", "dead_lettered", *GIVEN_BACK) and before and before.event == "claimed":
            self.durations["processing" if row.event == "acked" else "returned"].append(row.ts - before.ts)
            self.held_ms_by[str(holder[job])] += row.ts - before.ts
            self.returned["dead_lettered", why(row)] += row.event == "dead_lettered"
        if row.event == "acked":
            self.acked_by[str(holder.get(job) or row.node)] += 1
            if step.began is not None:
                self.durations["life"].append(row.ts - step.began.ts)


def kind_of(row: Exported) -> str:
    """What happened, in the words of the report."""
    return "moved_in" if row.origin is not None else row.event


def why(row: Exported) -> str:
    """How a delivery ended, in the words of the report."""
    match row.event:
        case "expired":
            return "lease ran out"
        case "lost" | "returned":
            how = "its worker was lost" if row.event == "lost" else "returned untried"
            return how if row.reason is None else f"{how}: {row.reason}"
        case "released":
            return row.reason or "nack"
        case _:
            return row.reason or ""
