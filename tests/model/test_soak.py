"""Fault 44: workers that stall, give up and crash, and a broker that is killed under them; the history is clean."""

from __future__ import annotations

from random import Random

import pytest

from tenure import Settings
from tenure.broker.durability.trim import trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.contract.records import lease_id
from tenure.log import checkpoint
from tenure.log.log import FileLog
from tenure.testing import History, ManualClock, SimDisk, check_history
from tests.kit import run

SETTINGS = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=1024)
LEASE_MS = 1_000


class Soak:
    """A queue, three workers, and everything they saw."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.history = History()
        self.disk = SimDisk(seed)
        self.engine = self.opened()
        self.held: list[tuple[int, int, str]] = []  # (seq, lease, node), for as long as the worker believes in it
        self.made = 0
        config = {"type": "queue", "lease_ms": LEASE_MS, "max_deliveries": 4, "dead_letter": "dead"}
        run.put_topic(self.engine, "q", config)

    def opened(self) -> Engine:
        engine = Engine(
            FileLog.open(self.disk, segment_bytes=SETTINGS.segment_bytes), clock=self.clock, settings=SETTINGS
        )
        engine.recover(checkpoint.load(self.disk) if self.random.random() < 0.5 else ())
        return engine

    def run(self, steps: int) -> None:
        actions = [self.produce, self.produce, self.claim, self.claim, self.settle, self.settle, self.settle, self.wait]
        for _ in range(steps):
            self.random.choice(actions)()
            self.engine.write()
            if self.random.random() < 0.02:
                self.kill()
            if trim_due(self.engine):
                trim_step(self.engine)
        self.drain()

    def produce(self) -> None:
        ids = [f"job-{self.made + i}" for i in range(self.random.randint(1, 5))]
        self.made += len(ids)
        self.history.produce(ids, "invoke", at=self.engine.now())
        run.produce(self.engine, "q", [id.encode() for id in ids])
        self.history.produce(ids, "ok", at=self.engine.now())

    def claim(self) -> int:
        node = self.random.choice(["n1", "n2", "n3"])
        reply = run.claim(self.engine, "q", node=node, max_count=self.random.randint(1, 5)).reply
        for job in reply.jobs:
            self.history.delivery(
                "q",
                job.seq,
                job.data.decode(),
                lease=str(reply.lease),
                node=node,
                deliveries=reply.deliveries(job.seq),
                at=self.engine.now(),
                deadline=reply.deadline - self.engine.state.wall_offset_ms,
            )
            self.held.append((job.seq, reply.lease, node))
        return len(reply.jobs)

    def settle(self) -> None:
        """A worker does something to a job it holds, or thinks it holds."""
        if not self.held:
            return
        held = self.random.choice(self.held)
        seq, lease, node = held
        now, what = self.engine.now(), self.random.choice(["ack", "ack", "nack", "extend"])
        if what == "extend":
            done = run.extend(self.engine, "q", node=node, seqs=[seq], lease_id=lease_id(lease), lease_ms=500).reply
            outcome = "ok" if seq in done.deadlines else "fail"
            self.history.extend("q", seq, lease=str(lease), outcome=outcome, at=now, deadline=now + 500)  # type: ignore[arg-type]
            return
        self.held.remove(held)
        command = run.ack if what == "ack" else run.nack
        settled = command(self.engine, "q", node=node, seqs=[seq], lease_id=lease_id(lease)).reply
        note = self.history.ack if what == "ack" else self.history.nack
        note("q", seq, lease=str(lease), outcome="ok" if settled.count else "fail", at=now)

    def wait(self) -> None:
        self.clock.advance(self.random.choice([1, 100, 400, 1_100]))

    def kill(self) -> None:
        """Kill the process with -9, sometimes after a checkpoint."""
        if self.random.random() < 0.5:
            self.engine.sync()
            checkpoint.save(self.disk, self.engine.log.position(), self.engine.checkpoint())
        self.disk = self.disk.kill()
        self.engine = self.opened()

    def drain(self) -> None:
        self.clock.advance(86_400_000)
        self.held = []
        while self.claim():
            while self.held:
                self.settle()
            self.clock.advance(LEASE_MS + 1)
        letters = run.diff(self.engine, "dead", limit=1_000).records if "dead" in self.engine.state.topics else []
        self.history.dead_letters([letter.data.decode() for letter in letters])


@pytest.mark.parametrize("seed", range(12))
def test_fault_44_a_soak_with_kills_leaves_a_clean_history(seed: int):
    soak = Soak(seed)
    soak.run(400)
    report = check_history(soak.history)
    assert report.ok, str(report)
    assert min(report.produced, report.delivered, report.acked) > 100


def test_fault_44_the_same_soak_is_not_clean_once_an_ack_is_forgotten():
    soak = Soak(1)
    soak.run(400)
    acked = next(row for row in soak.history if getattr(row, "what", "") == "ack" and row.outcome == "ok")  # type: ignore[union-attr]
    without = History(row for row in soak.history if row is not acked)
    assert "vanished" in check_history(without).anomalies


def test_fault_44_the_same_soak_is_not_clean_once_a_job_is_forgotten():
    soak = Soak(2)
    soak.run(400)
    soak.history.rows = [row for row in soak.history if getattr(row, "id", "") != "job-7"]
    assert check_history(soak.history).lost_middle == ["job-7"]
