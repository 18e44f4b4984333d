"""The rules alone, on a clock that only the test moves."""

from __future__ import annotations

import pytest

from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rules(clock: ManualClock) -> Rules:
    return Rules(clock)
