"""`play`: one round: a cluster, 24 clients, the nemesis of a seed, a drain, and the verdicts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure import AsyncClient, TenureError
from tenure.testing import HistoryReport
from tests.cluster.cluster import Cluster
from tests.cluster.load import DEAD, QUEUES, Load, put_queues
from tests.cluster.nemesis import Fault, Nemesis
from tests.cluster.verdict import compare_folds, judge
from tests.soak.drain import drain
from tests.soak.excerpt import counts, excerpt
from tests.soak.journal import Journal

__all__ = ["SETTINGS", "Round", "play"]

SETTINGS: Final[dict[str, Any]] = {
    "engine.segment_bytes": 1 << 18,
    "engine.spare_segments": 1,
    "engine.trim_step_bytes": 1 << 16,
    "engine.checkpoint_bytes": 1 << 16,
    "drain_ms": 2_000,
}
"""Segments so small that a short run rolls, trims and checkpoints."""
_END_S: Final = 300.0
_LEFT: Final = "left"
_LONG_MS: Final = 86_400_000


class Round(msgspec.Struct):
    """What came of a seed. ``ok`` is what counts; ``text`` explains the rest."""

    seed: int
    journal: Journal
    nemesis: Nemesis
    reports: dict[str, HistoryReport] = {}

    @property
    def ok(self) -> bool:
        return bool(self.reports) and all(report.ok for report in self.reports.values()) and not self.journal.problems

    def text(self) -> str:
        """Return the verdicts and, where something is wrong, the rows around the first job that is concerned."""
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.nemesis.met.items()))
        lines = [f"seed {self.seed}: {self.nemesis.failovers} failovers; {faults}", f"  {counts(self.journal.history)}"]
        lines += [f"  {what}: {report}" for what, report in self.reports.items()]
        lines += [f"  problem: {problem}" for problem in self.journal.problems]
        for report in self.reports.values():
            if not report.ok:
                lines += excerpt(self.journal.history, report, self.nemesis.done)
        return "\n".join(lines)

    def keep(self, directory: Path, cluster: Cluster) -> None:
        """Write down the history, the logs of the members and what the nemesis did."""
        (directory / "history.jsonl").write_bytes(self.journal.history.to_lines())
        (directory / "nemesis.log").write_text("".join(f"{at} {what}\n" for at, what in self.nemesis.done))
        for member in cluster.members:
            (directory / f"{member.home.name}.log").write_text(member.log())


async def play(cluster: Cluster, directory: Path, *, seed: int, faults: list[Fault]) -> Round:
    """Play one round on an empty home, and stop the members; ``directory`` keeps what a bad round leaves."""
    journal = Journal()
    played = Round(seed, journal, Nemesis(cluster, journal, seed=seed))
    try:
        await asyncio.to_thread(cluster.start)
        await put_queues(cluster.url)
        await _play(cluster, played, faults)
        await asyncio.to_thread(cluster.wait_for_standbys)
        journal.problems += await asyncio.to_thread(cluster.stop)
        journal.problems += cluster.verify()
        journal.problems += compare_folds([member.home for member in cluster.members])
        played.reports = judge(journal.history)
    except (AssertionError, TenureError, TimeoutError) as error:  # before the end of the history, there is no verdict
        journal.problems.append(f"{type(error).__name__}: {error}")
    if not played.ok:
        played.keep(directory, cluster)
    return played


async def _play(cluster: Cluster, played: Round, faults: list[Fault]) -> None:
    load = Load(cluster.url, played.journal, seed=played.seed)
    working = asyncio.create_task(load.run())
    try:
        for fault in faults:
            await _strike(played.nemesis, fault)
            assert not working.done(), f"a client ended by itself: {working}"
    finally:
        load.stop()
        await working
    async with asyncio.timeout(_END_S), AsyncClient(cluster.url) as client:
        await drain(client, played.journal, queues=list(QUEUES), log="none", mirror="none", dead=DEAD)
        await _leave_jobs(client)


async def _strike(nemesis: Nemesis, fault: Fault) -> None:
    """Carry out one fault in a thread, to its end also where the run is interrupted: it may start a server."""
    striking = asyncio.ensure_future(asyncio.to_thread(nemesis.strike, fault))
    try:
        await asyncio.shield(striking)
    finally:
        await asyncio.wait([striking])


async def _leave_jobs(client: AsyncClient) -> None:
    """Leave a queue with jobs in every state, so that the folds of the members have something to differ in."""
    await client.put_topic(_LEFT, type="queue", durability="fsync", leases_durable=True, lease_ms=_LONG_MS)
    await client.produce(_LEFT, [b'"%d"' % number for number in range(60)], idempotency_key="left")
    held = (await client.claim(_LEFT, node="one", max_count=30)).jobs
    await client.ack(_LEFT, [job.seq for job in held[:10]], node="one")
    await client.nack(_LEFT, [job.seq for job in held[10:15]], node="one", delay_ms=_LONG_MS)
    await client.claim(_LEFT, node="other", max_count=5)
