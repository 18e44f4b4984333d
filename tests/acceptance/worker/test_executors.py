"""Handlers in threads and in processes: what can be stopped is stopped, what cannot is told, and nothing leaks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.worker.working import Work, until, watch


def history(work: Work, queue: str, seq: int = 1) -> list[tuple[str, str | None]]:
    """How each delivery of a job ended, and why."""
    past = work.server.ok("GET", f"/v0/topics/{queue}/jobs/{seq}")["history"]
    return [(delivery["end"], delivery.get("reason")) for delivery in past]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[str]:
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_a_child_that_is_killed_fails_its_job_and_is_replaced(work: Work) -> None:
    """Whoever did it, be it a full memory or a person: the job is given back with the reason (fault 38)."""
    worker = work.worker(queues=("process",), knobs={"process": {"concurrency": 1}})
    work.server.put("process", {"n": 1, "gate": work.gate()})
    (begun,) = work.journal.wait_for("begin")
    assert begun.pid != worker.process.pid
    os.kill(begun.pid, signal.SIGKILL)
    again = work.journal.wait_for("begin", count=2)[1]
    assert again.pid not in (begun.pid, worker.process.pid)
    assert again.deliveries == 2
    ((end, reason),) = history(work, "process")
    assert end == "nack"
    assert reason is not None
    assert reason.startswith("ChildDied: its process was ended by SIGKILL")
    work.open()
    until(lambda: work.server.is_done("process"), "it is done")
    assert worker.stop() == 0


@pytest.mark.full
def test_a_worker_whose_processes_cannot_start_leaves_their_jobs_to_another(work: Work) -> None:
    knobs = {"process": {"concurrency": 1, "prefetch": 2}}
    unable = work.worker(queues=("process",), wait=False, knobs=knobs, child_gate=work.gate())
    unable.wait_for_log("no process of")
    work.worker(queues=("process",), knobs=knobs)
    work.server.put("process", *({"n": n} for n in range(5)))
    until(lambda: work.server.is_done("process"), "all are done")
    assert [line.deliveries for line in work.journal.lines("end")] == [1] * 5, "none was taken for nothing"
    work.open()
    unable.wait_until_it_works()
    assert unable.stop() == 0


def test_no_more_processes_than_jobs_of_the_worker_are_started(work: Work) -> None:
    worker = work.worker(queues=("process",), knobs={"process": {"concurrency": 3}}, concurrency=1)
    work.server.put("process", *({"n": n} for n in range(5)))
    work.journal.wait_for("end", count=5)
    assert len({line.pid for line in work.journal.lines("end")}) == 1
    assert len(children(worker.process.pid)) == 1


def test_a_job_that_takes_all_memory_takes_its_child_and_no_other_job(work: Work) -> None:
    work.worker(queues=("process",), knobs={"process": {"concurrency": 2, "retries": 0}}, memory_mib=2_000)
    work.server.put("process", {"n": 1, "memory_mib": 4_000}, *({"n": n} for n in range(2, 12)))
    until(lambda: work.server.is_done("process"), "all are done")
    assert sorted(line.n for line in work.journal.lines("end")) == list(range(2, 12))
    (letter,) = work.server.letters("process", count=1)
    assert "MemoryError" in letter["meta"]["$dead_letter_reason"]


def test_a_time_limit_kills_the_child_at_once(work: Work) -> None:
    """The handler computes for ever and awaits nothing: nothing but a signal ends it."""
    knobs = {"process": {"concurrency": 1, "time_limit": "2s", "retries": 0}}
    worker = work.worker(queues=("process",), knobs=knobs)
    work.server.put("process", {"n": 1, "gate": work.gate()}, {"n": 2})
    (begun, _) = work.journal.wait_for("begin", count=2)
    until(lambda: not is_alive(begun.pid), "it is gone")
    until(lambda: work.server.is_done("process"), "the other one is done by another child")
    (letter,) = work.server.letters("process", count=1)
    assert "time limit of 2000 ms" in letter["meta"]["$dead_letter_reason"]
    assert worker.stop() == 0


def test_fault_25_a_lost_lease_kills_the_child(work: Work) -> None:
    work.worker(queues=("process",), knobs={"process": {"lease": 600, "concurrency": 1}})
    work.server.put("process", {"n": 1, "gate": work.gate()})
    (begun,) = work.journal.wait_for("begin")
    (held,) = work.server.ok("GET", "/v0/topics/process/leases")["leases"]
    work.server.ok("POST", "/v0/topics/process/nack", {"node": held["node"], "seqs": [1], "delay_ms": 86_400_000})
    until(lambda: not is_alive(begun.pid), "it is gone")
    work.server.put("process", {"n": 2})
    work.journal.wait_for("end", n=2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_worker(work: Work, how: signal.Signals) -> None:
    worker = work.worker(queues=("process",), knobs={"process": {"concurrency": 2}}, settings={"drain_ms": 100})
    work.server.put("process", *({"n": n, "gate": work.gate()} for n in range(2)))
    pids = {line.pid for line in work.journal.wait_for("begin", count=2)}
    assert len(pids) == 2
    worker.signal(how)
    worker.wait()
    until(lambda: not any(map(is_alive, pids)), "they are gone")
    until(lambda: work.server.counts("process") == (2, 0), "their jobs are claimable")


def test_a_thread_whose_lease_is_lost_is_told_and_its_verdict_counts_for_nothing(work: Work) -> None:
    """It cannot be stopped: its place stays taken until it ends by itself."""
    work.worker(queues=("thread",), knobs={"thread": {"lease": 600, "concurrency": 1}})
    work.server.put("thread", {"n": 1, "gate": work.gate(), "stubborn": True}, {"n": 2})
    work.journal.wait_for("begin", n=1)
    (held,) = work.server.ok("GET", "/v0/topics/thread/leases")["leases"]
    work.server.ok("POST", "/v0/topics/thread/nack", {"node": held["node"], "seqs": [1], "delay_ms": 86_400_000})
    work.journal.wait_for("told", n=1)
    assert watch(lambda: not work.journal.lines("begin", n=2), 0.3), "the only place is taken"
    work.open()
    work.journal.wait_for("end", n=2)
    assert work.server.queue("thread")["delayed"] == 1, "what the thread returned was not sent"


def test_a_thread_beyond_its_time_limit_is_told_and_its_job_given_back(work: Work) -> None:
    knobs = {"thread": {"concurrency": 1, "time_limit": 100, "retries": 0}}
    worker = work.worker(queues=("thread",), knobs=knobs, settings={"drain_ms": 100, "cancel_ms": 100})
    work.server.put("thread", {"n": 1, "gate": work.gate(), "stubborn": True})
    work.journal.wait_for("told", n=1)
    until(lambda: work.server.is_done("thread"), "it is dead-lettered")
    assert worker.stop() == 0, "a thread that hangs does not keep the process"


def test_a_thread_that_hangs_does_not_keep_a_drain(work: Work) -> None:
    worker = work.worker(queues=("thread",), settings={"drain_ms": 100, "cancel_ms": 100})
    work.server.put("thread", {"n": 1, "gate": work.gate(), "stubborn": True})
    work.journal.wait_for("begin")
    assert worker.stop() == 0
    assert work.server.counts("thread") == (1, 0)
