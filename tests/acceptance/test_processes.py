"""Two openers, stopped processes, no more file handles: what only real processes can show."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure import Broker
from tests.acceptance.processes import RemoteBroker

QUEUE = {"type": "queue", "durability": "fsync"}
SMALL = {"segment_bytes": 1 << 16}
SHORT_LEASE_MS = 200
LONG_LEASE_MS = 3_600_000


def wait_past_short_lease() -> None:
    """Return once a short lease that was claimed before this call has ended, by the clock that leases run on."""
    end_s = time.clock_gettime(time.CLOCK_BOOTTIME) + SHORT_LEASE_MS / 1000
    while time.clock_gettime(time.CLOCK_BOOTTIME) <= end_s:
        time.sleep(0.01)


def test_fault_16_a_second_process_is_refused_also_through_a_symlink_and_gets_it_after_a_kill(tmp_path: Path) -> None:
    home, link = tmp_path / "data", tmp_path / "link"
    with RemoteBroker() as first, RemoteBroker() as second:
        first.call("open", home=str(home))
        link.symlink_to(home)
        first.call("put_topic", topic="q", config=QUEUE)
        first.call("produce", topic="q", records=["1"])
        for path in (home, link):
            assert second.refused("open", home=str(path)) == ("Conflict", "locked")
        first.call("produce", topic="q", records=["2"])
        assert first.call("claim", topic="q", node="w", max_count=5)["seqs"] == [1, 2]
        first.signal(signal.SIGKILL)
        first.process.wait()
        second.call("open", home=str(link))
        assert second.call("count", topic="q") == 2
        with RemoteBroker() as third:
            assert third.refused("open", home=str(home)) == ("Conflict", "locked")
        assert second.call("ack", topic="q", node="w", seqs=[1, 2]) == {"count": 2, "skipped": []}


def test_fault_16_a_stopped_owner_still_owns_the_directory(tmp_path: Path) -> None:
    """Fault 16: stopped is not dead; nobody else may write behind its back."""
    with RemoteBroker() as first, RemoteBroker() as second:
        first.call("open", home=str(tmp_path))
        first.call("put_topic", topic="q", config=QUEUE)
        first.signal(signal.SIGSTOP)
        assert second.refused("open", home=str(tmp_path)) == ("Conflict", "locked")
        first.signal(signal.SIGCONT)
        assert first.call("produce", topic="q", records=["1"])["first_seq"] == 1


def test_fault_23_a_server_stopped_longer_than_a_lease_hands_the_work_on_when_it_wakes(tmp_path: Path) -> None:
    with RemoteBroker() as broker:
        broker.call("open", home=str(tmp_path))
        broker.call("put_topic", topic="q", config={**QUEUE, "lease_ms": SHORT_LEASE_MS})
        broker.call("produce", topic="q", records=["1", "2"])
        first = broker.call("claim", topic="q", node="w")
        broker.signal(signal.SIGSTOP)
        broker.send("ack", topic="q", node="w", seqs=first["seqs"])
        wait_past_short_lease()
        broker.signal(signal.SIGCONT)
        assert broker.answer() == {"ok": {"count": 0, "skipped": [1]}}, "sent in time, but carried out too late"
        second = broker.call("claim", topic="q", node="other", lease_ms=LONG_LEASE_MS)
        assert (second["seqs"], second["redelivered"]) == ([1], [2])
        assert broker.call("claim", topic="q", node="third")["seqs"] == [2]


def test_fault_23_a_server_killed_and_down_longer_than_a_lease_hands_the_work_on(tmp_path: Path) -> None:
    """Faults 22, 23: the time it was down counts, by the machine's uptime."""
    with RemoteBroker() as broker:
        broker.call("open", home=str(tmp_path))
        broker.call("put_topic", topic="q", config=QUEUE)
        broker.call("produce", topic="q", records=["1", "2"])
        assert broker.call("claim", topic="q", node="long", lease_ms=LONG_LEASE_MS)["seqs"] == [1]
        broker.call("claim", topic="q", node="short", lease_ms=SHORT_LEASE_MS)
    wait_past_short_lease()
    with RemoteBroker() as again:
        again.call("open", home=str(tmp_path))
        claim = again.call("claim", topic="q", node="other", max_count=5)
        assert (claim["seqs"], claim["redelivered"]) == ([2], [2])
        assert again.call("ack", topic="q", node="long", seqs=[1])["count"] == 1


WORKER = """
import sys
for line in sys.stdin:
    print("done", line.strip(), flush=True)
"""


async def test_fault_24_a_worker_stopped_past_its_lease_is_fenced_when_it_comes_back(tmp_path: Path) -> None:
    """Fault 24: a worker process is stopped with a job in its hands; another gets the job; its own ack is skipped."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        async with await Broker.open(tmp_path) as broker:
            await broker.put_topic("q", {**QUEUE, "lease_ms": SHORT_LEASE_MS})
            await broker.produce("q", [b"1"])
            job = await broker.claim("q", node="stopped")
            worker.send_signal(signal.SIGSTOP)
            worker.stdin.write(f"{job.lease_id}\n")
            worker.stdin.flush()
            other = await broker.claim("q", node="other", lease_ms=60_000, wait_ms=30_000)
            assert other.seqs == job.seqs
            assert other.deliveries(1) == 2
            worker.send_signal(signal.SIGCONT)
            assert worker.stdout.readline() == f"done {job.lease_id}\n"
            late = {"node": "stopped", "seqs": job.seqs}
            assert (await broker.ack("q", **late)).skipped == [1]  # type: ignore[arg-type]
            assert (await broker.extend("q", lease_ms=60_000, **late)).skipped == [1]  # type: ignore[arg-type]
            assert (await broker.nack("q", **late)).skipped == [1]  # type: ignore[arg-type]
            assert other.lease > job.lease, "downstream, the higher fencing number wins"
            assert (await broker.ack("q", node="other", seqs=[1])).count == 1
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_fault_19_a_process_without_file_handles_sheds_load_and_keeps_its_log(tmp_path: Path, spare: int) -> None:
    """Fault 19 with a real limit: no new segment can be opened, acks go on, and it recovers with the handles."""
    with RemoteBroker() as broker:
        broker.call("open", home=str(tmp_path), **SMALL)
        broker.call("put_topic", topic="q", config=QUEUE)
        broker.call("produce", topic="q", records=["1"])
        claim = broker.call("claim", topic="q", node="w")
        broker.call("limit_files", spare=spare)
        acknowledged = broker.call("fill", topic="q", size=2_000, count_max=400)
        assert 0 < acknowledged < 400
        assert broker.refused("produce", topic="q", records=['"%s"' % ("." * 5_000)]) == ("Overloaded", "throttled")
        assert broker.call("ack", topic="q", node="w", seqs=claim["seqs"])["count"] == 1
        broker.call("free_files")
        broker.call("produce", topic="q", records=["2"])
        assert broker.call("fill", topic="q", size=2_000, count_max=100) == 100
    with RemoteBroker() as again:
        again.call("open", home=str(tmp_path), **SMALL)
        assert again.call("count", topic="q") == acknowledged + 101


def test_fault_17_a_directory_removed_under_a_running_process_acknowledges_nothing_more(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with RemoteBroker() as broker:
        broker.call("open", home=str(home))
        broker.call("put_topic", topic="q", config=QUEUE)
        broker.call("produce", topic="q", records=["1"])
        shutil.rmtree(home)
        assert broker.refused("produce", topic="q", records=["2"])[0] in ("Indeterminate", "Closed")
        assert broker.refused("produce", topic="q", records=["3"])[0] == "Closed"
        assert broker.call("count", topic="q") >= 1


def test_a_clean_close_lets_the_next_process_in_at_once(tmp_path: Path) -> None:
    with RemoteBroker() as first, RemoteBroker() as second:
        first.call("open", home=str(tmp_path))
        first.call("put_topic", topic="q", config=QUEUE)
        first.call("produce", topic="q", records=["1"])
        first.call("close")
        second.call("open", home=str(tmp_path))
        assert second.call("count", topic="q") == 1


@pytest.mark.parametrize("lives", [3])
def test_fault_30_what_was_synced_before_a_kill_is_there_whether_or_not_the_answer_came(
    tmp_path: Path, lives: int
) -> None:
    """Fault 30: a produce sent to a process that is killed at once is there once or not at all, never half."""
    total = 0
    for _ in range(lives):
        with RemoteBroker() as broker:
            broker.call("open", home=str(tmp_path))
            broker.call("put_topic", topic="q", config=QUEUE)
            assert broker.call("count", topic="q") in (total, total + 100)
            total = broker.call("count", topic="q")
            broker.send("produce", topic="q", records=[str(number) for number in range(100)])
            broker.signal(signal.SIGKILL)
    assert asyncio.run(_count(tmp_path)) in (total, total + 100)


async def _count(home: Path) -> int:
    async with await Broker.open(home) as broker:
        return broker.topic("q").count
