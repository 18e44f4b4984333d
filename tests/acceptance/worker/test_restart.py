"""The broker goes away under its workers and comes back: nobody helps them (faults 24, 36)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.worker.backends.queue_source import QueueSource
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.source import Feed
from tenure.worker.runtime.timing import SystemTiming
from tenure.worker.settings import WorkerSettings
from tests.acceptance.worker.working import Work, until
from tests.kit.restartable_server import PATIENCE_S

SOURCES = 500


def kill(work: Work) -> None:
    work.server.kill()


def terminate(work: Work) -> None:
    assert work.server.terminate() == 0


@pytest.mark.full
@pytest.mark.parametrize("end", [kill, terminate])
@pytest.mark.parametrize("push", [True, False])
def test_a_job_whose_lease_survives_the_broker_is_not_run_twice(
    work: Work, end: Callable[[Work], None], push: bool
) -> None:
    """Two workers run and have prefetched some when the broker dies. They go on; what was leased still is."""
    knobs = {"loop": {"lease": "30s", "concurrency": 3, "prefetch": 3}}
    workers = [work.worker(knobs=knobs, push=push) for _ in range(2)]
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(12)))
    work.journal.wait_for("begin", count=6)
    until(lambda: work.server.counts("loop") == (0, 12), "all are held")
    end(work)
    if push:  # who claims has enough to do, and does not even notice
        for worker in workers:
            worker.wait_for_log("waiting for the broker")
    work.server.start()
    if push:
        for worker in workers:
            worker.wait_for_log("is back")
    work.open()
    until(lambda: work.server.is_done("loop"), "all are done")
    runs = Counter(line.n for line in work.journal.lines("begin"))
    assert runs == Counter(range(12)), "each was begun once"
    work.server.put("loop", {"n": 12})
    work.journal.wait_for("end", n=12)
    for worker in workers:
        assert worker.log().count("waiting for the broker") <= 1, "it is said once, not at every attempt"
        assert worker.stop() == 0


def test_verdicts_reached_while_the_broker_is_away_arrive_afterwards(work: Work) -> None:
    """The handlers end while nobody answers: their acks are sent again while the lease may live."""
    worker = work.worker(knobs={"loop": {"lease": "30s"}})
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(20)))
    work.journal.wait_for("begin", count=20)
    work.server.kill()
    work.open()
    work.journal.wait_for("end", count=20)
    work.server.start()
    until(lambda: work.server.is_done("loop"), "all are acked")
    assert len(work.journal.lines("begin")) == 20
    assert worker.stop() == 0


@pytest.mark.full
def test_many_jobs_flow_while_the_broker_is_killed_again_and_again(work: Work) -> None:
    for _ in range(2):
        work.worker(knobs={"loop": {"lease": "2s"}})
    count = 0
    for _ in range(4):
        work.server.put("loop", *({"n": n} for n in range(count, count + 500)))
        count += 500
        work.journal.wait_for("end", count=count - 400)
        work.server.kill()
        work.server.start()
    until(lambda: work.server.is_done("loop"), "all are done")
    assert {line.n for line in work.journal.lines("end")} == set(range(count))


class Noting(QueueSource):
    """Notes until when it means to wait: when it then runs is the machine's doing."""

    due_ms = 0.0

    def _pause_ms(self) -> float:
        pause_ms = super()._pause_ms()
        self.due_ms = self._timing.now_ms() + pause_ms
        return pause_ms


def source_of(client: AsyncClient, link: Link, on_open: Callable[[Noting], None]) -> Noting:
    """The part of a worker that comes back."""

    async def deliver(jobs: list[HeldJob], claimed_wall_ms: int) -> None:
        raise AssertionError("there are none")

    async def opened() -> None:
        on_open(source)

    async def nothing_is_held() -> None:
        pass

    feed = Feed(
        depth=2,
        spare=1,
        timing=SystemTiming(),
        settings=WorkerSettings(),
        stats=QueueStats(),
        room=lambda: 2,
        deliver=deliver,
        on_open=opened,
        on_cut=nothing_is_held,
        hear_suspects=lambda count: None,
    )
    source = Noting(client, "loop", feed=feed, link=link, lease_ms=30_000, push=True)
    return source


@pytest.mark.full
async def test_fault_36_five_hundred_workers_come_back_without_a_storm(work: Work) -> None:
    """Each waits a time drawn by chance before it knocks again, longer each time: they return spread over seconds."""
    server, loop = work.server, asyncio.get_running_loop()
    await asyncio.to_thread(server.ok, "PUT", "/v0/topics/loop", {"type": "queue"})
    opened: list[float] = []

    def on_open(source: Noting) -> None:
        opened.append(source.due_ms)

    async def all_open() -> None:
        async with asyncio.timeout(4 * PATIENCE_S):
            while len(opened) < SOURCES:
                await asyncio.sleep(0.01)

    settings = ClientSettings(streams_max=SOURCES, connections_max=100)
    async with AsyncClient(server.address, settings=settings) as client:
        link = Link(server.address)
        sources = [source_of(client, link, on_open) for _ in range(SOURCES)]
        for source in sources:
            source.start()
        await all_open()
        await asyncio.to_thread(server.kill)
        opened.clear()
        gone = loop.time()
        while loop.time() < gone + 2:  # long enough for their waits to have grown
            await asyncio.sleep(0.05)
        await asyncio.to_thread(server.start)
        await all_open()
        by_moment = Counter(int(due_ms / 100) for due_ms in opened)
        assert max(by_moment.values()) < SOURCES / 3, f"in the busiest tenth of a second: {by_moment.most_common(3)}"
        await asyncio.gather(*(source.stop() for source in sources))
