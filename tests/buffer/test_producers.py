"""The producers that a manifest remembers: how many, which, and at what cost."""

from __future__ import annotations

import time

import pytest

from tenure.buffer import Collector, Consumer, Producer
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.fold import fold, invariants
from tenure.buffer.manifest.format import Append, Delta, Entry, Forget, Genesis, Op, State, Void, decode, encode
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import RisingNames, fresh_id, successor
from tenure.buffer.manifest.producers import ProducerRecord, Producers
from tenure.errors import Indeterminate, Invalid
from tenure.testing.clock import ManualClock
from tenure.testing.simstore import SimStore
from tests.kit.buffers import consumed, folded, produced, quick

UNSEEN = decide.Known(-1)


def entry(name: str, producer: str, ordinal: int = 0) -> Entry:
    return Entry(name.ljust(26, "0"), 1, 1, "00000000", producer, ordinal, 0, 0)


def after(state: State | None, *ops: Op, ts_ms: int = 0) -> State:
    number, prev = (0, "") if state is None else (state.number + 1, state.chain)
    folded = fold(state, Delta(1, "B", number, prev, "w", "n", ts_ms, list(ops)), f"{number:08}")
    invariants(folded)
    return folded


def begun(*entries: Entry, ts_ms: int = 0) -> State:
    return after(after(None, Genesis(4, [])), Append(list(entries)), ts_ms=ts_ms)


# What is remembered


def test_a_producer_whose_batch_is_above_the_mark_is_remembered_however_silent_it_is():
    """Else one that returns in doubt would find no record, take its commit for lost and enqueue it twice."""
    below, above, at = (fresh_id(number) for number in (1, 2, 3))
    state = begun(entry("3", below), entry("5", above), entry("5", at), ts_ms=10)
    state = after(state, Void("3".ljust(26, "0"), 99))
    assert set(state.producers) == {below, above, at}  # the mark is not above any of them
    state.first_seq, state.tail = state.next_seq, []  # as if everything had been acknowledged and trimmed
    state = after(state, Void("5".ljust(26, "0"), 99))
    assert set(state.producers) == {above, at}
    assert set(after(state, Void("6".ljust(26, "0"), 10)).producers) == {above, at}  # not silent for long enough
    assert set(after(state, Void("6".ljust(26, "0"), 11)).producers) == set()


async def test_a_producer_with_a_name_is_remembered_however_long_it_is_silent(sim: SimStore):
    """Else one that comes back with its name finds no ordinal, and produces again what was consumed long ago."""
    settings, clock = quick(forget_producer_ms=0), ManualClock(wall_ms=sim.clock_ms)

    async def till(*batches: bytes) -> int:
        async with Producer(sim, settings=settings, clock=clock, name="till") as producer:
            last = producer.last_ordinal
            for each in batches:
                await (await producer.produce([each])).durable()
            return last

    assert await till(b"0", b"1", b"2") == -1
    async with Consumer(sim, settings=settings, collect=False) as consumer:
        await consumer.ack_through((await consumer.next_descriptors(10))[-1].seq)
    for _ in range(2):
        sim.advance(30 * 86_400_000)
        collector = Collector(sim, settings=settings, clock=clock)
        await collector.run_once()
        await collector.close()
    assert not [key for key in sim.objects if key.startswith("data/")]
    assert await till(b"3") == 2
    assert (await folded(sim)).producers["till"].ordinal == 3
    assert await consumed(sim, group="default", settings=settings) == [b"3"]


def test_the_newest_name_of_a_producer_is_the_largest_and_not_the_last():
    """An upload that was repeated has a later name, and may be committed before an earlier one."""
    state = begun(entry("5", "P", 0), entry("4", "P", 1))
    assert state.producers["P"] == ProducerRecord(1, "5".ljust(26, "0"), 0, "4".ljust(26, "0"))
    assert after(state, Append([entry("6", "P", 2)])).producers["P"].newest_name == "6".ljust(26, "0")


def test_a_state_before_keeps_its_records_when_a_later_one_changes():
    names = [fresh_id(number) for number in range(2_000)]
    before = Producers({"old": ProducerRecord(0, "A", 0)})
    plain = dict(before)
    for number, name in enumerate([*names, "old", *names[:10]]):
        later = before.copy()
        later.remember(name, ProducerRecord(number, "B", number))
        assert dict(before) == plain
        plain[name] = ProducerRecord(number, "B", number)
        before = later
    assert list(before.items()) == list(plain.items())
    assert (len(before), before.unnamed_count) == (2_001, 2_000)
    before.keep(lambda name, record: record.ordinal < 5 or name == "old")
    assert (set(before), len(before), before.unnamed_count) == ({"old"}, 1, 0)


def test_a_checkpoint_carries_the_producers_through():
    state = begun(entry("3", fresh_id(1)), entry("5", "named", 7))
    again = decode(State, encode(state), "checkpoint")
    assert again == state
    assert again.producers.unnamed_count == 1


# Too many


def crowd(count: int) -> tuple[State, list[str]]:
    """Producers that committed one batch each, oldest first."""
    names, ids = RisingNames(), [fresh_id(number) for number in range(count)]
    return begun(*(entry(names.next(number), id_) for number, id_ in enumerate(ids))), ids


def test_of_too_many_producers_the_oldest_without_a_name_are_forgotten():
    state, ids = crowd(100)
    state = after(state, Append([entry("0" * 25 + "1", "named")]))
    assert decide.forget(state, 100) == []
    state = after(state, *decide.forget(state, 80))
    assert set(state.producers) == {"named", *ids[40:]}, "a quarter more than needed, so that the next time is far off"
    assert decide.forget(state, 80) == []
    with pytest.raises(Exception, match="forgotten"):
        after(state, Forget("0"))


def test_a_producer_that_comes_late_with_an_old_name_is_forgotten_again():
    state, _ = crowd(100)
    state = after(state, *decide.forget(state, 80))
    late = [fresh_id(number) for number in range(1_000, 1_030)]
    state = after(state, Append([entry("0" * 24 + "11", id_) for id_ in late]))
    state = after(state, *decide.forget(state, 80))
    assert len(state.producers) <= 80
    assert not set(late) & set(state.producers)


def test_a_commit_in_doubt_of_a_forgotten_producer_is_not_repeated():
    """Naive: no record, so it was not committed; and the batch comes twice."""
    state, ids = crowd(100)
    mine = state.tail[0]
    state = after(state, *decide.forget(state, 80))
    with pytest.raises(Indeterminate):
        decide.append(state, [mine], known=UNSEEN, in_doubt=True, producers_max=80)
    above = entry(successor(state.forgotten), ids[0], 1)
    assert decide.append(state, [above], known=UNSEEN, in_doubt=True, producers_max=80) == [Append([above])]


def test_a_new_name_among_too_many_is_refused_and_a_known_one_is_not():
    state = begun(*(entry(f"{number:026}", f"name-{number}") for number in range(10)))
    options = {"known": None, "in_doubt": False, "producers_max": 10}
    with pytest.raises(Invalid, match="producers_max") as caught:
        decide.append(state, [entry("5", "another")], **options)  # type: ignore[arg-type]
    assert caught.value.code == "too_many_producers"
    for producer in ("name-3", fresh_id(1)):
        assert decide.append(state, [entry("5", producer, 1)], **options)  # type: ignore[arg-type]


def test_a_name_that_looks_like_an_id_is_refused(sim: SimStore):
    with pytest.raises(Invalid, match="looks like"):
        Producer(sim, name=fresh_id(1))


async def test_a_buffer_opens_however_many_producers_came_and_went(sim: SimStore):
    """Naive: the checkpoint is bounded where it is read alone, and one day no reader can open the buffer."""
    settings = quick(checkpoint_bytes_max=12_000, checkpoint_deltas=16, run_entries=32)
    for number in range(300):
        await produced(sim, [b"%d" % number], settings=settings)
    async with Consumer(sim, settings=settings, collect=False) as consumer:
        assert await consumer.end_seq() == 299
    checkpoints = [data for key, (data, _) in sim.objects.items() if "checkpoint" in key]
    assert checkpoints
    assert max(map(len, checkpoints)) <= 12_000
    assert (await folded(sim)).checkpoint >= 256
    assert await consumed(sim, settings=settings) == [b"%d" % number for number in range(300)]


async def test_a_checkpoint_that_nobody_would_read_is_not_written(sim: SimStore, caplog: pytest.LogCaptureFixture):
    settings = quick(checkpoint_bytes_max=3_000, checkpoint_deltas=4)
    await produced(sim, *([b"%d" % number] for number in range(100)), settings=settings)
    assert all(len(data) <= 3_000 for key, (data, _) in sim.objects.items() if "checkpoint" in key)
    assert "raise checkpoint_bytes_max" in caplog.text
    assert caplog.text.count("raise checkpoint_bytes_max") <= 100 / 4, "tried at each fourth delta and not at each"
    assert await consumed(sim, settings=settings) == [b"%d" % number for number in range(100)]


async def test_a_checkpoint_beyond_the_limit_of_a_reader_is_named_with_the_limit(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(20)), settings=quick(checkpoint_deltas=8))
    with pytest.raises(Invalid, match="raise checkpoint_bytes_max"):
        await Journal(sim, settings=quick(checkpoint_bytes_max=100)).open(create=False)


# What it costs


def test_a_commit_does_not_pay_for_every_producer_ever_seen():
    def cost(count: int) -> float:
        state = begun()
        state.producers = Producers({fresh_id(number): ProducerRecord(0, "0" * 26, 0) for number in range(count)})
        best = float("inf")
        for number in range(50):
            started = time.thread_time()
            state = after_without_check(state, number)
            best = min(best, time.thread_time() - started)
        return best

    assert cost(100_000) < 20 * cost(10)


def after_without_check(state: State, number: int) -> State:
    delta = Delta(1, "B", state.number + 1, state.chain, "w", "n", 0, [Append([entry("5", "P", number)])])
    return fold(state, delta, "00000000")
