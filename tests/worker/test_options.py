"""Every knob is checked when its task is declared, and has a safe default."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tenure.durations import Rate
from tenure.errors import Invalid
from tenure.worker.backoff import Exponential, Fixed
from tenure.worker.options import TaskOptions
from tenure.worker.verdict import AckPolicy


def options(queue: str = "emails", *, is_async: bool = True, **knobs: Any) -> TaskOptions:
    return TaskOptions.of(queue, knobs, is_async=is_async)  # type: ignore[arg-type]


def test_a_task_without_knobs_is_safe():
    plain = options()
    assert plain.queue_config() == {
        "type": "queue",
        "durability": "fsync",
        "lease_ms": 30_000,
        "max_deliveries": 5,
        "dead_letter": "emails.dead",
    }
    assert (plain.policy, plain.retries, plain.push, plain.explicit) == (AckPolicy.NACK_ON_ERROR, 3, True, frozenset())


def test_every_knob_reaches_the_options():
    backoff = Fixed("1s")
    given = options(
        retries=7,
        backoff=backoff,
        lease="1m",
        concurrency=8,
        prefetch=2,
        rate="100/s",
        time_limit="90s",
        policy=AckPolicy.MANUAL,
        weight=3,
        run="process",
        max_deliveries=0,
        dead_letter="graveyard",
        durability="disk",
        push=False,
    )
    assert given == TaskOptions(
        queue="emails",
        retries=7,
        backoff=backoff,
        lease_ms=60_000,
        concurrency=8,
        prefetch=2,
        rate=Rate(100, 1_000),
        time_limit_ms=90_000,
        policy=AckPolicy.MANUAL,
        weight=3,
        run="process",
        max_deliveries=0,
        dead_letter="graveyard",
        durability="disk",
        push=False,
        explicit=given.explicit,
    )
    assert len(given.explicit) == 14


@pytest.mark.parametrize(("retries", "deliveries"), [(0, 5), (3, 5), (4, 6), (5, 7), (40, 42)])
def test_a_queue_delivers_twice_more_than_its_retries_and_at_least_five_times(retries: int, deliveries: int):
    assert options(retries=retries).max_deliveries == deliveries


@pytest.mark.parametrize(
    ("is_async", "run", "place", "concurrency"),
    [
        (True, "auto", "loop", 100),
        (True, "loop", "loop", 100),
        (True, "process", "process", os.cpu_count()),
        (False, "auto", "thread", 10),
        (False, "thread", "thread", 10),
        (False, "process", "process", os.cpu_count()),
    ],
)
def test_where_a_handler_runs_follows_from_what_it_is(is_async: bool, run: str, place: str, concurrency: int):
    chosen = options(is_async=is_async, run=run)
    assert (chosen.run, chosen.concurrency, chosen.prefetch) == (place, concurrency, concurrency)


@pytest.mark.parametrize(("is_async", "run"), [(False, "loop"), (True, "thread"), (True, "fork"), (True, None)])
def test_a_handler_cannot_run_where_it_would_block_or_never_be_awaited(is_async: bool, run: str):
    with pytest.raises(Invalid, match="run") as refused:
        options(is_async=is_async, run=run)
    assert refused.value.detail == {"field": "run"}


def test_running_and_prefetched_jobs_fit_into_one_claim():
    assert options(concurrency=1_000).prefetch == 0
    assert options(concurrency=700).prefetch == 300
    with pytest.raises(Invalid, match="prefetch must be a whole number from 0 to 300"):
        options(concurrency=700, prefetch=301)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("retries", -1),
        ("retries", True),
        ("retries", 2.0),
        ("backoff", "soon"),
        ("backoff", True),
        ("lease", "99ms"),
        ("lease", "25h"),
        ("concurrency", 0),
        ("concurrency", 1_001),
        ("prefetch", -1),
        ("rate", 100),
        ("time_limit", 0),
        ("policy", "ack"),
        ("weight", 0),
        ("max_deliveries", -1),
        ("dead_letter", "emails"),
        ("dead_letter", "../dead"),
        ("durability", "raid"),
        ("retry", 3),
    ],
)
def test_a_knob_that_cannot_be_meant_is_refused_by_its_name(knob: str, value: Any):
    with pytest.raises(Invalid, match=r"dead_letter|topic name" if knob == "dead_letter" else knob):
        options(**{knob: value})


def test_no_dead_letter_and_no_time_limit_can_be_asked_for():
    given = options(dead_letter=None, time_limit=None)
    assert (given.dead_letter, given.time_limit_ms) == (None, None)


def test_a_duration_as_backoff_is_the_same_wait_after_every_failure():
    backoff = options(backoff="1m").backoff
    assert [backoff.delay_ms(failures, seq=1) for failures in (1, 5)] == [60_000, 60_000]


def test_the_default_backoff_is_exponential():
    assert isinstance(options().backoff, Exponential)


@pytest.mark.parametrize(
    ("knob", "hint"),
    [
        ("max_retries", r"max_deliveries="),
        ("retry", "retries="),
        ("countdown", 'delay="10m"'),
        ("eta", "at=datetime"),
        ("acks_late", "AckPolicy.ACK_FIRST"),
        ("concurency", r"did you mean concurrency=\?"),
    ],
)
def test_an_option_of_another_queue_is_refused_with_its_name_here(knob: str, hint: str):
    with pytest.raises(Invalid, match=hint) as refused:
        options(**{knob: 5})  # type: ignore[arg-type]
    assert refused.value.detail["field"] == knob


@pytest.mark.parametrize(
    ("knobs", "held"),
    [
        ({}, (100, 100)),
        ({"max_in_flight": 500}, (100, 400)),
        ({"max_in_flight": 20}, (20, 0)),
        ({"max_in_flight": 20, "concurrency": 5}, (5, 15)),
        ({"max_in_flight": 20, "concurrency": 20}, (20, 0)),
        ({"max_in_flight": 1_000, "concurrency": 1_000}, (1_000, 0)),
    ],
)
def test_max_in_flight_is_what_runs_and_what_is_held_ready(knobs: dict[str, Any], held: tuple[int, int]):
    given = options(**knobs)
    assert (given.concurrency, given.prefetch) == held


@pytest.mark.parametrize(
    "knobs",
    [
        {"max_in_flight": 0},
        {"max_in_flight": 1_001},
        {"max_in_flight": "10"},
        {"max_in_flight": 10, "prefetch": 5},
        {"max_in_flight": 10, "concurrency": 11},
    ],
)
def test_a_max_in_flight_that_contradicts_is_refused(knobs: dict[str, Any]):
    with pytest.raises(Invalid):
        options(**knobs)
