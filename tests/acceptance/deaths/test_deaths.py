"""A job that kills its worker, again and again, costs no other job a try: with the defaults that users have.

The slice that always runs takes a minute; the whole matrix runs with `make test-full`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deaths.fleet import TRIES_MAX, Fleet, fleet, fleet_of_members
from tests.acceptance.worker.proxy import Proxy
from tests.kit.restartable_server import until

QUICK: dict[str, Any] = {"engine.lost_grace_ms": 1_000, "engine.begun_retry_ms": 100}
"""Waits of the broker that are short, where a test is about what happens after them."""
SHARED_DEATHS_MAX = 3
REASON = re.compile(r"its worker was lost 5 times while running it \(last: [^,]+(, exit code -?\d+)?\)")


def orders(count: int, *, takes_ms: int, poisons: int) -> list[dict[str, Any]]:
    """Healthy jobs with poisoned ones among them."""
    found: list[dict[str, Any]] = [{"n": n, "takes_ms": takes_ms} for n in range(count)]
    for number in range(poisons):
        at = min(3 + 7 * number, count)
        found.insert(at, {"n": 1_000_000 + number, "takes_ms": 100, "kills": True})
    return found


def hold_to_the_bar(
    made: Fleet,
    count: int,
    *,
    queue: str,
    poisons: int = 1,
    poison_queue: str = "",
    escapes_max: int = 0,
    within_s: float,
) -> None:
    """Wait for the end and judge it: every healthy job ran, none is dead; each poison is, for its own tries.
    ``escapes_max`` deaths may have met a broker that was just lost, which blames nobody.
    """
    poison_queue = poison_queue or queue

    def is_done() -> bool:
        made.server.check_alive()
        return len(made.ended()) == count and len(made.letters(poison_queue)) == poisons

    started = time.monotonic()
    while not is_done():
        ended, dead = len(made.ended()), len(made.letters(poison_queue))
        state = f"{ended} of {count} ended, {dead} letters, {made.queue(queue)}"
        assert time.monotonic() - started < within_s, f"{state}\n{made.workers[0].log()[-6000:]}"
        time.sleep(0.1)
    letters = [letter for name in {queue, poison_queue} for letter in made.letters(name)]
    assert [letter for letter in letters if letter["data"]["n"] < 1_000_000] == [], "a healthy job is dead"
    for letter in letters:
        reason = letter["meta"]["$dead_letter_reason"]
        assert REASON.fullmatch(reason), reason
        begun = [line for line in made.lines("begin", kills=True) if line.n == letter["data"]["n"]]
        assert TRIES_MAX <= len(begun) <= TRIES_MAX + SHARED_DEATHS_MAX + escapes_max, len(begun)


def live(
    directory: Path,
    *arguments: str,
    count: int,
    poisons: int = 1,
    two_queues: bool = False,
    settings: dict[str, Any] = QUICK,
    takes_ms: int = 1_000,
    within_s: float = 90,
    **environment: str,
) -> None:
    """Play one case from its start to its end."""
    with fleet(directory, settings=settings, **environment) as made:
        made.declare("healthy", "other")
        if two_queues:
            made.put("healthy", orders(count, takes_ms=takes_ms, poisons=0))
            made.put("other", [{"n": 1_000_000 + n, "takes_ms": 100, "kills": True} for n in range(poisons)])
        else:
            made.put("healthy", orders(count, takes_ms=takes_ms, poisons=poisons))
        made.worker(*arguments)
        poison_queue = "other" if two_queues else "healthy"
        hold_to_the_bar(made, count, queue="healthy", poisons=poisons, poison_queue=poison_queue, within_s=within_s)


@pytest.mark.timeout(150)
def test_a_job_that_kills_its_process_buries_nobody_of_another_queue(tmp_path: Path) -> None:
    live(tmp_path, "--processes", "2", count=60, two_queues=True)


@pytest.mark.timeout(150)
def test_a_job_that_kills_the_whole_container_buries_nobody_of_its_own_queue(tmp_path: Path) -> None:
    live(tmp_path, count=20, takes_ms=300, DEATHS_POISON="all", DEATHS_LEASE_MS="4000")


Case = tuple[int, str, int, str, bool, int]
CASES: list[Case] = [
    *((n, "async", 2, "self", True, 1) for n in (10, 60, 150, 300, 500)),
    *((n, "async", 0, "self", False, 1) for n in (10, 60, 150, 300, 500)),
    *((n, "async", 8, "all", False, 1) for n in (10, 60, 150, 300, 500)),
    *((60, "async", processes, poison, False, 2) for processes in (0, 2, 8) for poison in ("self", "all")),
    *((60, kind, processes, "self", False, 1) for kind in ("thread", "process") for processes in (0, 2)),
    *((60, kind, 2, "all", True, 2) for kind in ("thread", "process")),
]
MATRIX = [pytest.param(*case, id="-".join(map(str, case))) for case in CASES]


@pytest.mark.full
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(("count", "kind", "processes", "poison", "two_queues", "poisons"), MATRIX)
def test_no_healthy_job_dies_of_a_neighbour_that_kills(
    tmp_path: Path, count: int, kind: str, processes: int, poison: str, two_queues: bool, poisons: int
) -> None:
    arguments = ("--processes", str(processes)) if processes else ()
    live(
        tmp_path,
        *arguments,
        count=count,
        poisons=poisons,
        two_queues=two_queues,
        settings={},
        within_s=1_200,
        DEATHS_KIND=kind,
        DEATHS_POISON=poison,
    )


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_healthy_job_dies_where_jobs_are_claimed_and_not_pushed(tmp_path: Path) -> None:
    live(tmp_path, "--processes", "2", "--no-push", count=60, two_queues=True, within_s=600, DEATHS_LEASE_MS="5000")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_healthy_job_dies_where_a_proxy_keeps_the_end_of_connections_to_itself(tmp_path: Path) -> None:
    """The whole container dies, and the broker sees no connection end: only deadlines tell."""
    with (
        fleet(tmp_path, settings=QUICK, DEATHS_POISON="all", DEATHS_LEASE_MS="4000") as made,
        Proxy(made.port, loses_ends=True) as proxy,
    ):
        made.declare("healthy")
        made.put("healthy", orders(30, takes_ms=300, poisons=1))
        worker = made.worker("--processes", "2", DEATHS_URL=proxy.url)
        hold_to_the_bar(made, 30, queue="healthy", within_s=400)
        worker.stop()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_healthy_job_dies_while_the_broker_is_killed_in_the_middle(tmp_path: Path) -> None:
    with fleet(tmp_path, settings=QUICK) as made:
        lose_the_broker(made)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_healthy_job_dies_while_another_member_takes_over_in_the_middle(tmp_path: Path) -> None:
    with fleet_of_members(tmp_path, settings=QUICK) as made:
        lose_the_broker(made)


def lose_the_broker(made: Fleet) -> None:
    """Lose it three times, each as a job kills its worker."""
    made.declare("healthy")
    made.put("healthy", orders(60, takes_ms=1_000, poisons=1))
    made.worker("--processes", "2")
    moments = (1, 3, 5)
    for deaths in moments:
        until(lambda: len(made.lines("begin", kills=True)) >= deaths, "it kills", within_s=120)  # noqa: B023
        made.server.lose()
    hold_to_the_bar(made, 60, queue="healthy", escapes_max=len(moments), within_s=300)


@pytest.mark.timeout(150)
def test_a_handler_that_blocks_the_loop_for_longer_than_its_lease_costs_its_neighbours_no_try(tmp_path: Path) -> None:
    with fleet(tmp_path, settings=QUICK, DEATHS_LEASE_MS="3000") as made:
        made.declare("healthy", "other")
        made.put("healthy", [{"n": n, "takes_ms": 500} for n in range(40)])
        made.put("other", [{"n": 1_000_000, "takes_ms": 5_000, "blocks": True}])
        worker = made.worker()
        until(lambda: made.queue("healthy")["suspects"] > 0, "their leases run out", within_s=60)
        rows = made.ok("GET", "/v0/topics/healthy/jobs?state=suspect")["jobs"]
        assert {row["tries"] for row in rows} == {0}, "no try is lost"
        until(lambda: made.is_done("healthy"), "all of them are done", within_s=90)
        assert not made.letters("healthy")
        until(lambda: "blocks" in worker.log(), "the log says so")
        assert re.search(r"job 1 of other", worker.log()), worker.log()


@pytest.mark.timeout(150)
def test_a_proxy_that_cuts_every_stream_has_each_job_run_once(tmp_path: Path) -> None:
    with fleet(tmp_path) as made, Proxy(made.port, stream_age_s=1) as proxy:
        made.declare("healthy")
        made.put("healthy", [{"n": n, "takes_ms": 3_000} for n in range(40)])
        made.worker(DEATHS_URL=proxy.url)
        until(lambda: len(made.lines("end")) >= 40, "all of them end", within_s=90)
        until(lambda: made.is_done("healthy"), "all of them are acked")
        assert proxy.cut_count >= 2
        assert set(Counter(line.n for line in made.lines("begin")).values()) == {1}, "each was begun once"


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_stream_that_lives_for_four_seconds_has_jobs_of_twelve_run_once(tmp_path: Path) -> None:
    with fleet(tmp_path) as made, Proxy(made.port, stream_age_s=4) as proxy:
        made.declare("healthy")
        made.put("healthy", [{"n": n, "takes_ms": 12_000} for n in range(100)])
        made.worker("--processes", "2", DEATHS_URL=proxy.url)
        until(lambda: len(made.lines("end")) >= 100, "all of them end", within_s=300)
        until(lambda: made.is_done("healthy"), "all of them are acked")
        assert set(Counter(line.n for line in made.lines("begin")).values()) == {1}


@pytest.mark.timeout(150)
def test_deploys_under_jobs_that_are_longer_than_the_drain_cost_no_try(tmp_path: Path) -> None:
    roll(tmp_path, deploys=3, workers=2, jobs=20, takes_ms=20_000)


@pytest.mark.full
@pytest.mark.timeout(1_500)
def test_twenty_rolling_deploys_of_eight_workers_cost_no_try(tmp_path: Path) -> None:
    roll(tmp_path, deploys=20, workers=8, jobs=100, takes_ms=60_000)


def roll(directory: Path, *, deploys: int, workers: int, jobs: int, takes_ms: int) -> None:
    """Deploy again and again while jobs run that no drain waits for, and that take longer than a deploy of all workers;
    then let them come to their end.
    """
    with fleet(directory) as made:
        made.declare("healthy", tries_max=3)
        made.put("healthy", [{"n": n, "takes_ms": takes_ms} for n in range(jobs)])
        started = [made.worker("--drain", "500ms") for _ in range(workers)]
        until(lambda: len(made.lines("begin")) >= jobs, "all of them run", within_s=60)
        for _ in range(deploys):
            begun = len(made.lines("begin"))
            for worker in started:
                worker.restart()
            until(lambda: len(made.lines("begin")) > begun, "what was returned is run", within_s=60)  # noqa: B023
        rows = [row for state in ("ready", "in_flight") for row in jobs_in(made, state)]
        assert max(row.get("tries", row["deliveries"]) for row in rows) <= 1, rows
        until(lambda: len(made.ended()) == jobs, "all of them end", within_s=200)
        assert not made.letters("healthy")


def jobs_in(made: Fleet, state: str) -> list[Any]:
    """The jobs of the queue in a state."""
    return list(made.ok("GET", f"/v0/topics/healthy/jobs?state={state}&limit=1000")["jobs"])


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_suspect_of_an_hour_stops_nobody(tmp_path: Path) -> None:
    """It was lost twice, runs alone, and the job that kills waits behind it for its own trial."""
    with fleet(tmp_path, settings=QUICK) as made:
        made.declare("healthy")
        long = {"n": 500_000, "takes_ms": 3_600_000}
        made.put("healthy", [long, *orders(40, takes_ms=500, poisons=1)])
        made.worker("--processes", "2")
        hold_to_the_bar(made, 40, queue="healthy", within_s=600)
        assert len([line for line in made.lines("begin") if line.n == 500_000]) >= 2
        assert (made.queue("healthy")["ready"], made.queue("healthy")["in_flight"]) == (0, 1), "it still runs"


@pytest.mark.full
@pytest.mark.timeout(900)
def test_fresh_work_goes_on_at_half_the_pace_at_least_while_suspects_are_run(tmp_path: Path) -> None:
    """Jobs of a minute, sixty times faster: 2 processes with 100 slots each, and one death among them."""
    with fleet(tmp_path, settings=QUICK) as made:
        made.declare("healthy")
        made.put("healthy", [{"n": n, "takes_ms": 1_000} for n in range(1_500)])
        made.worker("--processes", "2")
        until(lambda: len(made.ended()) >= 600, "it works", within_s=60)
        undisturbed = pace(made, range(1_000_000))
        made.put("healthy", [{"n": 1_000_000, "takes_ms": 100, "kills": True, "once": True}])
        made.put("healthy", [{"n": n, "takes_ms": 1_000} for n in range(2_000, 6_000)])
        until(lambda: len(made.lines("begin", kills=True)) >= 1, "it kills", within_s=60)
        died = time.monotonic()
        until(lambda: made.queue("healthy")["suspects"] > 0, "suspects wait", within_s=30)
        until(lambda: not made.queue("healthy")["suspects"] or not fresh_left(made), "they end", within_s=300)
        disturbed = pace(made, range(2_000, 6_000), since=died)
        print(f"fresh work: {undisturbed:.0f}/s undisturbed, {disturbed:.0f}/s meanwhile")
        assert disturbed >= 0.5 * undisturbed


def fresh_left(made: Fleet) -> bool:
    return made.queue("healthy")["ready"] > made.queue("healthy")["suspects"]


def pace(made: Fleet, numbers: range, *, since: float = 0) -> float:
    """How many of these jobs ended in a second, from a moment on."""
    ends = [line.at for line in made.lines("end", kills=False) if line.n in numbers and line.at >= since]
    return len(ends) / (max(ends) - (since or min(ends)))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_hundred_drains_in_the_middle_of_a_thousand_jobs_cost_no_try(tmp_path: Path) -> None:
    with fleet(tmp_path) as made:
        made.declare("healthy", tries_max=3)
        made.put("healthy", [{"n": n, "takes_ms": 2_000} for n in range(1_000)])
        worker = made.worker("--drain", "0s")
        for _ in range(100):
            begun = len(made.lines("begin"))
            until(lambda: len(made.lines("begin")) > begun, "it works", within_s=60)  # noqa: B023
            worker.restart()
        until(lambda: len(made.ended()) == 1_000, "all of them end", within_s=400)
        assert not made.letters("healthy")
