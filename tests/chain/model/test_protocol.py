"""The protocol holds: configurations explored whole, without a violation."""

from __future__ import annotations

import pytest

from tests.chain.model.configurations import LONG, SHORT, Configuration
from tests.chain.model.protocol import run


@pytest.mark.parametrize("name", SHORT)
def test_no_order_of_events_breaks_a_promise(name: str):
    _explore(SHORT[name])


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LONG)
def test_no_order_of_events_breaks_a_promise_within_larger_bounds(name: str):
    _explore(LONG[name])


def _explore(configuration: Configuration) -> None:
    explored = run(configuration.case)
    assert explored.violation is None, str(explored)
    assert explored.states == configuration.states
