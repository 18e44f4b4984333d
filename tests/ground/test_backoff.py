"""One back-off for all that is tried again: it doubles, has a bound, and spreads callers over the whole of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random

import pytest

from tenure.backoff import backoff_ms

SRC = Path(__file__).parents[2] / "src" / "tenure"


def longest_ms(failures: int) -> float:
    return backoff_ms(failures, min_ms=100, max_ms=1_500, chance=lambda: 1.0)


def test_bound_doubles_with_each_failure_up_to_the_longest_wait():
    assert [longest_ms(failures) for failures in (1, 2, 3, 4, 5, 6)] == [100, 200, 400, 800, 1_500, 1_500]


@pytest.mark.parametrize("failures", [64, 1_000, 10**9])
def test_failures_without_end_wait_the_longest_time_and_overflow_nothing(failures: int):
    assert longest_ms(failures) == 1_500


def test_what_has_not_failed_waits_as_after_the_first_failure():
    assert longest_ms(0) == longest_ms(1)


def test_longest_wait_holds_for_the_first_one_too():
    assert backoff_ms(1, min_ms=100, max_ms=30, chance=lambda: 1.0) == 30


def test_waits_are_spread_over_the_whole_bound():
    chance = Random(1).random
    waits = sorted(backoff_ms(4, min_ms=100, max_ms=10_000, chance=chance) for _ in range(1_000))
    tenths = [sum(80 * tenth <= wait < 80 * (tenth + 1) for wait in waits) for tenth in range(10)]
    assert all(70 < count < 130 for count in tenths)


def test_forked_process_does_not_wait_as_its_parent_does():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, repr(backoff_ms(1, min_ms=1, max_ms=1)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert float(answer.read()) != backoff_ms(1, min_ms=1, max_ms=1)


def test_nothing_else_doubles_a_wait():
    """A second back-off would have a second jitter. The fold's own is deterministic, since it is part of the log."""
    doubling = re.compile(r"\* 2(\.0)? ?\*\* ?(min|max|attempt|fail|count|doubl)|2 \* wait")
    assert [path for path in SRC.rglob("*.py") if doubling.search(path.read_text())] == [SRC / "backoff.py"]
