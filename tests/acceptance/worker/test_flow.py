"""Jobs through real workers: on the loop, in threads, in processes; pushed or claimed."""

from __future__ import annotations

import pytest

from tests.acceptance.worker.working import Work, until, watch


@pytest.mark.parametrize("queue", ["loop", "thread", "process"])
def test_every_kind_of_handler_does_its_jobs(work: Work, queue: str) -> None:
    worker = work.worker(queues=(queue,))
    work.server.put(queue, *({"n": n} for n in range(50)))
    until(lambda: work.server.is_done(queue), "all are done")
    assert sorted(line.n for line in work.journal.lines("end")) == list(range(50))
    assert worker.stop() == 0


@pytest.mark.parametrize("queue", ["loop", "thread", "process"])
def test_fault_39_what_fails_again_and_again_is_a_dead_letter_with_the_reason(work: Work, queue: str) -> None:
    work.worker(queues=(queue,), knobs={queue: {"retries": 0}})
    work.server.put(queue, {"fail": "no such thing"})
    (letter,) = work.server.letters(queue, count=1)
    until(lambda: work.server.is_done(queue), "it is nowhere else")
    assert letter["data"] == {"fail": "no such thing"}
    assert letter["meta"]["$dead_letter_reason"].startswith("ValueError: no such thing (jobs.py:")


def test_jobs_are_claimed_where_they_are_not_to_be_pushed(work: Work) -> None:
    work.worker(push=False)
    work.server.put("loop", *({"n": n} for n in range(500)))
    until(lambda: work.server.is_done("loop"), "all are done")
    work.server.put("loop", {"n": 500})
    work.journal.wait_for("end", n=500)
    assert len(work.journal.lines("end")) == 501


def test_a_job_five_times_as_long_as_its_lease_is_delivered_once(work: Work) -> None:
    """And so are those that wait behind it: one runs, the others are prefetched, all are kept alive."""
    lease_ms = 500
    work.worker(knobs={"loop": {"lease": lease_ms, "concurrency": 1, "prefetch": 5}})
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(6)))
    work.journal.wait_for("begin")
    until(lambda: work.server.counts("loop") == (0, 6), "one runs and five are prefetched")
    assert watch(lambda: work.server.counts("loop") == (0, 6), 5 * lease_ms / 1000), "nothing came back"
    work.open()
    until(lambda: work.server.is_done("loop"), "all are done")
    assert [line.deliveries for line in work.journal.lines("end")] == [1] * 6


def test_an_idle_worker_uses_no_processor(work: Work) -> None:
    worker = work.worker(queues=("loop", "thread", "other"))
    work.server.put("loop", {"n": 1})
    work.journal.wait_for("end")
    before = worker.cpu_s()
    watch(lambda: True, 2)
    assert worker.cpu_s() - before <= 0.05


@pytest.mark.full
def test_a_worker_waits_for_a_broker_that_is_not_there_yet(work: Work) -> None:
    work.server.terminate()
    worker = work.worker(wait=False)
    worker.wait_for_log("waiting for the broker")
    work.server.start()
    worker.wait_until_it_works()
    work.server.put("loop", {"n": 1})
    work.journal.wait_for("end")
    assert worker.log().count("waiting for the broker") == 1, "it is said once, not at every attempt"


@pytest.mark.full
def test_it_stops_while_the_broker_is_not_there(work: Work) -> None:
    work.server.terminate()
    worker = work.worker(wait=False)
    worker.wait_for_log("waiting for the broker")
    assert worker.stop() == 0
