"""The first part of the tour: kill a worker process at work, recover its directory, and check every promise."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import IO

from rich.console import Console

from tenure.broker.broker import Broker
from tenure.cli.screen import table
from tenure.cli.tour.checks import expect
from tenure.cli.tour.worker import JOBS_PER_ROUND, NODE, QUEUE, job
from tenure.cli.words import count, size
from tenure.core.state.ranges import to_runs
from tenure.log.disk import PosixDisk
from tenure.log.log import FileLog
from tenure.python_child import module_command, module_environment

__all__ = ["kill_and_recover"]

_ROUNDS = 12
_ROUND_S = 0.01
_LEASE_MS = 60_000


class WorkerReport:
    """The lines that the worker printed before it was killed."""

    def __init__(self) -> None:
        self.produced: set[int] = set()
        self.claimed: Counter[int] = Counter()  # counted: on a slow machine a lease may run out
        self.acking: set[int] = set()
        self.acked: set[int] = set()
        self.deadline = 0
        self.pid = 0

    def take(self, line: str) -> str:
        """Add one line; a line cut by the kill is ignored."""
        try:
            facts = json.loads(line)
        except ValueError:
            return ""
        what: str = facts["what"]
        if what == "opened":
            self.pid = facts["pid"]
        else:
            getattr(self, what).update(facts["seqs"])
        self.deadline = max(self.deadline, facts.get("deadline", 0))
        return what


async def kill_and_recover(console: Console, directory: Path) -> None:
    """Run a worker, kill it, open its directory again and check every promise that it was given."""
    worker = _run_and_kill(directory)
    table(
        console,
        (f"process {worker.pid} was told", "jobs#", "seqs"),
        (
            ("produced, synced to disk", len(worker.produced), _seqs(worker.produced)),
            ("claimed under a lease", len(worker.claimed), _seqs(set(worker.claimed))),
            ("acked, synced to disk", len(worker.acked), _seqs(worker.acked)),
        ),
    )
    console.print("Then SIGKILL, in the middle of it. No handler ran, nothing was flushed. Open the directory again:\n")
    log = FileLog.open(PosixDisk(directory))
    broker = await Broker.open(log)
    async with broker:
        report = log.report
        expect(report is not None, "the log reports on its recovery")
        assert report is not None
        torn = f"{size(report.torn_bytes)} torn" if report.torn_bytes else "nothing torn"
        console.print(f"recovery: {report.batches} batches replayed, {torn}, this is opening number {report.epoch}")
        await _check_jobs(console, broker, worker)
        await _check_leases(console, broker, worker)


def _run_and_kill(directory: Path) -> WorkerReport:
    worker, rounds = WorkerReport(), 0
    command = module_command("tenure.cli.tour.worker", str(directory))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=module_environment(), text=True) as child:
        try:
            for line in _lines(child.stdout):
                rounds += worker.take(line) == "acked"
                if rounds == _ROUNDS:
                    time.sleep(random.uniform(0, _ROUND_S))  # at any point of its round
                    child.send_signal(signal.SIGKILL)
                    break
            for line in _lines(child.stdout):  # the lines before the kill
                worker.take(line)
        finally:
            child.kill()
        complaint = (child.stderr.read() if child.stderr is not None else "").strip().rpartition("\n")[2]
    expect(child.returncode == -signal.SIGKILL, f"the worker died of SIGKILL, not of {child.returncode} {complaint}")
    return worker


def _lines(stdout: IO[str] | None) -> IO[str]:
    assert stdout is not None
    return stdout


async def _check_jobs(console: Console, broker: Broker, worker: WorkerReport) -> None:
    """Check that produced jobs are there byte for byte, and acked ones are not."""
    live: dict[int, bytes] = {}
    cursor = 0
    while not (page := await broker.diff(QUEUE, from_seq=cursor, limit=1_000)).caught_up or page.records:
        live.update((record.seq, record.data) for record in page.records)
        cursor = page.next_from_seq
    undecided = worker.acking - worker.acked
    owed = worker.produced - worker.acking
    extra = set(live) - worker.produced
    expect(owed <= set(live), "every acknowledged job that nobody acked is still there")
    expect(not worker.acked & set(live), "no acknowledged ack was undone")
    expect(all(data == job(seq) for seq, data in live.items()), "every job has the bytes that were sent")
    expect(len(extra) <= JOBS_PER_ROUND, "nothing appears that nobody sent")
    rows = [
        ("acked before the kill", len(worker.acked), "gone, and stays gone"),
        ("produced and not acked", len(owed), "all there, byte for byte"),
    ]
    if undecided or extra:
        rows.append(("cut off half-way, never answered", len(undecided) + len(extra), "either way is right"))
    table(console, ("what", "jobs#", "found"), rows)


async def _check_leases(console: Console, broker: Broker, worker: WorkerReport) -> None:
    """Check that the dead worker's leases hold until they run out, and its jobs then come back, one delivery more."""
    held = set(worker.claimed) - worker.acking
    leases = broker.leases(QUEUE, limit=1_000).items
    still = {seq for lease in leases for seq in lease.seqs}
    if leases:
        expect({lease.node for lease in leases} == {NODE}, "the leases are the dead worker's")
        console.print(
            f"{count(len(still), 'job')} still leased to the dead {NODE}: leases are in the log too. Nobody else gets "
            "them until the lease runs out, because a slow worker looks just like a dead one. Wait for that:\n"
        )
    found: dict[int, int] = {}
    while broker.topic(QUEUE).count:
        claim = await broker.claim(QUEUE, node="worker-2", max_count=1_000, lease_ms=_LEASE_MS, wait_ms=3_000)
        expect(bool(claim.jobs), "the dead worker's jobs come back once its lease is over")
        found |= {seq: claim.deliveries(seq) for seq in claim.seqs}
        done = await broker.ack(QUEUE, node="worker-2", lease_id=claim.lease_id)
        expect(done.count == len(claim.jobs), "what was claimed in time could be acked")
    expect(held <= set(found), "all of the dead worker's jobs came back")
    expect(
        all(found[seq] > worker.claimed[seq] for seq in found), "every delivery was counted, also those before the kill"
    )
    rows = [
        ("never handed out before" if deliveries == 1 else "held by the dead worker", jobs, deliveries)
        for deliveries, jobs in sorted(Counter(found.values()).items(), reverse=True)
    ]
    table(console, ("worker-2 claims and acks", "jobs#", "deliveries#"), rows)


def _seqs(seqs: set[int]) -> str:
    runs = to_runs(seqs)
    shown = [str(lo) if n == 1 else f"{lo}-{lo + n - 1}" for lo, n in zip(runs[::2], runs[1::2], strict=True)]
    return ", ".join(shown) if len(shown) <= 4 else f"{', '.join(shown[:2])}, … {shown[-1]}"
