"""Looking at a buffer that is at work: what that costs, and what it must not be taken for."""

from __future__ import annotations

import asyncio

from tenure.buffer import Collector, Consumer, entries, verify
from tenure.testing.simstore import Hold, SimStore
from tests.kit.buffers import QUICK, produced


async def test_a_buffer_that_is_followed_costs_two_requests_a_look(sim: SimStore):
    await produced(sim, [b"a"])
    found, following = list[int](), entries(sim, settings=QUICK, follow=True)
    found.append((await anext(following)).seq)
    await produced(sim, [b"b"])
    looked = len(sim.calls)
    found.append((await anext(following)).seq)
    assert found == [0, 1]
    kinds = [call.kind for call in sim.calls[looked:]]
    assert kinds.count("list") == 0


async def test_verify_does_not_miss_what_a_collector_deletes_while_it_looks(sim: SimStore):
    """Naive: what was acknowledged and collected since the manifest was read is reported as lost."""
    await produced(sim, [b"a"], [b"b"])
    looking = verify(sim, settings=QUICK)
    hold = Hold()
    sim.hook = lambda call: hold if call.kind == "list" and call.key.startswith("data/") else None
    first = asyncio.ensure_future(anext(looking, None))
    await hold.reached.wait()
    sim.hook = lambda call: None
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(2)
        await consumer.ack_through(1)
    await Collector(sim, settings=QUICK).run_once()
    assert not any(key.startswith("data/") for key in sim.objects)
    hold.release()
    assert await first is None
