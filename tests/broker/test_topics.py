"""Topics as such: put, look, list, delete."""

from __future__ import annotations

import pytest

from tenure import Broker, NotFound, Settings
from tenure.testing.clock import ManualClock
from tests.kit import run
from tests.kit.brokers import make_queue, start, turn

# Get


# Delete


async def test_those_who_wait_on_a_topic_hear_that_it_was_deleted(broker: Broker) -> None:
    await make_queue(broker)
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    reading = await start(broker.diff("q", wait_ms=1000))
    await broker.delete_topic("q")
    await turn()
    for waiting in (claiming, reading):
        with pytest.raises(NotFound):
            waiting.result()


def test_the_engine_can_be_used_without_an_event_loop(clock: ManualClock) -> None:
    """The synchronous engine is what the crash tests drive; the broker adds only waiting."""
    from tenure.broker.engine import Engine
    from tenure.log.memory import MemoryLog

    engine = Engine(MemoryLog(), clock=clock, settings=Settings())
    engine.recover()
    answer = run.put_topic(engine, "t", {})
    assert answer.reply[1]
