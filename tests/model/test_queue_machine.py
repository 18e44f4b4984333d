"""The queue against a naive model of it, through expiry, clock jumps, crashes, checkpoints and trimming."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import asdict, replace

from tenure import Record
from tenure.contract.records import lease_id
from tenure.contract.replies import Grant
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.errors import Conflict, Invalid, LeaseLost, Overloaded
from tenure.settings import Settings
from tenure.testing import SimDisk
from tests.kit import run
from tests.model.machine import EngineMachine
from tests.model.naive_queue import Asked, Job, NaiveQueue, Refused

LOSSES_MAX = 3
RETRY_MS, RETRY_MS_MAX = 100, 300
NODES = st.sampled_from(["n1", "n2"])
TAGS = st.sampled_from([None, None, "a", "ab", "b"])
MATCHES = st.sampled_from(["a", "ab", ["tag", "Eq", "b"], ["tag", "Glob", "a*"], ["tag", "Glob", "*"]])
LEASE_MS = st.sampled_from([100, 500, 1_000, 10_000])
DELAYS = st.sampled_from([0, 0, 1, 100, 1_000, 30_000])
BACKOFF = st.sampled_from(
    [
        None,
        {"min_ms": 100, "max_ms": 1_000, "factor": 2.0, "jitter": False},
        {"min_ms": 50, "max_ms": 400, "factor": 3.0, "jitter": True},
    ]
)
CONFIGS = st.fixed_dictionaries(
    {
        "type": st.just("queue"),
        "lease_ms": LEASE_MS,
        "durability": st.sampled_from(["disk", "disk", "fsync"]),
        "max_deliveries": st.sampled_from([0, 1, 2, 3]),
        "dead_letter": st.sampled_from([None, "dead", "dead"]),
        "dlq_strategy": st.sampled_from(["skip", "block", "block_and_dlq"]),
        "max_in_flight": st.sampled_from([0, 0, 4]),
        "max_ack_holes": st.sampled_from([0, 0, 1, 2]),
        "retry_backoff": BACKOFF,
        "cap_records": st.sampled_from([0, 0, 0, 6]),
        "discard": st.sampled_from(["old", "reject"]),
    }
)


@dataclass(frozen=True)
class Wanted:
    """A record to produce: ``when`` is a delay, or a wall time relative to now."""

    pad: int
    tag: str | None
    delay: int
    at: int | None


RECORDS = st.builds(
    Wanted,
    pad=st.sampled_from([0, 10, 300, 700]),
    tag=TAGS,
    delay=st.sampled_from([0, 0, 0, 100, 5_000]),
    at=st.sampled_from([None, None, None, None, -1_000, 500, 5_000]),
)

CLAIM: dict[str, Any] = {
    "node": NODES,
    "max_count": st.integers(1, 5),
    "lease_ms": st.none() | LEASE_MS,
    "claim_id": st.sampled_from([None, None, "c1", "c2"]),
    "auto_ack": st.sampled_from([False, False, False, True]),
    "isolate": st.booleans(),
    "group": st.sampled_from([None, None, "g1", "g2"]),
    "suspects": st.sampled_from([False, False, True]),
}
SETTLE: dict[str, Any] = {
    "data": st.data(),
    "what": st.sampled_from(["ack", "ack", "nack", "nack", "dead", "extend", "extend", "disconnect", "return", "lose"]),
    "by": st.sampled_from(["seqs", "seqs", "lease", "lease and seqs", "lease_ids"]),
    "strict": st.sampled_from([False, False, True]),
    "delay": st.none() | DELAYS,
    "lease_ms": LEASE_MS,
}


@dataclass
class World:
    """The queue, and the topic its dead letters go to once there is one."""

    queue: NaiveQueue = field(default_factory=NaiveQueue)
    dead: NaiveQueue | None = None
    #: How often the log was opened.
    epoch: int = 0

    def tick(self, now: int, wall: int) -> None:
        self.queue.tick(now, wall, self.epoch)

    def restart(self) -> None:
        for queue in (self.queue, self.dead):
            if queue is not None:
                queue.visible = queue.head

    def seen(self) -> None:
        """Where nothing waits for a sync, everything can be seen."""
        for queue in (self.queue, self.dead):
            if queue is not None and queue.setting("durability") != "fsync":
                queue.visible = queue.head

    def dead_now(self) -> int:
        """Jobs that lie dead: parked ones, and letters where a letter is all that is left of its job."""
        letters = self.queue.setting("dead_letter") if self.queue.setting("dlq_strategy") in (None, "skip") else None
        return len(self.queue.in_state("parked")) + (len(self.dead.jobs) if letters and self.dead is not None else 0)

    def dead_letter(self, jobs: list[Job], *, reasons: dict[int, str], now: int) -> None:
        """Apply the queue's strategy, to each job for its own reason."""
        queue = self.queue
        strategy = queue.setting("dlq_strategy")
        seqs = {job.seq for job in jobs}
        queue.dead_lettered += len(seqs)
        if strategy == "block" or queue.setting("dead_letter") is None:
            if strategy == "skip":
                queue.remove(list(seqs))
            else:
                queue.park(reasons, now=now)
            return
        if self.dead is None:
            self.dead = NaiveQueue({"durability": queue.setting("durability")})
        moved = sorted(jobs, key=lambda job: job.seq)[: self.dead.room_for(len(jobs))]
        for job in moved:
            origin = ("q", max(job.tries, 1), reasons[job.seq], 0 if job.lease else job.lost)
            job.copy = Job(self.dead.head + 1, job.data, job.tag, origin=origin)
            self.dead.append(job.copy)
        if strategy == "skip":
            queue.remove([job.seq for job in moved])
            reasons = {seq: reason for seq, reason in reasons.items() if seq not in {job.seq for job in moved}}
        queue.park(reasons, now=now)
        self.dead.evict()

    def unpark(self, job: Job, *, reset: bool) -> None:
        """A parked job may be claimed again, and its copy among the dead letters is gone with it."""
        if self.dead is not None and job.copy is not None and self.dead.jobs.get(job.copy.seq) is job.copy:
            self.dead.remove([job.copy.seq])
        job.parked = job.copy = None
        if reset:
            job.deliveries = job.spared = job.lost_begun = 0
            job.lost = min(job.lost, 2)


class QueueMachine(EngineMachine):
    """Everything a worker, a producer and an operator can do to one queue."""

    model: World

    def __init__(self) -> None:
        super().__init__()
        self.model = World()
        self.made = 0
        self.leases: set[int] = set()

    def make_settings(self, segment_bytes: int) -> Settings:
        """Suspects wait for ever for a claim that asks for them, or not at all."""
        wait_ms = 0 if segment_bytes == 1024 else 1 << 50
        settings = super().make_settings(segment_bytes)
        losses = {"suspects_wait_ms": wait_ms, "losses_max": LOSSES_MAX}
        return replace(settings, begun_retry_ms=RETRY_MS, begun_retry_ms_max=RETRY_MS_MAX, **losses)

    def log_ended(self, log_ms: int) -> None:
        self.model.queue.unsay(log_ms)

    def reopen(self, world: SimDisk, *, from_checkpoint: bool) -> None:
        self.disk = world
        self.engine = self.opened(world, from_checkpoint=from_checkpoint)
        self.model.epoch = self.engine.state.epoch
        queue = self.engine.state.topics["q"].queue
        assert queue is not None
        self.model.queue.borrowed = dict(queue.suspects.borrowed)  # as much of it as the log still says
        self.model.restart()
        with self.step():
            self.sync_now()

    def set_up(self) -> None:
        """Begin with jobs in flight: most of what can go wrong needs some, and few random steps lead there."""
        self.model.epoch = self.engine.state.epoch
        self.configure_queue({"type": "queue", "lease_ms": 1_000, "max_deliveries": 2, "dead_letter": "dead"})
        self.produce([Wanted(0, tag, 0, None) for tag in (None, "a", "b") * 3], False, None)
        for node, claim_id in (("n1", "c1"), ("n2", None)):
            self.claim_with(node=node, max_count=4, lease_ms=10_000, claim_id=claim_id, isolate=claim_id is None)

    @rule(ms=st.sampled_from([1, 100, 101, 1_000, 1_001, 5_000, 60_000]))
    def advance(self, ms: int) -> None:
        self.let_pass(ms)

    def configure_queue(self, config: dict[str, Any]) -> None:
        run.put_topic(self.engine, "q", config)
        self.model.queue.config = {"dlq_strategy": "skip", **config}
        self.model.seen()
        self.model.queue.evict()

    @rule(name=st.sampled_from(["q", "q", "dead"]), config=CONFIGS, cap=st.sampled_from([0, 2]))
    def configure(self, name: str, config: dict[str, Any], cap: int) -> None:
        with self.step():
            if name == "q":
                self.configure_queue(config)
                if config["durability"] == "fsync":  # what was seen stays seen, where it is synced
                    self.sync_now()
            else:
                config = {"cap_records": cap, "discard": "reject"}
                run.put_topic(self.engine, "dead", config)
                self.model.dead = self.model.dead or NaiveQueue()
                self.model.dead.config = config
                self.model.seen()

    def delete_topic(self, name: str) -> None:
        run.delete_topic(self.engine, name)
        if name == "dead":
            self.model.dead = None
        else:
            self.model.queue = NaiveQueue()
            self.configure_queue({"type": "queue", "max_deliveries": 2, "dead_letter": "dead"})

    # Producing

    @rule(
        wanted=st.lists(RECORDS, min_size=1, max_size=5),
        bare=st.booleans(),
        key=st.sampled_from([None, None, None, "k1", "k2"]),
    )
    def produce(self, wanted: list[Wanted], bare: bool, key: str | None) -> None:
        with self.step() as now:
            queue = self.model.queue
            if key is not None:
                wanted, bare = wanted[:1], False
            jobs, records = self.make(wanted, now, bare=bare, key=key)
            living = queue.unique(key) if key is not None else None
            if living is None and queue.is_full_for(len(jobs)):
                self.refused("topic_full", run.produce, "q", records)
                return
            reply = run.produce(self.engine, "q", records).reply
            assert reply.deduped == (living is not None)
            assert list(reply.seqs) == ([living] if living is not None else [job.seq for job in jobs])
            if living is None:
                for job in jobs:
                    queue.append(job)
                self.model.seen()
                queue.evict()

    def make(
        self, wanted: list[Wanted], now: int, *, bare: bool, key: str | None = None
    ) -> tuple[list[Job], list[bytes | Record]]:
        jobs: list[Job] = []
        records: list[bytes | Record] = []
        for want in wanted:
            self.made += 1
            data = b'"job-%d%s"' % (self.made, b"." * want.pad)
            seq = self.model.queue.head + len(jobs) + 1
            if bare:
                jobs.append(Job(seq, data))
                records.append(data)
                continue
            wall = now + self.engine.state.wall_offset_ms
            deliver_at = None if want.at is None else wall + want.at
            job = Job(seq, data, want.tag, key)
            if deliver_at is not None:
                job.wall_due = deliver_at if deliver_at > wall else 0
            elif want.delay:
                job.due = now + want.delay
            jobs.append(job)
            records.append(Record(data=data, tag=want.tag, delay_ms=want.delay, deliver_at=deliver_at, unique_key=key))
        return jobs, records

    def refused(self, code: str, command: Any, *args: Any, **options: Any) -> None:
        with pytest.raises(Overloaded) as caught:
            command(self.engine, *args, **options)
        assert caught.value.code == code

    # Claiming

    @rule(**CLAIM)
    def claim(self, **options: Any) -> None:
        self.claim_with(**options)

    @rule(**CLAIM)
    def claim_too(self, **options: Any) -> None:
        """The same again: rules are drawn alike, and this is what a queue is for."""
        self.claim_with(**options)

    def claim_with(
        self,
        *,
        node: str,
        max_count: int,
        lease_ms: int | None,
        claim_id: str | None,
        auto_ack: bool = False,
        isolate: bool = False,
        group: str | None = None,
        suspects: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "node": node,
            "max_count": max_count,
            "lease_ms": lease_ms,
            "claim_id": claim_id,
            "auto_ack": auto_ack,
            "isolate": isolate or suspects,
            "group": group,
            "suspects": suspects,
        }
        isolates = options["isolate"] and not auto_ack
        with self.step() as now:
            queue = self.model.queue
            if claim_id in queue.claims:
                self.claim_again(queue.claims[claim_id], options)
                return
            try:
                kind = group or node if isolates else None
                asked = Asked(max_count, LOSSES_MAX, kind, suspects, self.settings.suspects_wait_ms == 0)
                jobs = self.choose(asked, now)
            except Refused as refused:
                self.refused(refused.args[0], run.claim, "q", **options)
                return
            reply = run.claim(self.engine, "q", **options).reply
            deadline = now + (lease_ms or queue.setting("lease_ms") or 30_000)
            assert reply.seqs == [job.seq for job in jobs]
            assert [job.data for job in reply.jobs] == [job.data for job in jobs]
            number = self.engine.state.next_lease - 1 if auto_ack else reply.lease
            taken = next((job.seq for job in jobs if job.is_suspect), None)
            if isolates and not suspects and taken is not None:
                queue.borrowed[group or node] = taken
            epoch = self.model.epoch
            times = {"now": now, "deadline": deadline, "epoch": epoch}
            queue.hand_out(jobs, lease=number, node=node, claim_id=claim_id, group=asked.group, **times)
            assert [reply.deliveries(job.seq) for job in jobs] == [job.deliveries for job in jobs]
            if not auto_ack:
                self.check_pasts(reply, jobs, isolates=isolates)
            if jobs:
                assert number not in self.leases, "a lease id is never reused"
                self.leases.add(number)
            if auto_ack:
                queue.ack({job.seq for job in jobs})
            elif jobs:
                assert reply.deadline == deadline + self.engine.state.wall_offset_ms
            assert reply.ready == len(queue.ready())

    def check_pasts(self, reply: Grant, jobs: list[Job], *, isolates: bool) -> None:
        """What a claim says of jobs that were returned or lost, and of suspects that wait."""
        assert reply.tries == {job.seq: job.tries for job in jobs if job.spared}
        assert reply.lost == {job.seq: job.lost for job in jobs if job.lost}
        assert reply.suspects == (len(self.model.queue.suspects()) if isolates else 0)

    def choose(self, asked: Asked, now: int) -> list[Job]:
        """What the model hands out. Poisoned and worn jobs leave on the way, and then the claim is not refused any
        more.
        """
        chosen = self.model.queue.choose(asked)
        if not chosen.poisoned and not chosen.worn:
            return chosen.jobs
        if chosen.poisoned:
            reasons = {job.seq: self.why_spent(job, now) for job in chosen.poisoned}
            self.model.dead_letter(chosen.poisoned, reasons=reasons, now=now)
        why = "its worker was lost {} times before it began this job"
        self.model.queue.dead_lettered += len(chosen.worn)
        self.model.queue.park({job.seq: why.format(job.lost) for job in chosen.worn}, now=now)
        self.model.seen()
        with suppress(Refused):
            return self.model.queue.choose(asked).jobs
        return []

    def why_spent(self, job: Job, now: int) -> str:
        """The workers that were lost with it, or the last reason of its story; where little may be kept, of what the
        engine still has of it.
        """
        rows = [(end, node, reason) for _, node, _, _, end, reason in job.story]
        if self.is_cramped:
            topic, queue = self.engine.state.queue("q")
            self.engine.state.pass_time(topic, now)
            rows = [(each.end, each.node, each.reason) for each in queue.deliveries_ended.get(job.seq, [])]
        if not job.lost_begun:
            told = [reason for end, _, reason in rows if reason is not None and end not in ("lost", "returned")]
            return (told or ["max_deliveries"])[-1]
        times = "once" if job.lost_begun == 1 else f"{job.lost_begun} times"
        last = [", ".join(filter(None, (node, reason))) for end, node, reason in rows if end == "lost"][-1:]
        return f"its worker was lost {times} while running it{''.join(f' (last: {who})' for who in last)}"

    def claim_again(self, lease: int, options: dict[str, Any]) -> None:
        jobs = sorted((job for job in self.model.queue.held() if job.lease == lease), key=lambda job: job.seq)
        if jobs[0].node != options["node"]:
            with pytest.raises(Invalid):
                run.claim(self.engine, "q", **options)
            return
        reply = run.claim(self.engine, "q", **options).reply
        assert reply.lease == lease
        assert reply.seqs == [job.seq for job in jobs]
        assert [reply.deliveries(job.seq) for job in jobs] == [job.deliveries for job in jobs]
        assert reply.deadline - self.engine.state.wall_offset_ms == min(job.deadline for job in jobs)

    # Settling

    @precondition(lambda self: self.model.queue.held())
    @rule(**SETTLE)
    def settle(self, **options: Any) -> None:
        self.settle_with(**options)

    @precondition(lambda self: self.model.queue.held())
    @rule(**SETTLE)
    def settle_too(self, **options: Any) -> None:
        self.settle_with(**options)

    @precondition(lambda self: self.model.queue.held())
    @rule(data=st.data(), lease_ms=LEASE_MS, backwards=st.booleans(), acked=st.booleans())
    def extend_one_by_one(self, data: st.DataObject, lease_ms: int, backwards: bool, acked: bool) -> None:
        """A worker that extends each of its jobs by itself, and perhaps finishes one on the way."""
        queue = self.model.queue
        lease = data.draw(st.sampled_from(queue.held()), label="job").lease
        with self.step() as now:
            jobs = sorted((job for job in queue.held() if job.lease == lease), key=lambda job: job.seq)
            for job in reversed(jobs) if backwards else jobs:
                options = {"node": job.node, "seqs": [job.seq], "lease_id": lease_id(lease)}
                if acked and job is jobs[len(jobs) // 2]:
                    self.end("ack", {job.seq}, [], options, now=now, delay=None)
                else:
                    self.extend({job.seq}, [], options, now=now, lease_ms=lease_ms + job.seq)

    def settle_with(
        self, *, data: st.DataObject, what: str, by: str, strict: bool, delay: int | None, lease_ms: int
    ) -> None:
        queue = self.model.queue
        held = queue.held()
        job = data.draw(st.sampled_from(held), label="job")
        if what in ("disconnect", "lose"):
            self.let_go(job.lease, is_lost=what == "lose")
            return
        node = data.draw(st.sampled_from([job.node, job.node, job.node, "n1", "n2"]), label="node")
        near = sorted({other.seq for other in held} | set(queue.jobs) | {queue.head + 1, 1})
        seqs = (
            data.draw(st.lists(st.sampled_from(near), min_size=1, max_size=5), label="seqs") if by != "lease" else None
        )
        known = {other.lease for other in held}
        fences = data.draw(st.lists(st.sampled_from([*sorted(known), 7]), min_size=5, max_size=5), label="fences")
        lease = job.lease if by.startswith("lease ") or by == "lease" else None
        lease_ids = fences[: len(seqs)] if by == "lease_ids" and seqs else None
        options: dict[str, Any] = {"node": node, "seqs": seqs, "strict": strict}
        if lease is not None:
            options["lease_id"] = lease_id(lease)
        if lease_ids is not None:
            options["lease_ids"] = [lease_id(number) for number in lease_ids]
        with self.step() as now:
            mine, skipped = self.select_held(node, seqs, lease, lease_ids)
            lost = [seq for seq in skipped if seq in queue.jobs]
            if strict and lost:
                self.lease_lost(what, options, lost, lease_ms)
            elif what == "extend":
                self.extend(mine, skipped, options, now=now, lease_ms=lease_ms)
            else:
                self.end(what, mine, skipped, options, now=now, delay=delay)

    def let_go(self, lease: int, *, is_lost: bool) -> None:
        """A stream's connection goes away, and its leases with it; or its worker was silent for its whole grace."""
        with self.step() as now:
            (run.lose if is_lost else run.release)(self.engine, self.engine.state.topics["q"], [lease])
            for job in self.model.queue.held():
                if job.lease == lease and is_lost:
                    self.model.queue.lose(job, now, None)
                elif job.lease == lease:
                    self.model.queue.release(job, now)

    @precondition(lambda self: self.model.queue.held())
    @rule(data=st.data(), gone=st.sampled_from([None, None, "n1", "n2"]), exit_code=st.sampled_from([None, 137]))
    def begin_or_end(self, data: st.DataObject, gone: str | None, exit_code: int | None) -> None:
        """A worker begins a job; or it is gone, and its successor says what it had begun."""
        with self.step() as now:
            held = self.model.queue.held()
            if not held:
                return
            job = data.draw(st.sampled_from(held), label="job")
            if gone is None:
                self.begin(job, now)
                return
            mine = {job.seq for job in held if job.node == gone and job.group is not None}
            seqs = data.draw(st.lists(st.sampled_from([*mine, job.seq, 99]), max_size=3), label="begun")
            reply = run.end_node(self.engine, "q", node=gone, seqs=seqs, exit_code=exit_code).reply
            assert (reply.lost, reply.returned) == (len(mine & {*seqs}), len(mine - {*seqs}))
            for each_job in sorted((self.model.queue.jobs[seq] for seq in mine), key=lambda job: (job.lease, job.seq)):
                if each_job.seq in seqs:
                    reason = None if exit_code is None else f"exit code {exit_code}"
                    self.model.queue.lose(each_job, now, reason)
                else:
                    self.model.queue.give_back(each_job, now=now, delay=0, reason=None)

    def begin(self, job: Job, now: int) -> None:
        options = {"node": job.node, "seq": job.seq, "lease_id": lease_id(job.lease)}
        rivals = [other for other in self.model.queue.held() if other.begun is not None and other.group == job.group]
        if job.group is None or (rivals and job not in rivals and self.settings.suspects_wait_ms):
            with pytest.raises(Conflict) as caught:
                run.begin(self.engine, "q", **options)
            assert caught.value.code == ("not_isolated" if job.group is None else "busy")
            return
        run.begin(self.engine, "q", **options)
        if job.begun is None:
            for other in rivals:
                other.begun = None
            job.begun = now, min(RETRY_MS << job.lost_begun, RETRY_MS_MAX)

    def select_held(
        self, node: str, seqs: list[int] | None, lease: int | None, lease_ids: list[int] | None
    ) -> tuple[set[int], list[int]]:
        queue = self.model.queue
        if seqs is None:
            return {job.seq for job in queue.held() if queue.holds(node, job.seq, lease)}, []
        fences: list[int | None] = [*lease_ids] if lease_ids else [lease] * len(seqs)
        mine = [queue.holds(node, seq, fence) for seq, fence in zip(seqs, fences, strict=True)]
        return (
            {seq for seq, good in zip(seqs, mine, strict=True) if good},
            [seq for seq, good in zip(seqs, mine, strict=True) if not good],
        )

    def lease_lost(self, what: str, options: dict[str, Any], lost: list[int], lease_ms: int) -> None:
        command: Any = {"ack": run.ack, "extend": run.extend, "return": run.return_jobs}.get(what, run.nack)
        more = {"lease_ms": lease_ms} if what == "extend" else {}
        with pytest.raises(LeaseLost) as caught:
            command(self.engine, "q", **options, **more)
        assert caught.value.detail["skipped"] == lost

    def extend(self, mine: set[int], skipped: list[int], options: dict[str, Any], *, now: int, lease_ms: int) -> None:
        reply = run.extend(self.engine, "q", **options, lease_ms=lease_ms).reply
        shown = now + lease_ms + self.engine.state.wall_offset_ms
        assert reply.deadlines == dict.fromkeys(mine, shown)
        assert reply.skipped == skipped
        for seq in mine:
            self.model.queue.jobs[seq].deadline = now + lease_ms

    def end(
        self, what: str, mine: set[int], skipped: list[int], options: dict[str, Any], *, now: int, delay: int | None
    ) -> None:
        queue = self.model.queue
        if what == "ack":
            reply = run.ack(self.engine, "q", **options).reply
            queue.ack(mine)
        elif what == "nack":
            reply = run.nack(self.engine, "q", **options, delay_ms=delay, reason="why").reply
            queue.nack(mine, now=now, delay=delay, reason="why")
        elif what == "return":
            reply = run.return_jobs(self.engine, "q", **options, delay_ms=delay or 0, reason="drained").reply
            for seq in sorted(mine):
                queue.give_back(queue.jobs[seq], now=now, delay=delay or 0, reason="drained")
        else:
            reply = run.nack(self.engine, "q", **options, dead=True, reason="bad").reply
            if mine:
                self.model.dead_letter([queue.jobs[seq] for seq in mine], reasons=dict.fromkeys(mine, "bad"), now=now)
                self.model.seen()
        assert (reply.count, reply.skipped) == (len(mine), skipped)
        assert (reply.ready, reply.in_flight) == (len(queue.ready()), len(queue.held()))

    # Removing and bringing back

    @rule(
        name=st.sampled_from(["q", "q", "dead"]),
        seqs=st.none() | st.lists(st.integers(1, 30), min_size=1, max_size=6),
        match=st.none() | MATCHES,
        before=st.none() | st.integers(1, 20),
    )
    def delete(self, name: str, seqs: list[int] | None, match: Any, before: int | None) -> None:
        queue = self.model.queue if name == "q" else self.model.dead
        if queue is None:
            return
        with self.step():
            if seqs is None and match is None and before is None:
                if queue.head > 8:  # seldom: it is the end of everything there
                    self.delete_topic(name)
                return
            gone = [
                job.seq
                for job in queue.jobs.values()
                if (seqs is None or job.seq in seqs)
                and (before is None or job.seq < before)
                and (match is None or matches(match, job.tag))
            ]
            reply = run.delete_records(self.engine, name, before_seq=before, match=match, seqs=seqs).reply
            queue.remove(gone)
            assert (reply.deleted, reply.count) == (len(gone), len(queue.jobs))
            assert reply.earliest_seq == min(queue.jobs, default=queue.head + 1)

    @rule(
        name=st.sampled_from(["q", "dead"]),
        seqs=st.sampled_from([None, None, [1, 2, 3, 5, 8, 13, 21]]),
        limit=st.none() | st.integers(1, 3),
        reset=st.booleans(),
        like=st.sampled_from([None, None, "bad", "max"]),
        match=st.none() | MATCHES,
    )
    def redrive(self, name: str, **options: Any) -> None:
        options["reset_deliveries"] = options.pop("reset")
        options["reason_like"] = like = options.pop("like")
        queue = self.model.queue if name == "q" else self.model.dead
        if queue is None:
            return
        with self.step():
            found = [
                job
                for seq, job in sorted(queue.jobs.items())
                if (options["seqs"] is None or seq in options["seqs"])
                and (options["match"] is None or matches(options["match"], job.tag))
                and (like is None or like in (job.parked or (job.origin or ("", 0, "", 0))[2]))
            ]
            if name == "q":
                self.unpark([job for job in found if job.parked is not None][: options["limit"]], options)
            else:
                self.send_back([job for job in found if job.seq <= queue.visible][: options["limit"]], options)

    def unpark(self, jobs: list[Job], options: dict[str, Any]) -> None:
        assert run.redrive(self.engine, "q", **options).reply.seqs == [job.seq for job in jobs]
        for job in jobs:
            self.model.unpark(job, reset=options["reset_deliveries"])

    def send_back(self, found: list[Job], options: dict[str, Any]) -> None:
        queue, dead = self.model.queue, self.model.dead
        assert dead is not None
        moved: list[int] = []
        for letter in found:
            original = next((job for job in queue.jobs.values() if job.copy is letter), None)
            if original is not None:
                self.model.unpark(original, reset=options["reset_deliveries"])
                moved.append(letter.seq)
                continue
            if queue.is_full_for(1):
                break
            assert letter.origin is not None
            past = 0 if options["reset_deliveries"] else letter.origin[1]
            job = Job(queue.head + 1, letter.data, letter.tag, deliveries=past, origin=letter.origin)
            job.lost = min(letter.origin[3], LOSSES_MAX - 1)
            queue.append(job)
            dead.remove([letter.seq])
            moved.append(letter.seq)
            self.model.seen()
            queue.evict()
        if found and not moved:
            self.refused("topic_full", run.redrive, "dead", **options)
        else:
            assert run.redrive(self.engine, "dead", **options).reply.seqs == moved

    # Looking

    @rule()
    def look(self) -> None:
        with self.step():
            queue = self.model.queue
            info = run.topic_info(self.engine, "q")
            assert info.queue is not None
            shown = {name: value for name, value in asdict(info.queue).items() if name != "oldest_ready_ms"}
            assert shown == {
                "ready": len(queue.ready()),
                "in_flight": len(queue.held()),
                "delayed": len(queue.in_state("delayed")),
                "parked": len(queue.in_state("parked")),
                "dead": self.model.dead_now(),
                "dead_lettered": queue.dead_lettered,
                "ack_holes": queue.holes(),
                "suspects": len(queue.suspects()),
            }
            for state in ("ready", "in_flight", "delayed", "parked"):
                listed = [item.seq for item in run.jobs(self.engine, "q", state=state).items]
                expected = [
                    seq
                    for seq in queue.in_state(state)
                    if state != "ready" or seq <= queue.visible or queue.jobs[seq].is_suspect
                ]
                assert listed == expected
            assert [item.seq for item in run.jobs(self.engine, "q", state="suspect").items] == queue.suspects()

    # What must always hold

    def check(self, state: State) -> None:
        self.check_records(state, "q", self.model.queue)
        if self.model.dead is not None:
            self.check_records(state, "dead", self.model.dead)
        queue, naive = state.topics["q"].queue, self.model.queue
        assert queue is not None
        assert sorted(queue.in_flight) == naive.in_state("in_flight")
        assert list(queue.delayed) == naive.in_state("delayed")
        assert sorted(queue.parked) == naive.in_state("parked")
        ready = [naive.jobs[seq] for seq in naive.in_state("ready")]
        assert list(queue.reclaim) == [j.seq for j in ready if j.seq <= naive.claimed_max and not j.is_suspect]
        assert list(queue.suspects.ready) == naive.suspects()
        assert (queue.expired, queue.lost, queue.dead_lettered) == (naive.expired, naive.lost, naive.dead_lettered)
        begun = {job.seq: job.begun for job in naive.jobs.values() if job.begun is not None}
        assert queue.suspects.begun == begun
        assert queue.uniques == {job.key: job.seq for job in naive.jobs.values() if job.key is not None}
        assert queue.claims == naive.claims
        for seq, job in naive.jobs.items():
            lease = queue.holder(seq)
            counted = queue.deliveries.get(seq, 1 if lease is not None else 0)
            assert counted == job.deliveries, f"deliveries of {seq}"
            assert queue.suspects.pasts.get(seq) == (job.spared, job.lost, job.lost_begun), f"past of {seq}"
            assert queue.tries(seq) == job.tries
            if lease is not None:
                held = (lease.number, lease.node, lease.since_ms, lease.deadline_ms)
                assert held == (job.lease, job.node, job.since, job.deadline)
            self.check_story(queue, job)
            assert (queue.parked.get(seq) or "").split(";")[0] == (job.parked or "")

    def check_story(self, queue: Queue, job: Job) -> None:
        """All failed deliveries are kept; where little may be kept, the last of them or none."""
        story = [
            (d.lease, d.node, d.since_ms, d.until_ms, d.end, d.reason) for d in queue.deliveries_ended.get(job.seq, [])
        ]
        expected = job.story[len(job.story) - len(story) :] if self.is_cramped else job.story
        assert story == [row if row[4] != "dead" else (*row[:5], story[i][5]) for i, row in enumerate(expected)]

    def check_records(self, state: State, name: str, naive: NaiveQueue) -> None:
        topic = state.topics[name]
        assert topic.head_seq == naive.head
        seqs = list(each(topic.live_runs(1, topic.head_seq + 1)))
        assert seqs == sorted(naive.jobs)
        records = self.engine.reader.records(topic, topic.live_runs(1, topic.head_seq + 1))
        assert [(r.seq, r.data, r.tag) for r in records] == [
            (seq, naive.jobs[seq].data, naive.jobs[seq].tag) for seq in seqs
        ]
        weights = [size for _, size in self.engine.reader.sizes(topic, 1, topic.head_seq + 1)]
        assert topic.bytes == sum(weights), f"{topic.bytes} are counted, the records weigh {weights}"


def matches(match: Any, tag: str | None) -> bool:
    if tag is None:
        return False
    if isinstance(match, str):
        return tag == match
    return tag == match[2] if match[1] == "Eq" else tag.startswith(match[2][:-1])


TestQueue = pytest.mark.timeout(3_600)(QueueMachine.TestCase)  # to find a smallest example takes minutes
TestQueue.settings = settings(stateful_step_count=60)
