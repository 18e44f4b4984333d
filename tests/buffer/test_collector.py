"""What the collector frees beside batches, and what it leaves."""

from __future__ import annotations

import asyncio

import pytest

from tenure.buffer import Collected, Collector, Consumer, Producer, drop_group
from tenure.buffer.manifest.keys import CHECKPOINT, DELTA, FREED, RUN
from tenure.errors import NotFound
from tenure.testing import ManualClock
from tenure.testing.simstore import Call, Hold, SimStore
from tests.kit.buffers import QUICK, consumed, folded, produced, quick

SMALL = quick(run_entries=4, checkpoint_deltas=4, free_deltas=4)


async def collect(store: SimStore, *, dry_run: bool = False, settings: object = None) -> Collected:
    collector = Collector(store, settings=settings or SMALL)  # type: ignore[arg-type]
    try:
        return await collector.run_once(dry_run=dry_run)
    finally:
        await collector.close()


async def acked_all(store: SimStore) -> None:
    async with Consumer(store, settings=SMALL, collect=False) as consumer:
        while found := await consumer.next_descriptors(100):
            await consumer.ack_through(found[-1].seq)


async def test_what_was_acknowledged_leaves_nothing_but_the_last_blocks_and_the_marks(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(40)), settings=SMALL)
    await acked_all(sim)
    report = await collect(sim)
    assert (report.trimmed, report.objects) == (40, 40)
    assert report.runs > 5
    assert report.deltas > 20
    assert not any(key.startswith("data/") or RUN.fullmatch(key) for key in sim.objects)
    freed = sorted(int(found[1]) for key in sim.objects if (found := FREED.fullmatch(key)))
    assert freed == list(range(len(freed)))
    left = [int(found[1]) for key in sim.objects if (found := DELTA.fullmatch(key))]
    assert min(left) == (await folded(sim)).floor == len(freed) * 4
    await produced(sim, [b"more"], settings=SMALL)
    assert await consumed(sim) == [b"more"]


async def test_a_dry_run_says_the_same_and_changes_nothing(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(20)), settings=SMALL)
    await acked_all(sim)
    before = dict(sim.objects)
    dry = await collect(sim, dry_run=True)
    assert {key for key in sim.objects if not key.startswith("probe/")} == set(before)
    wet = await collect(sim)
    assert (dry.trimmed, dry.objects, dry.bytes, dry.locations) == (wet.trimmed, wet.objects, wet.bytes, wet.locations)


async def test_a_pass_that_was_cut_short_is_finished_by_the_next(sim: SimStore):
    """Stopped after each of its calls in turn: nothing referenced goes, and a later pass cleans up."""
    await produced(sim, *([b"%d" % number] for number in range(12)), settings=SMALL)
    async with Consumer(sim, settings=SMALL, collect=False) as consumer:
        await consumer.next_descriptors(9)
        await consumer.ack_through(8)
    whole = dict(sim.objects)
    counted = len(sim.calls)
    await collect(sim)
    clean = {key for key in sim.objects if key.startswith(("data/", "manifest/run-"))}
    for cut in range(len(sim.calls) - counted):
        store = SimStore()
        store.objects = dict(whole)
        store.hook = lambda call, cut=cut: "refused" if call.number >= cut else None  # type: ignore[misc]
        with pytest.raises(Exception, match="refused"):
            await collect(store)
        store.hook = lambda call: None
        assert (await consumed(store, settings=SMALL))[-3:] == [b"9", b"10", b"11"]
        await drop_group(store, "reader-of-tests", settings=SMALL)
        await collect(store)
        assert {key for key in store.objects if key.startswith(("data/", "manifest/run-"))} == clean


async def test_without_any_group_nobody_can_say_what_is_needed(sim: SimStore):
    await produced(sim, [b"a"], settings=quick(initial_groups=("first",)))
    await drop_group(sim, "first", settings=QUICK)
    assert (await collect(sim)).trimmed == 0
    assert await consumed(sim) == [b"a"]


async def test_a_group_that_is_dropped_pins_nothing_and_its_consumer_is_fenced(sim: SimStore):
    await produced(sim, [b"a"], settings=SMALL)
    async with Consumer(sim, group="slow", settings=SMALL, collect=False):
        await acked_all(sim)
        assert (await collect(sim)).trimmed == 0
        await drop_group(sim, "slow", settings=SMALL)
        assert (await collect(sim)).trimmed == 1
    with pytest.raises(NotFound):
        await drop_group(sim, "slow", settings=SMALL)


async def test_producers_that_fell_silent_are_forgotten_once_their_batches_are_void(sim: SimStore):
    """The state stays small however many producers have come and gone."""
    clock = ManualClock(wall_ms=sim.clock_ms)
    for _ in range(20):
        async with Producer(sim, settings=SMALL, clock=clock) as producer:
            await (await producer.produce([b"x"])).durable()
    assert len((await folded(sim)).producers) == 20
    await acked_all(sim)
    await collect(sim)
    assert len((await folded(sim)).producers) == 20  # they may still be in doubt of something
    sim.advance(2 * SMALL.forget_producer_ms)
    clock.advance(2 * SMALL.forget_producer_ms)
    async with Producer(sim, settings=SMALL, clock=clock) as producer:
        await (await producer.produce([b"x"])).durable()
    await acked_all(sim)
    await collect(sim)
    assert len((await folded(sim)).producers) == 1


async def test_a_consumer_collects_when_it_starts_and_with_every_hundred_acks(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(8)), settings=SMALL)
    passes = []
    async with Consumer(sim, settings=quick(ack_every=3)) as consumer:
        await consumer.next_descriptors(8)
        for seq in (1, 3, 5):
            await consumer._collector.idle()
            passes.append(len([call for call in sim.calls if call.kind == "now"]))
            await consumer.ack_through(seq)
        await consumer._collector.idle()
        assert len([key for key in sim.objects if key.startswith("data/")]) == 8 - 4
    assert passes == [1, 1, 2]


async def test_a_backlog_is_listed_once_for_many_passes(sim: SimStore):
    """Naive: a listing for each pass, of a directory that is read whole each time: draining it is quadratic."""
    await produced(sim, *([b"%d" % number] for number in range(60)), settings=SMALL)
    collector, deleted = Collector(sim, settings=SMALL), 0
    async with Consumer(sim, settings=SMALL, collect=False) as consumer:
        for seq in range(0, 60, 2):
            await consumer.descriptors(seq, seq + 2)
            await consumer.ack_through(seq + 1)
            deleted += (await collector.run_once()).objects
    await collector.close()
    assert deleted == 60
    assert not any(key.startswith("data/") for key in sim.objects)
    assert len([call for call in sim.calls if call.kind == "list" and call.key == "data/"]) <= 2


async def test_a_pass_that_empties_its_backlog_lists_on(sim: SimStore):
    """What was produced since the listing is not left for a pass that may never come."""
    await produced(sim, *([b"%d" % number] for number in range(4)), settings=SMALL)
    collector = Collector(sim, settings=SMALL)
    await collector.run_once()  # lists four, and may delete none
    await produced(sim, *([b"%d" % number] for number in range(4)), settings=SMALL)
    await acked_all(sim)
    assert (await collector.run_once()).objects == 8
    await collector.close()


async def test_an_old_listing_is_made_again(sim: SimStore):
    """An upload under an older name is found, however long the backlog lasts."""
    await produced(sim, [b"a"], settings=SMALL)
    collector = Collector(sim, settings=SMALL)
    await collector.run_once()
    orphan = "data/" + "0" * 26 + ".parquet"
    sim.objects[orphan] = (b"", 0)
    assert (await collector.run_once()).objects == 0
    sim.advance(3_600_000)
    assert (await collector.run_once()).locations == [orphan]
    await collector.close()


def held_commit(store: SimStore) -> Hold:
    """Stop the next delta on its way in."""
    hold, caught = Hold(), list[Call]()

    def stop_one(call: Call) -> Hold | None:
        if call.kind != "put_new" or not DELTA.fullmatch(call.key) or caught:
            return None
        caught.append(call)
        return hold

    store.hook = stop_one
    return hold


async def test_a_batch_that_is_committed_between_the_listing_and_the_void_stays(sim: SimStore):
    """The collector listed it as unreferenced; the mark that it commits then ends below it."""
    patient = quick(grace_ms=3_600_000)
    async with Producer(sim, settings=patient) as producer:
        appending = held_commit(sim)
        handle = await producer.produce([b"slow"])
        await appending.reached.wait()
        sim.advance(2 * patient.grace_ms)
        voiding = held_commit(sim)
        passing = asyncio.create_task(collect(sim, settings=patient))
        await voiding.reached.wait()
        appending.release()
        await handle.durable()
        voiding.release()
        assert (await passing).objects == 0
    assert await consumed(sim) == [b"slow"]


async def test_deltas_are_freed_only_after_the_grace_period(sim: SimStore):
    """A reader that listed the checkpoints a moment ago still follows from the one it chose."""
    patient = quick(run_entries=4, checkpoint_deltas=4, free_deltas=4, grace_ms=3_600_000)
    await produced(sim, *([b"%d" % number] for number in range(40)), settings=SMALL)
    sim.advance(patient.grace_ms - 1)
    assert (await collect(sim, settings=patient)).deltas == 0
    assert min(key for key in sim.objects if DELTA.fullmatch(key)).endswith("/00000000000000000000.json")
    sim.advance(1)
    assert (await collect(sim, settings=patient)).deltas > 20


async def test_a_buffer_opens_from_the_older_checkpoint_after_deltas_were_freed(sim: SimStore):
    """The newest one may be damaged tomorrow, so what follows the one before it is kept, too."""
    await produced(sim, *([b"%d" % number] for number in range(42)), settings=SMALL)
    assert (await collect(sim)).deltas > 20
    newest = max(key for key in sim.objects if CHECKPOINT.fullmatch(key))
    data, modified_ms = sim.objects[newest]
    sim.objects[newest] = (data[:-9] + b"x" + data[-8:], modified_ms)
    assert await consumed(sim) == [b"%d" % number for number in range(42)]
