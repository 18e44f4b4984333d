"""Ten seconds of the wire's fuzz target with seeds that do not change; more by hand, see the module."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.http.fuzz_protocol import fuzz


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_damaged_conversations_are_answered_or_closed_and_leave_nothing_behind(loop: str):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        assert runner.run(fuzz(first_seed=0, seconds=5)) > 0
