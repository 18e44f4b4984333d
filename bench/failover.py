"""`make bench-failover`: how long clients wait when a leader is lost, and what a standby costs, against the bars.

Two members on a SeaweedFS whose creates take 20 ms longer, and clients that know both. Every fault waits until the
standby has caught up; then the leader is killed, stopped, cut off from the store, or asked to hand over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import httpx

from bench.measure import Row, calibrate, report
from bench.slow_store import quantile
from tenure import AsyncClient, Client, TenureError
from tests.cluster.cluster import Cluster, cluster_on_s3
from tests.cluster.member import Member
from tests.kit.store_proxy import Faults

PUT_MS: Final = 20.0
LAG_PUT_MS: Final = 14.0
"""With this, a busy leader ships about 50 links a second."""
DATA: Final = b'"' + b"x" * 254 + b'"'
CALLERS: Final = 8
LAG_S: Final = 15.0
JOBS: Final = 200_000
PARTS: Final = ("kill", "stop", "cut", "handover", "lag", "memory")


class Caller:
    """One client with every endpoint that produces one job after the other, and notes when each was answered."""

    def __init__(self, url: str) -> None:
        self.answered: list[float] = []
        self.failures: list[str] = []
        self._client = AsyncClient(url)
        self._stopping = False

    async def run(self) -> None:
        async with self._client:
            while not self._stopping:
                try:
                    await self._client.produce("q", [DATA])
                    self.answered.append(time.perf_counter())
                except TenureError as error:
                    self.failures.append(f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        self._stopping = True

    def outage(self, since: float) -> tuple[float, float]:
        """Return the longest time between two answers that ended after a moment: from when to when."""
        pairs = [(a, b) for a, b in zip(self.answered, self.answered[1:], strict=False) if b > since]
        return max(pairs, key=lambda pair: pair[1] - pair[0])


@contextmanager
def running(put_ms: float) -> Iterator[Cluster]:
    """Two members with a queue; the second follows the first closely."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as home,
        cluster_on_s3(Path(home), members=2) as cluster,
    ):
        cluster.start()
        for member in cluster.members:
            assert member.proxy is not None
            member.proxy.faults = Faults(put_ms=put_ms)
        with Client(cluster.url) as client:
            client.put_topic("q", type="queue", durability="fsync", lease_ms=86_400_000)
        cluster.wait_for_standbys()
        yield cluster


# A leader that is lost


def _cut(member: Member) -> None:
    assert member.proxy is not None
    member.proxy.refuse()


def _mend(member: Member) -> None:
    assert member.proxy is not None
    member.proxy.accept()


_LOSSES: Final[dict[str, tuple[Callable[[Member], None], Callable[[Member], None]]]] = {
    "kill": (Member.down, Member.up),
    "stop": (Member.pause, Member.resume),
    "cut": (_cut, _mend),
}


async def losses(how: str, rounds: int) -> list[float]:
    """Return the seconds from each fault to the first produce that is acknowledged after it."""
    strike, heal = _LOSSES[how]
    random, found = Random(how), list[float]()
    with running(PUT_MS) as cluster:
        caller = Caller(cluster.url)
        calling = asyncio.create_task(caller.run())
        for _ in range(rounds):
            await asyncio.to_thread(cluster.wait_for_standbys)
            await asyncio.sleep(random.uniform(0.5, 1.5))
            leader, epoch = await asyncio.to_thread(cluster.wait_for_leader)
            started = time.perf_counter()
            strike(leader)
            await asyncio.to_thread(lambda epoch=epoch: cluster.wait_for_leader(epoch_min=epoch + 1))  # type: ignore[misc]
            await _some_more(caller)
            found.append(caller.outage(started)[1] - started)
            await asyncio.to_thread(heal, leader)
        caller.stop()
        await calling
        if caller.failures:
            print(f"{how}: {len(caller.failures)} calls failed: {caller.failures[:3]}")
    return found


async def _some_more(caller: Caller) -> None:
    goal = len(caller.answered) + 5
    async with asyncio.timeout(60):
        while len(caller.answered) < goal:
            await asyncio.sleep(0.01)


async def handovers(rounds: int) -> tuple[list[float], list[str]]:
    """Return how long each caller waited for an answer around each handover, and the calls that failed."""
    random, found = Random("handover"), list[float]()
    with running(PUT_MS) as cluster:
        callers = [Caller(cluster.url) for _ in range(CALLERS)]
        calling = [asyncio.create_task(caller.run()) for caller in callers]
        for _ in range(rounds):
            await asyncio.to_thread(cluster.wait_for_standbys)
            await asyncio.sleep(random.uniform(0.5, 1.5))
            leader, epoch = await asyncio.to_thread(cluster.wait_for_successor)
            started = time.perf_counter()
            await asyncio.to_thread(leader.ok, "POST", "/v0/cluster/handover", {})
            await asyncio.to_thread(lambda epoch=epoch: cluster.wait_for_leader(epoch_min=epoch + 1))  # type: ignore[misc]
            for caller in callers:
                await _some_more(caller)
                begin, end = caller.outage(started)
                found.append(end - begin)
        for caller in callers:
            caller.stop()
        await asyncio.gather(*calling)
        return found, [failure for caller in callers for failure in caller.failures]


# What a standby costs


class Watcher(threading.Thread):
    """Notes when a member first said that its next slot is a number."""

    def __init__(self, member: Member) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, tuple[int, int]]] = []
        self._url = member.url
        self._over = threading.Event()

    def run(self) -> None:
        with httpx.Client(trust_env=False, verify=False, timeout=30) as client:
            while not self._over.wait(0.005):
                view = client.get(f"{self._url}/v0/cluster").json()
                self.seen.append((time.perf_counter(), (view["epoch"], view["number"])))

    def end(self) -> None:
        self._over.set()
        self.join()


async def lag() -> tuple[list[float], float]:
    """Return how long after the leader the standby was at each place, and the links of a second."""
    with running(LAG_PUT_MS) as cluster:
        leader, _ = cluster.wait_for_leader()
        standby = next(member for member in cluster.members if member is not leader)
        callers = [Caller(cluster.url) for _ in range(CALLERS)]
        calling = [asyncio.create_task(caller.run()) for caller in callers]
        watchers = [Watcher(leader), Watcher(standby)]
        await asyncio.sleep(1)
        for watcher in watchers:
            watcher.start()
        await asyncio.sleep(LAG_S)
        for watcher in watchers:
            await asyncio.to_thread(watcher.end)
        for caller in callers:
            caller.stop()
        await asyncio.gather(*calling)
    ahead, behind = watchers[0].seen, watchers[1].seen
    links = ahead[-1][1][1] - ahead[0][1][1]
    return list(_lags(ahead, behind)), links / (ahead[-1][0] - ahead[0][0])


def _lags(ahead: list[tuple[float, tuple[int, int]]], behind: list[tuple[float, tuple[int, int]]]) -> Iterator[float]:
    """Yield how much later the second was seen at each place of the first."""
    index, known = 0, (-1, -1)
    for at, place in ahead:
        if place == known:
            continue
        known = place
        while index < len(behind) and behind[index][1] < place:
            index += 1
        if index == len(behind):
            return
        yield max(0.0, behind[index][0] - at)


async def memory() -> tuple[int, int]:
    """Return the anonymous memory of leader and standby after the same load."""
    with running(0.0) as cluster:
        async with AsyncClient(cluster.url) as client:
            for _ in range(JOBS // 1_000):
                await client.produce("q", [DATA] * 1_000)
            for _ in range(JOBS // 2_000):
                claimed = await client.claim("q", node="w", max_count=1_000)
                await client.ack("q", [job.seq for job in claimed.jobs[::2]], node="w")
        await asyncio.to_thread(cluster.wait_for_standbys)
        leader, _ = cluster.wait_for_leader()
        standby = next(member for member in cluster.members if member is not leader)
        return leader.resident_bytes(), standby.resident_bytes()


# Putting it together


def loss_rows(how: str, rounds: int) -> list[Row]:
    what = {"kill": "kill -9", "stop": "SIGSTOP", "cut": "cut off from the store"}[how]
    found = asyncio.run(losses(how, rounds))
    p50, p99 = quantile(found, 0.5), quantile(found, 0.99)
    return [
        (f"{what} → acknowledged, p50 of {len(found)}", f"{p50:.2f} s", "< 2.2 s", p50 < 2.2),
        (f"{what} → acknowledged, p99", f"{p99:.2f} s", "< 3 s", p99 < 3.0),
    ]


def handover_rows(rounds: int) -> list[Row]:
    found, failures = asyncio.run(handovers(rounds))
    p50, p99 = quantile(found, 0.5), quantile(found, 0.99)
    if failures:
        print(f"handover: {failures[:3]}")
    return [
        (f"handover, longest wait of a caller, p50 of {len(found)}", f"{p50 * 1000:.0f} ms", "< 200 ms", p50 < 0.2),
        ("handover, longest wait of a caller, p99", f"{p99 * 1000:.0f} ms", "< 500 ms", p99 < 0.5),
        ("handover, failed calls", str(len(failures)), "0", not failures),
    ]


def lag_rows() -> list[Row]:
    found, links = asyncio.run(lag())
    p99 = quantile(found, 0.99)
    measured = f"{p99 * 1000:.0f} ms (p50 {quantile(found, 0.5) * 1000:.0f})"
    return [(f"standby behind the leader at {links:.0f} links/s, p99", measured, "< 300 ms", p99 < 0.3)]


def memory_rows() -> list[Row]:
    leader, standby = asyncio.run(memory())
    ratio = standby / leader
    measured = f"{ratio:.2f}× ({standby / 1e6:.0f} / {leader / 1e6:.0f} MB)"
    return [("memory of the standby against the leader's", measured, "≤ 1.1×", ratio <= 1.1)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often each fault comes")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    options = parser.parse_args()
    rows = list[Row]()
    for part in options.only.split(","):
        match part:
            case "handover":
                rows += handover_rows(options.rounds)
            case "lag":
                rows += lag_rows()
            case "memory":
                rows += memory_rows()
            case _:
                rows += loss_rows(part, options.rounds)
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s; load average {os.getloadavg()[0]:.1f}")
    report("bench-failover", rows)


if __name__ == "__main__":
    main()
