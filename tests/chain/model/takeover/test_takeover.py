"""Taking over and handing over: configurations explored whole, and each broken variant found."""

from __future__ import annotations

import pytest

from tests.chain.model.takeover.configurations import LONG, SHORT, Configuration
from tests.chain.model.takeover.rules import Bounds, Case, Rules
from tests.chain.model.takeover.run import run
from tests.chain.model.takeover.variants import VARIANTS


@pytest.mark.parametrize("name", SHORT)
def test_no_order_of_events_and_ticks_breaks_a_promise(name: str):
    _explore(SHORT[name])


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LONG)
def test_no_order_of_events_and_ticks_breaks_a_promise_within_larger_bounds(name: str):
    _explore(LONG[name])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_way_to_take_over_is_found(name: str):
    case, breaks = VARIANTS[name]
    explored = run(case, states_max=100_000)
    assert explored.violation is not None, str(explored)
    assert explored.violation.kind == breaks, str(explored)


def test_links_after_a_released_one_break_nothing_by_themselves():
    """The rule H2 forbids them, because nothing is won by them; a reader that looks at the newest link is safe."""
    rules = Rules(after_released="ships")
    explored = run(Case(rules, Bounds(2, 0, 1, beats=1, releases=1, grant=1, silence=1, opening=0)))
    assert explored.violation is None, str(explored)


def _explore(configuration: Configuration) -> None:
    explored = run(configuration.case)
    assert explored.violation is None, str(explored)
    assert explored.states == configuration.states
