"""Break every single call of a buffer's life, in every way: nothing acknowledged is lost, nothing comes twice.

Faults 51 (the PUT succeeds, its answer is lost), 52 (bounded retries, nothing partial visible) and 53 (crash between
the PUT and the manifest).
"""

from __future__ import annotations

import pytest

from tenure.buffer import Collector, Consumer, Producer
from tenure.errors import TenureError
from tenure.testing.simstore import Fault, SimStore
from tests.kit.buffers import consumed, folded, quick

# Small enough that a short life crosses runs, checkpoints and freed blocks.
SMALL = quick(run_entries=3, checkpoint_deltas=4, free_deltas=4, call_attempts_max=4, ack_every=3)
BATCHES = 9


async def life(store: SimStore) -> list[bytes]:
    """Produce, start, ack and collect; gives what was acknowledged as durable."""
    durable: list[bytes] = []
    try:
        await _produce(store, 0, durable)
        await _consume(store)
        await _produce(store, BATCHES, durable)
    except TenureError:
        pass  # a refused writer stops; what was acknowledged before counts
    return durable


async def _produce(store: SimStore, first: int, durable: list[bytes]) -> None:
    async with Producer(store, settings=SMALL) as producer:
        for number in range(first, first + BATCHES):
            entry = b"%d" % number
            await (await producer.produce([entry])).durable()
            durable.append(entry)


async def _consume(store: SimStore) -> None:
    async with Consumer(store, settings=SMALL, collect=False) as consumer:
        for _ in range(4):
            batch = await consumer.next_batch()
            assert batch is not None
            await consumer.ack(batch.seq)
        await consumer.next_descriptors(2)
        await consumer.ack_through(5)
    collector = Collector(store, settings=SMALL)
    await collector.run_once()
    await collector.close()


async def calls_of_a_life() -> list[int]:
    """The calls of a life but those of the probe, which has a test of its own."""
    store = SimStore()
    await life(store)
    return [call.number for call in store.calls if not call.key.startswith("probe/")]


async def check(store: SimStore, durable: list[bytes], note: str) -> None:
    """Check that a group that reads everything left finds each acknowledged entry once, in order, and no stranger."""
    store.deliver_late()
    if not any(key.startswith("manifest/") for key in store.objects):
        assert durable == [], note
        return
    state = await folded(store)
    found = await consumed(store, settings=SMALL)
    produced = [b"%d" % number for number in range(2 * BATCHES)]
    collected = state.first_seq
    assert found == sorted(set(found), key=int), f"{note}: doubled or out of order"
    assert set(found) <= set(produced), note
    assert [entry for entry in durable if int(entry) >= collected and entry not in found] == [], f"{note}: lost"
    assert min((group.next_seq for group in state.groups.values()), default=0) >= collected, note


EVERY_FIFTH = [0, *(pytest.param(first, marks=pytest.mark.full) for first in range(1, 5))]
"""A plain run breaks every fifth call, each fault beginning elsewhere; `make test-full` breaks all of them."""


@pytest.mark.parametrize("first", EVERY_FIFTH)
@pytest.mark.parametrize("how", ["lost_request", "lost_reply", "duplicate", "late", "refused", "false_exists"])
async def test_one_failed_call_loses_and_doubles_nothing(how: Fault, first: int):
    for number in (await calls_of_a_life())[(first + len(how)) % 5 :: 5]:
        store = SimStore()
        store.fail(number, how)
        store.hook = lambda call, after=number + 3, at=store: at.deliver_late() if call.number == after else None  # type: ignore[misc]
        durable = await life(store)
        note = f"{how} at call {number}: {store.calls[number] if number < len(store.calls) else ''}"
        await check(store, durable, note)
        if how != "refused":
            assert len(durable) == 2 * BATCHES, f"{note}: a fault of one call must not stop anybody"


@pytest.mark.parametrize("how", ["lost_request", "lost_reply", "late"])
async def test_a_store_that_stays_silent_from_some_call_on_loses_and_doubles_nothing(how: Fault):
    """Fault 52: the retries are bounded, and the caller gets the error."""
    for number in (await calls_of_a_life())[3::17]:
        store = SimStore()
        store.hook = lambda call, first=number: how if first <= call.number < first + 60 else None  # type: ignore[misc]
        durable = await life(store)
        store.hook = lambda call: None
        await check(store, durable, f"{how} from call {number} on")
