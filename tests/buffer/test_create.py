"""No create of a buffer takes "exists" for "stored"."""

from __future__ import annotations

import pytest

from tenure.buffer import Consumer
from tenure.buffer.manifest.format import State, encode
from tenure.buffer.manifest.keys import checkpoint_key
from tenure.buffer.manifest.upkeep import Upkeep
from tenure.buffer.metrics import BufferMetrics
from tenure.testing.simstore import Call, Fault, SimStore
from tests.kit.buffers import consumed, folded, produced, quick
from tests.kit.stores import retrying


@pytest.mark.parametrize("prefix", ["data/", "manifest/run-", "manifest/checkpoint-", "manifest/0", "buffer.json"])
async def test_no_object_of_a_buffer_is_taken_for_stored_because_its_key_was_said_to_exist(sim: SimStore, prefix: str):
    """The first create of each object breaks off; the second meets the first one still open; nothing is stored."""
    attempts: dict[str, int] = {}

    def hook(call: Call) -> Fault | None:
        if call.kind != "put_new" or not call.key.startswith(prefix):
            return None
        attempts[call.key] = attempts.get(call.key, 0) + 1
        return {1: "lost_request", 2: "false_exists"}.get(attempts[call.key])  # type: ignore[return-value]

    sim.hook = hook
    settings = quick(run_entries=3, checkpoint_deltas=4)
    await produced(sim, *([b"%d" % number] for number in range(9)), settings=settings)
    sim.hook = lambda call: None
    assert await consumed(sim, settings=settings) == [b"%d" % number for number in range(9)]
    state = await folded(sim)
    assert state.checkpoint < 0 or checkpoint_key(state.checkpoint) in sim.objects


async def test_a_damaged_checkpoint_of_the_same_number_is_not_announced(sim: SimStore):
    state = State(format=1, buffer="B", block=4, number=8)
    sim.objects[checkpoint_key(8)] = (encode(state)[:-3], 0)
    upkeep = Upkeep(retrying(sim), quick(checkpoint_deltas=8), metrics := BufferMetrics())
    upkeep.schedule(state, state)
    await upkeep.idle()
    assert (metrics.checkpoints, metrics.upkeep_failures) == (0, 1)
    assert upkeep.pending_ops(state) == []


async def test_the_first_reason_of_a_quarantine_stands(sim: SimStore):
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=quick(), collect=False) as consumer:
        sim.hook = lambda call: "refused" if call.kind == "put_new" and "manifest/0" in call.key else None
        for reason in ("the first", "another"):
            with pytest.raises(Exception, match="refused"):
                await consumer.quarantine(0, reason)
        sim.hook = lambda call: None
        await consumer.quarantine(0, "the last")
    [key] = [key for key in sim.objects if key.startswith("quarantine/")]
    assert b"the first" in sim.objects[key][0]
