"""The search itself, on a state that is a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.chain.model.explore import Violation, explore


def _steps(number: int) -> Iterator[tuple[str, Callable[[], int]]]:
    yield "add one", partial(lambda value: min(value + 1, 20), number)
    yield "double", partial(lambda value: min(value * 2, 20), number)


def _allow(_: int) -> None:
    pass


def test_every_state_is_visited_once_and_every_step_is_made():
    explored = explore(1, _steps, check=_allow, states_max=100)
    assert (explored.states, explored.transitions, explored.violation) == (20, 40, None)


def test_a_violation_comes_with_the_shortest_way_to_it():
    def check(number: int) -> None:
        if number == 10:
            raise Violation("ten", "reached")

    explored = explore(1, _steps, check=check, states_max=100)
    assert explored.violation is not None
    assert explored.violation.kind == "ten"
    assert explored.trace[:-1] in {
        ("add one", "double", "add one", "double"),
        ("double", "double", "add one", "double"),
    }


def test_a_step_that_violates_is_the_last_of_its_way():
    def steps(number: int) -> Iterator[tuple[str, Callable[[], int]]]:
        def fail() -> int:
            raise Violation("step", "fails")

        yield ("fail", fail) if number == 3 else ("add one", partial(lambda value: value + 1, number))

    assert explore(1, steps, check=_allow, states_max=100).trace == ("add one", "add one", "fail")


def test_a_search_that_grows_over_its_limit_is_an_error_and_no_result():
    with pytest.raises(RuntimeError, match="choose smaller bounds"):
        explore(1, _steps, check=_allow, states_max=10)
