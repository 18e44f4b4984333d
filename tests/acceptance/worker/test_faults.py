"""Faults 24, 25, 31, 37 and 38 as a worker meets them."""

from __future__ import annotations

import signal
import time

import pytest

from tests.acceptance.worker.proxy import Proxy
from tests.acceptance.worker.working import Work, until, watch
from tests.kit.restartable_server import PATIENCE_S

LEASE_MS = 600


def test_fault_24_a_worker_stopped_longer_than_its_lease_is_fenced_and_its_handler_told(work: Work) -> None:
    """Somebody else does the job meanwhile; what the first one had not begun, it does not begin."""
    knobs = {"loop": {"lease": LEASE_MS, "concurrency": 1, "prefetch": 3}}
    first = work.worker(knobs=knobs)
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(3)))
    work.journal.wait_for("begin")
    until(lambda: work.server.counts("loop") == (0, 3), "it holds them all")
    first.signal(signal.SIGSTOP)
    until(lambda: work.server.counts("loop")[0] == 3, "the leases have run out")
    work.worker(knobs=knobs)
    work.journal.wait_for("begin", count=2)
    first.signal(signal.SIGCONT)
    (told,) = work.journal.wait_for("cancelled")
    assert (told.pid, told.lost) == (first.process.pid, True)
    work.open()
    until(lambda: work.server.is_done("loop"), "all are done")
    ends = work.journal.lines("end")
    assert sorted(line.n for line in ends) == [0, 1, 2], "each was finished once"


def test_fault_25_a_lease_that_ends_under_a_handler_cancels_it_and_no_verdict_is_sent(work: Work) -> None:
    """An operator gives the job to somebody else: the next heartbeat is skipped, the handler hears of it."""
    work.worker(knobs={"loop": {"lease": LEASE_MS}})
    work.server.put("loop", {"n": 1, "gate": work.gate()})
    (begun,) = work.journal.wait_for("begin")
    (held,) = work.server.ok("GET", "/v0/topics/loop/leases")["leases"]
    work.server.ok("POST", "/v0/topics/loop/nack", {"node": held["node"], "seqs": [1], "delay_ms": 86_400_000})
    (told,) = work.journal.wait_for("cancelled")
    assert (told.seq, told.lost, told.pid) == (1, True, begun.pid)
    assert work.server.queue("loop")["delayed"] == 1, "nothing was said about it afterwards"


def test_a_handler_that_blocks_the_loop_longer_than_its_lease_loses_it_and_the_log_says_why(work: Work) -> None:
    worker = work.worker(knobs={"loop": {"lease": LEASE_MS}})
    work.server.put("loop", {"n": 1, "blocks_ms": 3 * LEASE_MS})
    worker.wait_for_log("the event loop stood still for")
    until(lambda: work.server.is_done("loop"), "it is done again")
    assert [line.deliveries for line in work.journal.lines("begin", n=1)] == [1, 2]


@pytest.mark.parametrize("push", [True, False])
def test_fault_37_a_worker_that_is_told_to_stop_gives_back_at_once_what_it_did_not_begin(
    work: Work, push: bool
) -> None:
    knobs = {"loop": {"concurrency": 2, "prefetch": 10}}
    worker = work.worker(knobs=knobs, push=push)
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(20)))
    work.journal.wait_for("begin", count=2)
    until(lambda: work.server.counts("loop")[1] >= 7, "some are prefetched")
    worker.signal(signal.SIGTERM)
    until(lambda: work.server.counts("loop") == (18, 2), "what was not begun is claimable")
    assert watch(lambda: work.server.counts("loop") == (18, 2), 0.3), "it takes nothing more, and keeps what it runs"
    work.open()
    assert worker.wait() == 0
    assert work.server.counts("loop") == (18, 0)
    assert len(work.journal.lines("end")) == 2, "what ran was finished"
    work.worker(knobs=knobs, push=push)
    until(lambda: work.server.is_done("loop"), "others do the rest")
    assert sorted(line.n for line in work.journal.lines("end")) == list(range(20))


def test_fault_37_what_does_not_finish_in_time_is_cancelled_and_claimable_at_once(work: Work) -> None:
    worker = work.worker(settings={"drain_ms": 200})
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(5)))
    work.journal.wait_for("begin", count=5)
    assert worker.stop() == 0
    assert len(work.journal.lines("cancelled")) == 5
    assert work.server.counts("loop") == (5, 0)
    claim = work.server.ok("POST", "/v0/topics/loop/claim", {"node": "x", "max": 9})
    assert [job["deliveries"] for job in claim["claimed"]] == [2] * 5


def test_fault_37_a_handler_that_will_not_be_cancelled_does_not_keep_the_process(work: Work) -> None:
    worker = work.worker(settings={"drain_ms": 100, "cancel_ms": 100})
    work.server.put("loop", {"gate": work.gate(), "stubborn": True})
    work.journal.wait_for("begin")
    assert worker.stop() == 0
    assert work.server.counts("loop") == (1, 0)


def test_fault_37_a_second_signal_ends_it_at_once(work: Work) -> None:
    worker = work.worker()
    work.server.put("loop", {"gate": work.gate()})
    work.journal.wait_for("begin")
    worker.signal(signal.SIGTERM)
    worker.wait_for_log("stopping")
    assert watch(lambda: worker.process.poll() is None, 0.2)
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0
    assert work.server.counts("loop") == (1, 0)


def test_fault_38_a_worker_that_is_killed_gives_its_jobs_to_others_at_once(work: Work) -> None:
    """Its stream breaks with it, so nobody waits for the lease of a minute: only for it to come back, a moment."""
    knobs = {"loop": {"lease": "60s", "concurrency": 2, "prefetch": 2}}
    first = work.worker(knobs=knobs)
    work.server.put("loop", *({"n": n, "gate": work.gate()} for n in range(4)))
    work.journal.wait_for("begin", count=2)
    until(lambda: work.server.counts("loop") == (0, 4), "it holds them all")
    first.kill()
    work.worker(knobs=knobs, suspects=True)
    work.open()
    until(lambda: work.server.is_done("loop"), "another does them")
    ends = work.journal.lines("end")
    assert [(line.n, line.deliveries) for line in sorted(ends, key=lambda line: line.n)] == [(n, 2) for n in range(4)]


def test_fault_31_a_stream_that_has_gone_silent_is_taken_for_dead_and_opened_anew(work: Work) -> None:
    """The line is cut without a word to either end. Running jobs go on: their heartbeats use other connections."""
    with Proxy(work.server.port) as proxy:
        worker = work.worker(
            wait=False, url=proxy.url, settings={"silence_ms": 400}, knobs={"loop": {"lease": LEASE_MS}}
        )
        worker.wait_until_it_works()
        work.server.put("loop", {"n": 1, "gate": work.gate()})
        work.journal.wait_for("begin", n=1)
        proxy.swallows = True
        worker.wait_for_log("silent")
        proxy.swallows = False
        work.server.put("loop", {"n": 2})  # goes into the line that is dead, and is lost there
        work.worker(url=proxy.url, suspects=True)
        work.journal.wait_for("end", n=2)
        work.server.put("loop", {"n": 3})
        (line,) = work.journal.wait_for("end", n=3)
        assert line.pid == worker.process.pid
        work.open()
        until(lambda: work.server.is_done("loop"), "all are done")
        worker.stop()


def test_jobs_are_claimed_where_a_stream_is_held_back_on_its_way(work: Work) -> None:
    """Something in between keeps the stream for itself: not even the first heartbeat comes."""
    with Proxy(work.server.port) as proxy:
        proxy.swallows = True
        worker = work.worker(wait=False, url=proxy.url, settings={"first_word_ms": 300})
        worker.wait_for_log("they are claimed")
        worker.wait_until_it_works()
        work.server.put("loop", {"n": 1})
        work.journal.wait_for("end", n=1)
        worker.stop()


def test_the_loop_of_a_worker_that_is_cut_off_counts_the_time_itself(work: Work) -> None:
    """Nobody answers its heartbeats, so its own clock tells that the lease is over (fault 24)."""
    worker = work.worker(knobs={"loop": {"lease": LEASE_MS}})
    work.server.put("loop", {"n": 1, "gate": work.gate()})
    work.journal.wait_for("begin")
    began = time.monotonic()
    work.server.signal(signal.SIGSTOP)
    try:
        (told,) = work.journal.wait_for("cancelled")
        assert told.lost
        assert told.at - began <= PATIENCE_S
    finally:
        work.server.signal(signal.SIGCONT)
    work.open()
    work.worker(suspects=True)
    until(lambda: work.server.is_done("loop"), "it is done after all")
    assert worker.stop() == 0
