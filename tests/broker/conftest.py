"""A broker in memory whose clock only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure import Broker
from tenure.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    async with await Broker.open(None, clock=clock) as broker:
        yield broker
