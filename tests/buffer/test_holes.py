"""The holes of such designs, each with a test that the naive behaviour fails; the docstrings say which that is."""

from __future__ import annotations

import asyncio

import pytest

from tenure.buffer import BufferSettings, Collector, Consumer, OutcomeUnknown, Producer, drop_group
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import DELTA
from tenure.errors import Corrupt, Denied, Indeterminate, Invalid, LeaseLost
from tenure.testing import ManualClock
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.kit.buffers import QUICK, consumed, folded, produced, quick

SMALL = quick(run_entries=4, checkpoint_deltas=4, free_deltas=4)


async def collected(store: SimStore, settings: BufferSettings = QUICK) -> list[str]:
    collector = Collector(store, settings=settings)
    report = await collector.run_once()
    await collector.close()
    return report.locations


class Trap:
    """Meets the next call that creates a delta, or any call that matches, with a fault or a hold; once."""

    def __init__(self, store: SimStore, meet: Fault | Hold, kind: str = "put_new", prefix: str = "manifest/0") -> None:
        self._meet: Fault | Hold | None = meet
        self._kind, self._prefix = kind, prefix
        store.hook = self

    def __call__(self, call: Call) -> Fault | Hold | None:
        if self._meet is not None and call.kind == self._kind and call.key.startswith(self._prefix):
            met, self._meet = self._meet, None
            return met
        return None


# The manifest


async def test_a_thousand_calls_cost_the_manifest_one_small_entry(sim: SimStore):
    """Naive: each call's range stands in the manifest, 20 kB for a thousand of them."""
    async with Producer(sim, settings=quick(flush_interval_ms=10_000)) as producer:
        for number in range(1_000):
            await producer.produce([b"x"], b"metadata %d" % number)
        await producer.flush()
    deltas = [len(data) for key, (data, _) in sim.objects.items() if DELTA.fullmatch(key)]
    assert len(deltas) == 2
    assert max(deltas) < 600
    async with Consumer(sim, settings=QUICK) as consumer:
        batch = await consumer.next_batch()
    assert batch is not None
    assert batch.range_of(999).metadata == b"metadata 999"


async def test_a_lost_reply_enqueues_once_also_when_others_commit_in_between(sim: SimStore):
    """Fault 51. Naive: the retry sees another's delta at its number, takes its own for lost, and b comes twice."""
    async with Producer(sim, settings=QUICK) as one, Producer(sim, settings=QUICK) as two:
        await (await one.produce([b"a"])).durable()
        Trap(sim, "lost_reply")
        handle = await one.produce([b"b"])
        await (await two.produce([b"from two"])).durable()
        position = await handle.durable()
        await (await one.produce([b"c"])).durable()
    found = await consumed(sim)
    assert found[position.seq] == b"b"
    assert sorted(found) == [b"a", b"b", b"c", b"from two"]


async def test_a_request_that_arrives_after_its_writer_gave_up_waiting_enqueues_once(sim: SimStore):
    """Fault 51. Naive: the timed-out create is taken for failed, and tried again at the next number."""
    async with Producer(sim, settings=QUICK) as producer:
        await (await producer.produce([b"a"])).durable()
        Trap(sim, "late")
        handle = await producer.produce([b"b"])
        await handle.durable()
        sim.deliver_late()
        await (await producer.produce([b"c"])).durable()
    assert await consumed(sim) == [b"a", b"b", b"c"]


async def test_a_create_that_a_proxy_sends_twice_is_recognised(sim: SimStore):
    """Naive: "already exists" means another writer, and the batch is committed again at the next number."""
    async with Producer(sim, settings=QUICK) as producer:
        Trap(sim, "duplicate")
        await (await producer.produce([b"a"])).durable()
    assert await consumed(sim) == [b"a"]


async def test_an_upload_whose_answer_is_lost_has_one_manifest_entry(sim: SimStore):
    """Fault 51. Naive: the upload is repeated under a new name, and both are committed."""
    async with Producer(sim, settings=QUICK) as producer:
        Trap(sim, "lost_reply", prefix="data/")
        await (await producer.produce([b"a"])).durable()
    assert (await folded(sim)).next_seq == 1
    assert len([key for key in sim.objects if key.startswith("data/")]) == 1


async def busy(store: SimStore, commits: int) -> None:
    """Others go on committing until blocks can be freed."""
    async with Producer(store, settings=SMALL) as producer:
        for number in range(commits):
            await (await producer.produce([b"busy %d" % number])).durable()


async def test_a_freed_number_is_not_taken_for_a_fresh_one_by_a_stalled_writer(sim: SimStore):
    """Naive: the number is free again, the create succeeds, and the promised batch lies where no reader looks."""
    patient = quick(run_entries=4, checkpoint_deltas=4, free_deltas=4, grace_ms=1_000)
    async with Producer(sim, settings=patient) as stalled:
        hold = Hold()
        Trap(sim, hold)
        handle = await stalled.produce([b"late"])
        await hold.reached.wait()
        await busy(sim, 30)
        sim.advance(500)  # deltas are young by the grace period of this collector, but not of the next
        await collected(sim, SMALL)
        assert (await folded(sim)).floor > 8
        hold.release()
        with pytest.raises(Indeterminate):  # its batch was voided while the commit was in doubt: it cannot know
            await handle.durable()
    assert b"late" not in await consumed(sim)


async def test_a_stalled_writer_whose_number_was_freed_commits_once_at_the_end(sim: SimStore):
    """As above with its batch still young: nothing was voided, so the state shows that the commit did not happen."""
    async with Producer(sim, settings=SMALL) as stalled:
        await (await stalled.produce([b"early"])).durable()
        hold = Hold()
        Trap(sim, hold)
        handle = await stalled.produce([b"late"])
        await hold.reached.wait()
        await busy(sim, 30)
        await collected(sim, SMALL)  # "early" is referenced and older: nothing is voided
        assert (await folded(sim)).floor > 8
        hold.release()
        position = await handle.durable()
    found = await consumed(sim)
    assert found[position.seq] == b"late"
    assert found.count(b"late") == 1
    assert len(found) == 32


async def test_a_stalled_reader_does_not_take_a_freed_number_for_the_end(sim: SimStore):
    """Naive: the next delta is missing, so there is nothing new; for ever."""
    await produced(sim, [b"first"], settings=SMALL)
    async with Consumer(sim, settings=SMALL, collect=False) as consumer:
        assert await consumer.next_batch() is not None
        await busy(sim, 30)
        await collected(sim, SMALL)
        assert len(await consumer.next_descriptors(100)) == 30


async def test_a_stray_delta_at_a_freed_number_is_not_read(sim: SimStore):
    """Naive: a reader that was stopped before the number was freed folds what a stalled writer left there."""
    await produced(sim, [b"first"], settings=SMALL)
    reader = Journal(sim, settings=SMALL)
    await reader.open(create=False)
    zombie = Producer(sim, settings=SMALL)
    await zombie.start()
    hold = Hold()
    Trap(sim, hold)
    handle = await zombie.produce([b"stray"])
    await hold.reached.wait()
    await busy(sim, 30)
    await collected(sim, SMALL)
    after = Hold()
    Trap(sim, after, kind="head", prefix="manifest/freed-")
    hold.release()
    await after.reached.wait()  # the stray delta lies at the freed number, its writer does not know yet
    state = await reader.sync()
    assert state.next_seq == 31
    after.release()
    await handle.durable()
    await zombie.close()
    assert (await consumed(sim)).count(b"stray") == 1


async def test_a_stale_listing_of_checkpoints_is_noticed(sim: SimStore):
    """Fault 52. Naive: the opener follows an old checkpoint to the first freed delta and thinks it is the end."""
    await busy(sim, 10)
    old = {key: value for key, value in sim.objects.items() if "checkpoint" in key}
    await busy(sim, 30)
    await collected(sim, SMALL)
    hidden = {key: sim.objects.pop(key) for key in list(sim.objects) if "checkpoint" in key}
    sim.objects |= old

    def reappear(call: Call) -> None:
        if call.key.startswith("manifest/freed-"):  # the first look has been at old checkpoints only
            sim.objects.update(hidden)

    sim.hook = reappear
    assert (await folded(sim)).next_seq == 40


async def test_a_missing_manifest_is_an_error_and_nothing_is_deleted(sim: SimStore):
    """Naive: a missing manifest is an empty queue; sequences begin again at 0, and the collector deletes everything."""
    await produced(sim, [b"a"])
    batches = [key for key in sim.objects if key.startswith("data/")]
    for key in [key for key in sim.objects if key.startswith("manifest/")]:
        del sim.objects[key]
    for opening in (Producer.open(sim, settings=QUICK), Consumer.open(sim, settings=QUICK), collected(sim)):
        with pytest.raises(Corrupt, match="manifest"):
            await opening
    del sim.objects["buffer.json"]
    with pytest.raises(Corrupt, match="manifest"):
        await Producer.open(sim, settings=QUICK)
    assert [key for key in sim.objects if key.startswith("data/")] == batches


async def test_a_manifest_that_goes_under_a_running_consumer_is_an_error_and_not_an_empty_queue(sim: SimStore):
    """Naive: the next number is not there, so there is nothing new, for ever."""
    clock = ManualClock()
    async with Producer(sim, settings=QUICK, clock=clock) as producer:
        await (await producer.produce([b"a"])).durable()
        consumer = await Consumer.open(sim, settings=QUICK, clock=clock, collect=False)
        assert await consumer.next_batch() is not None
        clock.advance(11_000)
        assert await consumer.next_batch() is None, "nothing is new, and all is there"
        await (await producer.produce([b"b"])).durable()
        for key in [key for key in sim.objects if key.startswith("manifest/")]:
            del sim.objects[key]
        clock.advance(11_000)
        for call in (consumer.next_batch, consumer.next_batch, (await producer.produce([b"c"])).durable):
            with pytest.raises(Corrupt) as caught:
                await call()
            assert caught.value.code == "manifest_missing"
        with pytest.raises(Corrupt):
            await consumer.ack_through(0)


async def test_sequences_go_on_after_the_queue_was_empty(sim: SimStore):
    """Naive: with the last entry gone, the next sequence is derived from nothing, and is 0 again."""
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(2)
        await consumer.ack_through(1)
    await collected(sim)
    assert (await folded(sim)).tail == []
    async with Producer(sim, settings=QUICK) as producer:
        assert (await (await producer.produce([b"c"])).durable()).seq == 2


async def test_a_store_that_ignores_conditions_is_refused(sim: SimStore):
    """Naive: the store's word is taken for it, and commits overwrite each other."""
    sim.ignores_conditions = True
    with pytest.raises(Denied, match="create-if-absent"):
        await Producer.open(sim, settings=QUICK)


async def test_only_the_creation_of_a_buffer_probes_its_store(sim: SimStore):
    """Naive: every producer that opens an existing buffer pays for the probe again."""
    await produced(sim, [b"a"])
    assert sim.count("put_new", "probe/") == 66
    sim.calls.clear()
    await produced(sim, [b"b"])
    assert await consumed(sim) == [b"a", b"b"]
    assert not [call for call in sim.calls if call.key.startswith("probe/")]


async def test_two_buffers_under_one_prefix_are_refused(sim: SimStore):
    """Naive: each collector takes the other's batches for orphans."""
    other = SimStore()
    await produced(sim, [b"a"])
    await produced(other, [b"b"])
    sim.objects["buffer.json"] = other.objects["buffer.json"]
    with pytest.raises(Corrupt, match="two buffers"):
        await Producer.open(sim, settings=QUICK)


@pytest.mark.parametrize("kind", ["get", "list", "put_new"])
async def test_two_that_create_the_buffer_at_once_make_one(sim: SimStore, kind: str):
    """Stopped at each kind of call of its opening in turn, the first finds what the second created meanwhile."""
    for skipped in range(5):
        store = SimStore()
        hold, left = Hold(), [skipped]

        def hook(call: Call, hold: Hold = hold, left: list[int] = left) -> Hold | None:
            left[0] -= call.kind == kind and not call.key.startswith("probe/")
            return hold if left[0] == -1 and call.kind == kind and not hold.reached.is_set() else None

        store.hook = hook
        first = asyncio.create_task(Producer.open(store, settings=QUICK))
        reached = asyncio.create_task(hold.reached.wait())
        await asyncio.wait([first, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        store.hook = lambda call: None  # only the first is stopped
        await produced(store, [b"second"])
        hold.release()
        producer = await first
        await (await producer.produce([b"first"])).durable()
        await producer.close()
        assert await consumed(store) == [b"second", b"first"]


async def test_a_delta_that_is_lost_is_noticed_and_not_written_again(sim: SimStore):
    """Naive: the hole is the next free number."""
    await produced(sim, [b"a"], [b"b"], [b"c"])
    del sim.objects["manifest/00000000000000000002.json"]
    with pytest.raises(Corrupt, match="delta 2 is missing"):
        await Producer.open(sim, settings=QUICK)


# The consumer


async def test_a_fenced_consumer_neither_acks_nor_collects(sim: SimStore):
    """Naive: the epoch is looked at when reading only; a zombie's ack hides batches from the active consumer."""
    await produced(sim, [b"a"], [b"b"])
    zombie = await Consumer.open(sim, settings=QUICK, collect=False)
    await zombie.next_descriptors(2)
    await zombie.ack(0)
    async with Consumer(sim, settings=QUICK, collect=False):
        before = sorted(sim.objects)
        with pytest.raises(LeaseLost):
            await zombie.flush()
        with pytest.raises(LeaseLost):
            await zombie.ack_through(1)
        with pytest.raises(LeaseLost):
            await zombie.quarantine(1, "a zombie's idea")
        await zombie.close()
        assert sorted(sim.objects) == before
    assert (await folded(sim)).groups["default"].next_seq == 0


async def test_a_consumer_of_a_group_that_was_dropped_and_came_again_is_fenced(sim: SimStore):
    """Naive: the new group counts its epochs from 1 again, and the old one's consumer passes for the new one's."""
    await produced(sim, [b"a"], [b"b"])
    zombie = await Consumer.open(sim, group="g", settings=QUICK, collect=False)
    assert await zombie.next_batch() is not None
    await drop_group(sim, "g", settings=QUICK)
    async with Consumer(sim, group="g", settings=QUICK, collect=False) as successor:
        assert successor.epoch > zombie.epoch
        for call in (zombie.next_descriptors(1), zombie.ack_through(0)):
            with pytest.raises(LeaseLost):
                await call
        assert (await folded(sim)).groups["g"].next_seq == 0
    await zombie.close()


async def test_the_collector_of_a_fenced_consumer_stops(sim: SimStore):
    """Naive: its collector goes on deleting with a frontier that is not its own any more."""
    await produced(sim, [b"a"], [b"b"])
    hold = Hold()
    Trap(sim, hold, kind="now", prefix="")
    zombie = await Consumer.open(sim, settings=QUICK)
    await hold.reached.wait()  # its first pass is under way
    async with Consumer(sim, settings=QUICK, collect=False) as active:
        await active.next_descriptors(2)
        await active.ack_through(1)
        before = {key for key in sim.objects if key.startswith("data/")}
        hold.release()
        await zombie._collector.idle()
        assert {key for key in sim.objects if key.startswith("data/")} == before
    await zombie.close()


@pytest.mark.parametrize("seq", [1, 5, -1])
async def test_the_first_ack_must_be_the_first_batch(sim: SimStore, seq: int):
    """Naive: without a last ack there is nothing to compare with, and any first ack is taken."""
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=QUICK) as consumer:
        await consumer.next_descriptors(2)
        with pytest.raises(Invalid, match="not in order"):
            await consumer.ack(seq)
        await consumer.ack(0)
        with pytest.raises(Invalid, match="not in order"):
            await consumer.ack(0)


async def test_an_ack_whose_write_fails_has_not_happened_and_may_be_repeated(sim: SimStore):
    """Naive: memory moves first; the repeated call is then out of order, and the batch is stuck."""
    settings = quick(ack_every=1, call_attempts_max=2)
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=settings, collect=False) as consumer:
        await consumer.next_descriptors(2)
        for how in ("lost_request", "lost_reply"):  # the second one is in the manifest, unknown to the producer
            sim.hook = lambda call, how=how: how if call.kind in {"put_new", "get"} else None  # type: ignore[misc]
            with pytest.raises(OutcomeUnknown):
                await consumer.ack(0)
            sim.hook = lambda call: None
            assert consumer.last_acked is None
        await consumer.ack(0)
        assert (consumer.last_acked, (await folded(sim)).groups["default"].next_seq) == (0, 1)
        await consumer.ack(1)


async def test_ack_through_is_one_write_and_refuses_what_was_not_handed_out(sim: SimStore):
    """Naive: anything above the frontier is taken, so that one typo acknowledges batches that were never read."""
    await produced(sim, *([b"x"] for _ in range(10)))
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        with pytest.raises(Invalid):
            await consumer.ack_through(0)
        await consumer.next_descriptors(8)
        with pytest.raises(Invalid):
            await consumer.ack_through(8)
        before = len([call for call in sim.calls if call.kind == "put_new"])
        await consumer.ack_through(7)
        assert len([call for call in sim.calls if call.kind == "put_new"]) == before + 1
        with pytest.raises(Invalid):
            await consumer.ack_through(7)
        assert consumer.last_acked == 7


async def test_next_descriptors_costs_one_read_whatever_the_count(sim: SimStore):
    await produced(sim, *([b"x"] for _ in range(50)))
    costs = []
    for count in (1, 40):
        async with Consumer(sim, group=f"g{count}", settings=QUICK, collect=False) as consumer:
            before = len(sim.calls)
            assert len(await consumer.next_descriptors(count)) == count
            costs.append(len(sim.calls) - before)
    assert costs == [2, 2]  # one get that finds nothing new, one look for a freed mark


async def test_the_cursor_moves_only_after_a_fetch(sim: SimStore):
    """Naive: the cursor moves first, and a failed fetch skips the batch silently."""
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=quick(call_attempts_max=1), collect=False) as consumer:
        Trap(sim, "lost_request", kind="get", prefix="data/")
        with pytest.raises(OutcomeUnknown):
            await consumer.next_batch()
        assert (await consumer.next_batch()).entries == [b"a"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("last_acked", "first"), [(None, 1), (0, 1), (1, 2), (2, 3)])
async def test_a_consumer_starts_where_its_sink_says(sim: SimStore, last_acked: int | None, first: int):
    await produced(sim, [b"a"], [b"b"], [b"c"])
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(1)
        await consumer.ack_through(0)
    async with Consumer(sim, last_acked, settings=QUICK, collect=False) as consumer:
        assert [d.seq for d in await consumer.next_descriptors(5)] == list(range(first, 3))
    assert (await folded(sim)).groups["default"].next_seq == first


@pytest.mark.parametrize("last_acked", [-1, 3, 1_000])
async def test_a_start_below_the_frontier_or_beyond_the_end_is_refused(sim: SimStore, last_acked: int):
    """Naive: below hands out batches that may be deleted; beyond skips batches that do not exist yet."""
    await produced(sim, [b"a"], [b"b"], [b"c"])
    async with Consumer(sim, 0, settings=QUICK, collect=False) as consumer:
        with pytest.raises(Invalid, match="last_acked"):
            await Consumer.open(sim, last_acked, settings=QUICK)
        assert await consumer.next_batch() is not None  # a refused consumer has fenced none


# The collector


async def test_a_stalled_producer_uploads_again_what_the_collector_voided(sim: SimStore):
    """Fault 53. Naive: the orphan is deleted, then its producer commits the location of nothing."""
    clock = ManualClock()
    async with Producer(sim, settings=QUICK, clock=clock) as producer:
        clock.advance(60_000)  # so long ago that the next commit looks at the manifest first
        hold = Hold()
        Trap(sim, hold, kind="get", prefix="manifest/0")
        handle = await producer.produce([b"stalled"])
        await hold.reached.wait()
        deleted = await collected(sim)
        assert len(deleted) == 1
        hold.release()
        await handle.durable()
        assert producer.metrics.reuploads == 1
    assert await consumed(sim) == [b"stalled"]


async def test_a_producer_whose_clock_lags_names_its_batches_above_the_void_mark(sim: SimStore):
    """Naive: names made of a clock a year behind are void for ever, and the producer uploads in circles."""
    await produced(sim, [b"a"])
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(1)
        await consumer.ack_through(0)
    await collected(sim)
    async with Producer(sim, settings=QUICK, clock=ManualClock(wall_ms=1_000)) as producer:
        assert (await (await producer.produce([b"b"])).durable()).seq == 1
        assert producer.metrics.reuploads == 0
    assert await consumed(sim) == [b"b"]


async def test_an_orphan_is_invisible_and_collected_only_after_the_grace_period(sim: SimStore):
    """Fault 53: the producer died between the PUT and the manifest."""
    settings = quick(grace_ms=60_000)
    doomed = Producer(sim, settings=settings)
    await doomed.start()
    Trap(sim, Hold())
    await doomed.produce([b"orphan"])
    while not any(key.startswith("data/") for key in sim.objects):
        await asyncio.sleep(0.001)
    with pytest.raises(Indeterminate):
        await doomed.close(deadline_ms=0)
    assert await consumed(sim) == []
    sim.advance(59_000)
    assert await collected(sim, settings) == []
    sim.advance(2_000)
    assert len(await collected(sim, settings)) == 1


async def test_an_orphan_younger_than_the_oldest_referenced_batch_stays(sim: SimStore):
    await produced(sim, [b"a"])
    sim.objects["data/7ZZZZZZZZZZZZZZZZZZZZZZZZZ.parquet"] = (b"orphan", 0)
    assert await collected(sim) == []


async def test_a_foreign_file_is_never_deleted(sim: SimStore):
    await produced(sim, [b"a"])
    sim.objects["data/0-notes.txt"] = (b"mine", 0)
    await collected(sim)
    assert "data/0-notes.txt" in sim.objects


async def test_retained_batches_can_be_replayed_by_a_new_group(sim: SimStore):
    settings = quick(retain_for_ms=3_600_000)
    clock = ManualClock(wall_ms=sim.clock_ms)
    async with Producer(sim, settings=settings, clock=clock) as producer:
        await (await producer.produce([b"a"])).durable()
        await (await producer.produce([b"b"])).durable()
    async with Consumer(sim, settings=settings, collect=False) as consumer:
        await consumer.next_descriptors(2)
        await consumer.ack_through(1)
    assert await collected(sim, settings) == []
    assert await consumed(sim, group="replay", settings=settings) == [b"a", b"b"]


# The producer


@pytest.mark.parametrize("lag_ms", [0, 3_600_000])
async def test_of_two_producers_with_one_name_the_loser_is_told(sim: SimStore, lag_ms: int):
    """Naive: it finds its ordinal on the record, takes the other's batch for its own, and promises what is nowhere."""
    clock = ManualClock(wall_ms=sim.clock_ms)
    async with Producer(sim, settings=QUICK, clock=clock, name="export") as zombie:
        await (await zombie.produce([b"0"])).durable()
        clock.jump_wall(-lag_ms)
        async with Producer(sim, settings=QUICK, clock=clock, name="export") as successor:
            assert successor.last_ordinal == 0
            await (await successor.produce([b"1 of the successor"])).durable()
            handle = await zombie.produce([b"1 of the zombie"])
            with pytest.raises(LeaseLost, match="one at a time"):
                await handle.durable()
            await (await successor.produce([b"2"])).durable()
    assert await consumed(sim) == [b"0", b"1 of the successor", b"2"]
