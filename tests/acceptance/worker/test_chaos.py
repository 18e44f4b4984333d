"""Jobs flow through real workers while these are killed, stopped, starved of memory and drained, and the broker too.

What "out of memory" means here: a handler takes memory until the kernel refuses more (RLIMIT_AS), and its whole worker
aborts. The broker and the others see the same as of the kernel's own killer: a process that is gone without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.acceptance.worker.chaos import LEASE_MS, Fleet, Flow
from tests.acceptance.worker.chaos_check import Verdict, judge
from tests.acceptance.worker.chaos_log import read_log

WORKERS = 4
FAULTS = ("kill", "kill", "stop", "stop", "memory", "drain", "drain", "broker", "broker")
Orders = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    made = Fleet(tmp_path, Random(request.node.callspec.params["seed"]))
    try:
        yield made
    finally:
        made.close()


def make_orders(random: Random, count: int, *, hungry: list[int]) -> Orders:
    """Most are short, some take longer than their lease; a fifth goes to threads."""
    orders: Orders = []
    for number in range(count):
        if number in hungry:
            orders.append(("loop", {"id": f"hungry-{number}", "eats": True}))
            continue
        draw = random.random()
        takes_ms = random.randrange(5) if draw < 0.8 else random.randrange(20, 100)
        if draw > 0.99:
            takes_ms = random.randrange(LEASE_MS + 100, LEASE_MS + 1_000)
        where = "thread" if random.random() < 0.2 else "loop"
        order = {"id": f"{where}-{number}", "takes_ms": takes_ms}
        orders.append((where, order | {"asks": where == "loop" and random.random() < 0.25}))
    return orders


def run(fleet: Fleet, *, count: int, faults: list[str]) -> tuple[Verdict, Flow]:
    """Let all jobs flow, with a fault after each equal part of them."""
    random = fleet.random
    random.shuffle(faults)
    part = count // (len(faults) + 1)
    hungry = [part * index + part // 2 for index, fault in enumerate(faults, start=1) if fault == "memory"]
    does: dict[str, Callable[[], None]] = {
        "kill": fleet.kill_a_worker,
        "stop": fleet.stop_a_worker,
        "drain": fleet.drain_a_worker,
        "broker": fleet.kill_the_broker,
        "memory": lambda: fleet.until(lambda: fleet.done["out of memory"] > starved, "a worker ran out of memory"),
    }
    fleet.start(WORKERS)
    until_declared(fleet)
    flow = Flow(fleet.server.address, make_orders(random, count, hungry=hungry))
    flow.start()
    try:
        for index, fault in enumerate(faults, start=1):
            starved = fleet.done["out of memory"]
            flow.allow(part * (index + 1))
            fleet.until_ended(part * index - part // 2)
            does[fault]()
        flow.finish()
        fleet.until(fleet.empty, "all jobs are done")
    finally:
        flow.abandon()
    fleet.end()
    fates = {worker.node: worker.story for worker in fleet.workers}
    logged = read_log(fleet.server.home)
    return judge(fleet.noted, logged, sent=flow.sent, acknowledged=flow.acknowledged, fates=fates), flow


def until_declared(fleet: Fleet) -> None:
    """The workers declare the queues."""
    fleet.until(lambda: fleet.server.call("GET", "/v0/topics/thread").status_code == 200, "the queues are there")


def hold(fleet: Fleet, *, count: int, faults: list[str], record: Callable[[str, object], None]) -> None:
    wanted = {"kill": "killed", "stop": "stopped past its lease", "memory": "out of memory"}
    wanted |= {"drain": "drained", "broker": "broker killed"}
    verdict, flow = run(fleet, count=count, faults=list(faults))
    print(f"{verdict}; {dict(fleet.done)}")
    record("handled again", verdict.again.total())
    record("handled again by cause", dict(verdict.again))
    record("finished twice", verdict.finished_again)
    record("lost without a cause", verdict.unprovoked)
    record("faults", dict(fleet.done))
    assert len(flow.acknowledged) == count
    assert not verdict.never_handled, f"{len(verdict.never_handled)}: {verdict.never_handled[:10]}"
    assert not verdict.problems, f"{len(verdict.problems)}: {verdict.problems[:10]}"
    assert verdict.report.ok, str(verdict.report)
    # A hundredth of the jobs take longer than their lease; a busy machine may cost a lease now and then.
    assert verdict.unprovoked < count // 200, "heartbeats keep what runs for long"
    assert {wanted[fault]: faults.count(fault) for fault in faults} == dict(fleet.done), "every fault happened"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [4])
def test_faults_24_37_38_ten_thousand_jobs_outlive_their_workers_and_their_broker(
    fleet: Fleet, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Every job is handled, the history is clean, and twice is handled only what a worker had lost."""
    print(f"seed {seed}")
    hold(fleet, count=10_000, faults=list(FAULTS), record=record_property)


@pytest.mark.full
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(3))
def test_faults_24_37_38_a_hundred_thousand_jobs_outlive_four_times_as_much(
    fleet: Fleet, seed: int, record_property: Callable[[str, object], None]
) -> None:
    print(f"seed {seed}")
    hold(fleet, count=100_000, faults=list(FAULTS) * 4, record=record_property)
