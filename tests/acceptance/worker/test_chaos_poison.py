"""A job that kills every worker it meets: it is given up after so many deaths, and nothing else suffers from it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.worker.chaos import Worker
from tests.acceptance.worker.chaos_log import read_log
from tests.acceptance.worker.working import FixedServing, until

DELIVERIES_MAX = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FixedServing]:
    made = FixedServing(tmp_path / "data")
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_faults_38_39_a_job_that_kills_its_workers_is_a_dead_letter_once(server: FixedServing, tmp_path: Path) -> None:
    """Three workers die of it, one after the other; the fourth finds it gone, and does the rest."""
    config = {"type": "queue", "durability": "fsync", "max_deliveries": DELIVERIES_MAX, "dead_letter": "poison.dead"}
    server.ok("PUT", "/v0/topics/poison", config)
    ids = [f"fine-{number}" for number in range(20)]
    orders: list[dict[str, object]] = [{"id": id} for id in ids]
    orders.insert(10, {"id": "deadly", "kills": True})
    server.put("poison", *orders)
    workers: list[Worker] = []
    try:
        for number in range(DELIVERIES_MAX):
            workers.append(Worker(f"w{number}", server.address, tmp_path))
            assert workers[-1].process.wait(60) == -signal.SIGKILL
        workers.append(Worker("last", server.address, tmp_path))
        until(lambda: server.is_done("poison"), "the rest is done")
        until(lambda: workers[-1].listens, "it takes signals")
        workers[-1].signal(signal.SIGTERM, "ended")
        assert workers[-1].process.wait(60) == 0
        (letter,) = server.ok("POST", "/v0/topics/poison.dead/diff", {})["records"]
        assert server.ok("GET", "/v0/topics/poison")["count"] == 0
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait(60)
    assert letter["data"]["id"] == "deadly"
    assert letter["meta"]["$dead_letter_deliveries"] == DELIVERIES_MAX
    noted = [line for worker in workers for line in worker.read()]
    assert Counter(line.id for line in noted if line.event == "end") == dict.fromkeys(ids, 1)
    assert [line.node for line in noted if line.id == "deadly"] == ["w0", "w1", "w2"]
    server.terminate()
    logged = read_log(server.home)
    assert not logged.problems
    assert [held.how for held in logged.queues["poison"].held[11]] == ["disconnect"] * DELIVERIES_MAX
