"""Ack holes: counted exactly, capped without wedging."""

from __future__ import annotations

from tenure import Broker
from tests.kit.brokers import make_queue, start, turn


async def test_a_claim_that_waits_above_the_cap_goes_on_when_a_hole_is_closed(broker: Broker) -> None:
    await make_queue(broker, jobs=9, max_ack_holes=1)
    await broker.claim("q", node="w", max_count=5)
    await broker.ack("q", node="w", seqs=[2, 4])
    waiting = await start(broker.claim("q", node="v", wait_ms=1000))
    assert not waiting.done()
    await broker.ack("q", node="w", seqs=[1])
    await turn()
    assert waiting.result().seqs == [6]
