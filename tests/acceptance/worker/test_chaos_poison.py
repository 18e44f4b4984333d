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
    """The ordinary worker dies of it, then the one for suspects: there it runs alone in the end, as often as is tried.
    Beside it are fresh jobs, and those that only stood beside it.
    """
    config = {"type": "queue", "durability": "fsync", "max_deliveries": DELIVERIES_MAX, "dead_letter": "poison.dead"}
    server.ok("PUT", "/v0/topics/poison", config)
    ids = [f"fine-{number}" for number in range(20)]
    orders: list[dict[str, object]] = [{"id": id} for id in ids]
    orders.insert(10, {"id": "deadly", "kills": True})
    server.put("poison", *orders)
    worker = Worker("w1", server.address, tmp_path)
    try:
        (letter,) = server.letters("poison", count=1)
        until(lambda: server.is_done("poison"), "the rest is done")
        worker.signal(signal.SIGTERM, "ended")
        assert worker.process.wait(60) == 0
        assert server.ok("GET", "/v0/topics/poison")["count"] == 0
        said = worker.log.read_text()
    finally:
        worker.kill()
    assert letter["data"]["id"] == "deadly"
    reason = letter["meta"]["$dead_letter_reason"]
    assert reason.startswith(f"its worker was lost {DELIVERIES_MAX} times while running it")
    assert "exit code 137" in reason
    noted = worker.read()
    assert Counter(line.id for line in noted if line.event == "end") == dict.fromkeys(ids, 1)
    deaths = [line for line in noted if line.id == "deadly"]
    assert len({line.pid for line in deaths}) == len(deaths) == DELIVERIES_MAX + 2, "twice as one of several"
    assert said.count("was ended by SIGKILL while it ran job 11 of poison") == len(deaths)
    server.terminate()
    logged = read_log(server.home)
    assert not logged.problems
    assert [held.how for held in logged.queues["poison"].held[11]] == ["lost"] * len(deaths)
