"""The export of lifecycle events beside a server: what it costs the queue at 20,000 jobs a second.

Load, server and exporter share the machine. Runs with and without the export take turns, so that both meet the same
weather; what counts is whether the pace is kept. How fast it would go, and how long a round takes, is told beside it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.http import Claimed, Client
from bench.measure import Row, calibrate, report
from tenure import Broker
from tenure.export.follower import Follower
from tenure.log.disk import PosixDisk

JOBS_PER_S = 20_000
ROUND = 100
SECONDS = float(os.environ.get("SECONDS", "5"))
TURNS = int(os.environ.get("TURNS", "4"))
RECORDS = b'{"records":[' + b",".join([b'{"data":"' + b"x" * 240 + b'"}'] * ROUND) + b"]}"
CLAIM = b'{"node":"w","max":%d}' % ROUND


class Run(NamedTuple):
    """One run: jobs per second at the pace and without one, the middle and the 99th percentile of a round in ms at the
    pace, CPU of server and exporter.
    """

    rate: float
    free_rate: float
    p50_ms: float
    p99_ms: float
    server_cpu: float
    exporter_cpu: float


def cpu_s(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(home: str, *, with_export: bool) -> tuple[subprocess.Popen[str], int]:
    """A server, with the exporter beside it or without; and its port."""
    command = [sys.executable, "-m", "tenure.cli.main", "serve", "--data", f"{home}/data", "--port", "0"]
    if with_export:
        command += ["--events", f"file://{home}/events"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    return child, int(line.rpartition(":")[2])


def one_round(client: Client) -> None:
    """A hundred jobs through their whole life."""
    client.call("POST", "/v0/topics/q", RECORDS)
    jobs = msgspec.json.decode(client.call("POST", "/v0/topics/q/claim", CLAIM), type=Claimed).claimed
    assert len(jobs) == ROUND
    seqs = msgspec.json.encode({"node": "w", "seqs": [job.seq for job in jobs]})
    client.call("POST", "/v0/topics/q/ack", seqs)


def run(*, with_export: bool) -> Run:
    """Rounds at an even pace for some seconds."""
    with tempfile.TemporaryDirectory() as home:
        child, port = start(home, with_export=with_export)
        try:
            client = Client(port)
            client.call("PUT", "/v0/topics/q", b'{"type":"queue"}')
            while with_export and not list(Path(home, "data", "export").glob("*/checkpoints/*")):
                one_round(client)  # until the exporter is at work
                time.sleep(0.05)
            return paced(client, child.pid)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)
            assert child.stdout is not None
            child.stdout.close()


def paced(client: Client, pid: int) -> Run:
    taken: list[float] = []
    exporters = children(pid)
    cpu, exporter_cpu = cpu_s(pid), sum(map(cpu_s, exporters))
    started = time.perf_counter()
    rounds = int(SECONDS * JOBS_PER_S / ROUND)
    for number in range(rounds):
        due = started + number * ROUND / JOBS_PER_S
        while (now := time.perf_counter()) < due:
            time.sleep(due - now)
        one_round(client)
        taken.append((time.perf_counter() - now) * 1000)
    passed = time.perf_counter() - started
    taken.sort()
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    used, exported = cpu_s(pid) - cpu, sum(map(cpu_s, exporters)) - exporter_cpu
    return Run(rounds * ROUND / passed, free(client), p50, p99, used / passed, exported / passed)


def free(client: Client) -> float:
    """Jobs a second over one connection as fast as it goes, one round after the other."""
    started, rounds = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < SECONDS / 2:
        one_round(client)
        rounds += 1
    return rounds * ROUND / passed


async def make_log(home: Path, jobs: int) -> None:
    """A log of jobs that came, were claimed and were acked one by one: the most rows that a job can make."""
    async with await Broker.open(home) as broker:
        await broker.put_topic("q", {"type": "queue"})
        for _ in range(jobs // 500):
            for produced in [broker.produce("q", [b"1"]) for _ in range(500)]:
                await produced
            claims = [await claim for claim in [broker.claim("q", node="w") for _ in range(500)]]
            for acked in [broker.ack("q", node="w", seqs=claim.seqs) for claim in claims]:
                await acked


def capacity() -> float:
    """Rows a second that the exporter's fold gives, from a log of single jobs."""
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(make_log(Path(home), 50_000))
        follower = Follower(PosixDisk(home))
        started = time.process_time()
        rows = sum(len(step.rows) for step in follower.poll())
        return rows / (time.process_time() - started)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    off, on = list[Run](), list[Run]()
    for _ in range(TURNS):
        off.append(run(with_export=False))
        on.append(run(with_export=True))
    middle = [Run(*(median([getattr(each, name) for each in runs]) for name in Run._fields)) for runs in (off, on)]
    for name, each in zip(("without", "with"), middle, strict=True):
        print(
            f"{name:8} {each.rate:,.0f} jobs/s ({each.free_rate:,.0f} unpaced), "
            f"round p50 {each.p50_ms:.2f} ms p99 {each.p99_ms:.2f} ms, "
            f"server {each.server_cpu:.0%} of a core, exporter {each.exporter_cpu:.0%}"
        )
    without, having = middle
    slowed = 1 - having.rate / without.rate
    busier, told = having.server_cpu / without.server_cpu - 1, capacity()
    rows: list[Row] = [
        ("pace kept without the export", f"{without.rate:,.0f} jobs/s", "≥ 19,500", without.rate >= 19_500),
        ("queue slowed by the export", f"{slowed:.1%}", "≤ 5 %", slowed <= 0.05),
        ("as fast as it goes, with it", f"{having.free_rate / without.free_rate - 1:+.1%}", "told", True),
        ("a round's median with it", f"{having.p50_ms / without.p50_ms - 1:+.1%}", "told", True),
        ("the server's own CPU with it", f"{busier:+.1%}", "told", True),
        ("rows that the exporter can tell", f"{told:,.0f} rows/s", "≥ 60,000", told >= 60_000),
    ]
    report(f"The export at {JOBS_PER_S:,} jobs/s ({calibrate() / 1e6:.1f} M loop turns/s)", rows)


if __name__ == "__main__":
    main()
