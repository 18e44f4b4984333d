"""Appending (contract, section 4): all or nothing, at most once where the caller names it, within the limits."""

from __future__ import annotations

import asyncio

import pytest

from tenure import Broker, Conflict, Invalid, NotFound, Overloaded, Record, Settings
from tenure.core.marks import MARK_KEPT_MS
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.broker.support import GatedLog, datas, make_queue, numbers, read, reopen, seqs, snapshot, start, turn

DAY_MS = 24 * 3600 * 1000

# Seqs


async def test_records_get_contiguous_seqs_from_one(broker: Broker) -> None:
    first = await broker.produce("t", [b"1", b"2", b"3"])
    assert (first.topic, first.first_seq, first.last_seq, first.head_seq, first.count) == ("t", 1, 3, 3, 3)
    second = await broker.produce("t", [Record(data=b"4"), b"5"])
    assert (list(second.seqs), second.head_seq) == ([4, 5], 5)
    assert datas(await read(broker, "t")) == [b"1", b"2", b"3", b"4", b"5"]


async def test_calls_take_effect_in_their_order_whenever_they_are_awaited(broker: Broker) -> None:
    answers = [broker.produce("t", [b"%d" % number]) for number in range(100)]
    assert broker.topic("t").count == 100, "done when it is called"
    replies = await asyncio.gather(*reversed(answers))
    assert [reply.first_seq for reply in replies] == list(range(100, 0, -1))


async def test_one_bad_record_keeps_all_of_them_out(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    before = snapshot(broker)
    for bad in (Record(data=b"x", tag="y" * 257), Record(data=b"x", meta=b"[]"), Record(data=b"x", delay_ms=-1)):
        with pytest.raises(Invalid):
            broker.produce("t", [b"2", bad, b"3"])
    assert snapshot(broker) == before
    assert (await broker.produce("t", [b"2"])).first_seq == 2, "no seq was lost on the way"


async def test_a_record_comes_back_byte_for_byte(broker: Broker, clock: ManualClock) -> None:
    data, meta = b'{ "b":1e400,\n"a" : "\\ud800", "a":[] }', b' {"k": 1e400, "j":"\xc3\xa9"}'
    await broker.produce("t", [Record(data=data, tag="é", node="n-1", meta=meta), Record(data=b"")])
    full, bare = await read(broker, "t")
    assert (full.data, full.tag, full.node, full.meta, full.ts) == (data, "é", "n-1", meta, clock.wall_ms())
    assert (bare.data, bare.tag, bare.node, bare.meta) == (b"", None, None, None)


async def test_the_node_of_the_call_is_for_records_without_their_own(broker: Broker) -> None:
    await broker.produce("t", [b"1", Record(data=b"2"), Record(data=b"3", node="own")], node="call")
    assert [record.node for record in await read(broker, "t")] == ["call", "call", "own"]


async def test_the_timestamp_is_wall_time(broker: Broker, clock: ManualClock) -> None:
    await broker.produce("t", [b"1"])
    clock.jump_wall(-3_600_000)
    await broker.produce("t", [b"2"])
    first, second = await read(broker, "t")
    assert second.ts == clock.wall_ms() == first.ts - 3_600_000


# Creating


async def test_an_append_creates_its_topic_with_the_config_it_gives(broker: Broker) -> None:
    reply = await broker.produce("q", [b"1"], config={"type": "queue", "lease_ms": 777})
    assert reply.created
    assert broker.topic("q").config["lease_ms"] == 777
    reply = await broker.produce("q", [b"2"], config={"type": "log", "lease_ms": 999})
    assert not reply.created
    assert broker.topic("q").config["lease_ms"] == 777, "the config counts only for the write that creates"


async def test_an_append_that_must_not_create_finds_nothing(broker: Broker) -> None:
    with pytest.raises(NotFound) as error:
        broker.produce("t", [b"1"], create=False)
    assert error.value.code == "topic_not_found"
    assert broker.topics().items == []
    await broker.put_topic("t")
    assert (await broker.produce("t", [b"1"], create=False)).first_seq == 1


async def test_an_append_that_is_refused_creates_nothing(broker: Broker) -> None:
    before = snapshot(broker)
    for config in ({"type": "stack"}, {"cap_records": 1, "discard": "reject"}, {"type": "log"}):
        with pytest.raises((Invalid, Overloaded)):
            broker.produce("t", [b"1", Record(data=b"2", delay_ms=5)], config=config)
    assert snapshot(broker) == before


# Limits

SMALL = Settings(
    records_max=3,
    record_bytes_max=100,
    append_bytes_max=250,
    meta_bytes_max=50,
    meta_keys_max=2,
    tag_bytes_max=8,
    key_bytes_max=8,
)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], "invalid_request"),
        ([b""] * 4, "batch_too_large"),
        ([b"x" * 101], "record_too_large"),
        ([b"", b"x" * 101], "record_too_large"),
        ([Record(data=b"x" * 60, meta=b'{"a":"' + b"x" * 40 + b'"}')], "record_too_large"),
        ([b"x" * 99] * 3, "batch_too_large"),
        ([Record(data=b"", meta=b'{"a":"' + b"x" * 50 + b'"}')], "invalid_request"),
        ([Record(data=b"", meta=b'{"a":1,"b":2,"c":3}')], "invalid_request"),
        ([Record(data=b"", tag="x" * 9)], "invalid_request"),
        ([Record(data=b"", tag="é" * 5)], "invalid_request"),
        ([Record(data=b"", unique_key="x" * 9)], "invalid_request"),
        ([Record(data=b"", unique_key="")], "invalid_request"),
        ([Record(data=b"", node="x" * 129)], "invalid_request"),
    ],
)
async def test_what_is_over_a_limit_is_refused_by_name(
    clock: ManualClock, records: list[bytes | Record], code: str
) -> None:
    async with await Broker.open(None, clock=clock, settings=SMALL) as broker:
        await make_queue(broker)
        before = snapshot(broker)
        with pytest.raises(Invalid) as error:
            broker.produce("q", records)
        assert error.value.code == code
        assert snapshot(broker) == before


async def test_what_is_just_within_the_limits_is_taken(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=SMALL) as broker:
        await make_queue(broker)
        await broker.produce("q", [b"x" * 100])
        await broker.produce("q", [Record(data=b"", tag="é" * 4, meta=b'{"a":1,"b":2}', node="n" * 128), b"", b""])
        await broker.produce("q", [Record(data=b"", unique_key="12345678")], idempotency_key="12345678")
        assert broker.topic("q").count == 5


async def test_the_live_bytes_of_all_topics_together_are_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(total_bytes_max=100)) as broker:
        await make_queue(broker)
        await broker.produce("q", [b"x" * 60])
        await broker.produce("other", [b"x" * 40])
        before = snapshot(broker)
        with pytest.raises(Overloaded) as error:
            broker.produce("q", [b"x"])
        assert error.value.detail["limit"] == "total_bytes_max"
        assert snapshot(broker) == before
        await broker.claim("q", node="w", auto_ack=True)
        await broker.produce("q", [b"x" * 60])


async def test_writers_are_turned_away_while_the_disk_is_behind(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=Settings(pending_bytes_max=100)) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        log.gate.clear()
        waiting = await start(broker.produce("t", [b"x" * 101]))
        with pytest.raises(Overloaded):
            broker.produce("t", [b"x"])
        log.gate.set()
        await waiting
        await broker.produce("t", [b"x"])


# Caps


@pytest.mark.parametrize(("cap", "records"), [({"cap_records": 3}, [b"1"]), ({"cap_bytes": 9}, [b"333"])])
async def test_a_full_topic_that_rejects_takes_nothing(
    broker: Broker, cap: dict[str, int], records: list[bytes]
) -> None:
    await broker.put_topic("q", {"type": "queue", "discard": "reject", **cap})
    await broker.produce("q", [b"333", b"333", b"333"])
    before = snapshot(broker)
    with pytest.raises(Overloaded) as error:
        broker.produce("q", records)
    assert (error.value.code, error.value.detail["limit"]) == ("topic_full", next(iter(cap)))
    assert snapshot(broker) == before
    await broker.claim("q", node="w", auto_ack=True)
    await broker.produce("q", records)


async def test_a_batch_that_does_not_fit_as_a_whole_is_rejected_as_a_whole(broker: Broker) -> None:
    await broker.put_topic("t", {"discard": "reject", "cap_records": 3})
    await broker.produce("t", [b"1", b"2"])
    with pytest.raises(Overloaded):
        broker.produce("t", [b"3", b"4"])
    assert datas(await read(broker, "t")) == [b"1", b"2"]


async def test_a_full_topic_that_discards_lets_the_oldest_go(broker: Broker) -> None:
    await broker.put_topic("t", {"cap_records": 3})
    await broker.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    assert seqs(await read(broker, "t")) == [3, 4, 5]
    await broker.put_topic("t", {"cap_bytes": 2})
    assert seqs(await read(broker, "t")) == [4, 5]
    await broker.produce("t", [b"much too large"])
    assert seqs(await read(broker, "t")) == [6], "the newest record always stays"


async def test_a_leased_job_is_never_discarded_and_counts_again_once_released(broker: Broker) -> None:
    await make_queue(broker, cap_records=2)
    await broker.produce("q", [b"1", b"2"])
    await broker.claim("q", node="w")
    await broker.produce("q", [b"3", b"4"])
    assert seqs(await read(broker, "q")) == [1, 4]
    await broker.nack("q", node="w", seqs=[1])
    await broker.produce("q", [b"5"])
    assert seqs(await read(broker, "q")) == [4, 5]


async def test_a_parked_job_pins_its_record(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, cap_records=2, ttl_ms=1000, dlq_strategy="block")
    await broker.produce("q", [b"1", b"2"])
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], dead=True)
    await broker.produce("q", [b"3", b"4"])
    assert seqs(await read(broker, "q")) == [1, 4]
    clock.advance(5000)
    assert seqs(await read(broker, "q")) == [1]
    await broker.redrive("q")
    assert seqs(await read(broker, "q")) == [], "back in circulation it is as old as it is"


async def test_a_ttl_lets_records_go_once_they_are_older(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, ttl_ms=1000)
    await broker.produce("q", [b"1"])
    clock.advance(600)
    await broker.produce("q", [b"2"])
    clock.advance(399)
    assert broker.topic("q").count == 2
    clock.advance(2)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]
    clock.advance(5000)
    assert broker.topic("q").count == 1, "held"
    await broker.ack("q", node="w", seqs=[2])
    assert broker.metrics.evicted == 1


# Idempotency keys


async def test_the_same_key_answers_the_first_seqs_and_appends_nothing(broker: Broker) -> None:
    first = await broker.produce("t", [b"1", b"2"], idempotency_key="k")
    await broker.produce("t", [b"3"])
    again = await broker.produce("t", [b"1", b"2"], idempotency_key="k")
    assert (again.first_seq, again.count, again.head_seq, again.deduped) == (1, 2, 3, True)
    assert not first.deduped
    assert broker.topic("t").count == 3


async def test_the_same_key_for_another_payload_is_a_conflict(broker: Broker) -> None:
    await broker.produce("t", [b"12", b"3"], idempotency_key="k")
    before = snapshot(broker)
    others: list[list[bytes | Record]] = [[b"1", b"23"], [b"123"], [b"12"], [b"12", b"3", b""]]
    others.append([Record(data=b"12", tag="x"), b"3"])
    for records in others:
        with pytest.raises(Conflict) as error:
            broker.produce("t", records, idempotency_key="k")
        assert error.value.code == "idempotency_conflict"
    assert snapshot(broker) == before


async def test_a_key_is_forgotten_after_its_window_and_another_topic_never_knew_it(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.put_topic("t", {"idempotency_window_ms": 1000})
    await broker.produce("t", [b"1"], idempotency_key="k")
    assert not (await broker.produce("u", [b"1"], idempotency_key="k")).deduped
    clock.advance(1000)
    assert (await broker.produce("t", [b"1"], idempotency_key="k")).deduped
    clock.advance(1)
    assert (await broker.produce("t", [b"2"], idempotency_key="k")).first_seq == 2


async def test_a_key_is_known_even_after_its_records_are_gone_and_after_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    await broker.produce("q", [b"1"], idempotency_key="k")
    await broker.claim("q", node="w", auto_ack=True)
    async with await reopen(broker, log, clock) as broker:
        again = await broker.produce("q", [b"1"], idempotency_key="k")
        assert (again.first_seq, again.deduped, broker.topic("q").count) == (1, True, 0)


async def test_a_repeat_is_answered_when_nothing_else_is_written(broker: Broker) -> None:
    """The first copy is written and its sync is not due yet: there is no later batch that the repeat could wait for."""
    await broker.produce("t", [b"1"], idempotency_key="k")
    again = await start(broker.produce("t", [b"1"], idempotency_key="k"))
    assert again.done()
    assert again.result().deduped


async def test_a_repeat_waits_until_the_first_copy_is_durable(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        log.gate.clear()
        first = await start(broker.produce("t", [b"1"], idempotency_key="k"))
        again = await start(broker.produce("t", [b"1"], idempotency_key="k"))
        assert not first.done()
        assert not again.done()
        log.gate.set()
        assert (await first).first_seq == (await again).first_seq == 1


async def test_the_number_of_keys_is_bounded_and_old_ones_make_room(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(idempotency_keys_max=2)) as broker:
        await broker.put_topic("t", {"idempotency_window_ms": 1000})
        await broker.produce("t", [b"1"], idempotency_key="a")
        await broker.produce("u", [b"1"], idempotency_key="b", config={"idempotency_window_ms": 9000})
        before = snapshot(broker)
        with pytest.raises(Overloaded) as error:
            broker.produce("u", [b"2"], idempotency_key="c")
        assert error.value.detail["limit"] == "idempotency_keys_max"
        assert snapshot(broker) == before
        assert (await broker.produce("u", [b"1"], idempotency_key="b")).deduped, "a known key needs no room"
        clock.advance(1001)
        await broker.produce("u", [b"2"], idempotency_key="c")
        assert (await broker.produce("u", [b"1"], idempotency_key="b")).deduped


async def test_no_window_is_longer_than_the_limit_and_the_answer_says_so(clock: ManualClock) -> None:
    settings = Settings(idempotency_window_ms_max=1_000, delay_ms_max=500)
    async with await Broker.open(None, clock=clock, settings=settings) as broker:
        forever = {"idempotency_window_ms": 2**64 - 1, "retry_backoff": {"max_ms": 2**64 - 1}}
        info, _ = await broker.put_topic("t", forever)
        assert info.config["idempotency_window_ms"] == 1_000
        assert info.config["retry_backoff"]["max_ms"] == 500
        await broker.produce("u", [b"1"], idempotency_key="k", config=forever)
        assert broker.topic("u").config["idempotency_window_ms"] == 1_000
        clock.advance(1_001)
        assert not (await broker.produce("u", [b"2"], idempotency_key="k")).deduped


async def test_a_limit_that_was_lowered_holds_for_topics_from_before(clock: ManualClock) -> None:
    log = MemoryLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"idempotency_window_ms": 60_000})
    settings = Settings(idempotency_window_ms_max=1_000)
    async with await Broker.open(log.reopen(), clock=clock, settings=settings) as broker:
        await broker.produce("t", [b"1"], idempotency_key="k")
        assert broker.idempotency_keys("t") == 1
        assert broker.idempotency_keys("absent") == 0
        clock.advance(1_001)
        assert broker.idempotency_keys("t") == 0


async def test_a_window_of_nothing_remembers_nothing_past_the_moment(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t", {"idempotency_window_ms": 0})
    await broker.produce("t", [b"1"], idempotency_key="k")
    clock.advance(1)
    assert not (await broker.produce("t", [b"1"], idempotency_key="k")).deduped


# Client marks


async def test_client_seqs_rise_and_an_old_one_is_a_conflict(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2"], client_id="c", client_seq=5)
    await broker.produce("t", [b"3"], client_id="c", client_seq=7)
    before = snapshot(broker)
    with pytest.raises(Conflict) as error:
        broker.produce("t", [b"3"], client_id="c", client_seq=7)
    assert error.value.code == "idempotency_conflict"
    assert error.value.detail == {"last_client_seq": 7, "first_seq": 3, "last_seq": 3}
    with pytest.raises(Conflict) as error:
        broker.produce("t", [b"x"], client_id="c", client_seq=6)
    assert error.value.detail == {"last_client_seq": 7}, "what an older call got is not known any more"
    assert snapshot(broker) == before
    await broker.produce("t", [b"4"], client_id="c", client_seq=8)


async def test_marks_are_kept_by_topic_and_client(broker: Broker) -> None:
    await broker.produce("t", [b"1"], client_id="c", client_seq=0)
    await broker.produce("t", [b"1"], client_id="d", client_seq=0)
    await broker.produce("u", [b"1"], client_id="c", client_seq=0)
    with pytest.raises(Conflict):
        broker.produce("u", [b"1"], client_id="c", client_seq=0)


async def test_a_key_is_looked_up_before_the_mark(broker: Broker) -> None:
    await broker.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=1)
    again = await broker.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=1)
    assert again.deduped
    with pytest.raises(Conflict):
        broker.produce("t", [b"1"], idempotency_key="other", client_id="c", client_seq=1)


async def test_a_mark_survives_its_records_and_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.produce("t", [b"1"], client_id="c", client_seq=9)
    await broker.delete_records("t", before_seq=2)
    async with await reopen(broker, log, clock) as broker:
        with pytest.raises(Conflict) as error:
            broker.produce("t", [b"1"], client_id="c", client_seq=9)
        assert error.value.detail["last_client_seq"] == 9


async def test_an_idle_mark_expires_after_seven_days(broker: Broker, clock: ManualClock) -> None:
    await broker.produce("t", [b"1"], client_id="c", client_seq=9)
    clock.advance(7 * DAY_MS)
    with pytest.raises(Conflict):
        broker.produce("t", [b"1"], client_id="c", client_seq=9)
    clock.advance(1)
    await broker.produce("t", [b"1"], client_id="c", client_seq=1)


async def test_of_as_many_clients_as_may_be_remembered_the_one_idle_for_longest_gives_way(clock: ManualClock) -> None:
    log, settings = MemoryLog(), Settings(client_marks_max=2)
    broker = await Broker.open(log, clock=clock, settings=settings)
    for client in "ab":
        await broker.produce("t", [b"1"], client_id=client, client_seq=1)
        clock.advance(1)
    clock.advance(MARK_KEPT_MS - 2)
    before = snapshot(broker)
    with pytest.raises(Overloaded) as error:
        broker.produce("t", [b"1"], client_id="c", client_seq=1)
    assert error.value.detail["limit"] == "client_marks_max"
    assert snapshot(broker) == before
    clock.advance(1)
    await broker.produce("t", [b"1"], client_id="c", client_seq=1)
    with pytest.raises(Overloaded):
        broker.produce("t", [b"1"], client_id="d", client_seq=1)  # b is a millisecond younger than a was
    async with await reopen(broker, log, clock) as broker:
        for known in "bc":
            with pytest.raises(Conflict):
                broker.produce("t", [b"1"], client_id=known, client_seq=1)
        await broker.produce("t", [b"1"], client_id="a", client_seq=1)


async def test_a_client_that_is_remembered_takes_no_place_from_another(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(client_marks_max=2)) as broker:
        for client in "ab":
            await broker.produce("t", [b"1"], client_id=client, client_seq=1)
        clock.advance(MARK_KEPT_MS + 1)
        await broker.produce("t", [b"1"], client_id="b", client_seq=2)
        with pytest.raises(Conflict):
            broker.produce("t", [b"1"], client_id="a", client_seq=1)


async def test_a_refused_append_forgets_no_mark(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(client_marks_max=1)) as broker:
        await broker.put_topic("t", {"cap_records": 1, "discard": "reject"})
        await broker.produce("t", [b"1"], client_id="a", client_seq=1)
        clock.advance(7 * DAY_MS + 1)
        before = snapshot(broker)
        with pytest.raises(Overloaded):
            broker.produce("t", [b"2"], client_id="b", client_seq=1)
        assert snapshot(broker) == before


@pytest.mark.parametrize("name", [{"client_id": "c"}, {"client_seq": 1}])
async def test_client_id_and_client_seq_go_together(broker: Broker, name: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        broker.produce("t", [b"1"], **name)  # type: ignore[arg-type]
    assert broker.topics().items == []


# Unique keys


async def test_a_unique_key_answers_the_living_job(broker: Broker) -> None:
    await make_queue(broker)
    await broker.produce("q", [b"other"])
    job = Record(data=b"1", unique_key="u")
    assert (await broker.produce("q", [job])).first_seq == 2
    again = await broker.produce("q", [Record(data=b"something else", unique_key="u")])
    assert (again.first_seq, again.count, again.deduped) == (2, 1, True)
    await broker.claim("q", node="w", max_count=2)
    assert (await broker.produce("q", [job])).deduped, "in flight is alive"
    await broker.ack("q", node="w", seqs=[2])
    assert (await broker.produce("q", [job])).first_seq == 3


async def test_a_unique_key_is_free_once_its_job_is_gone_whatever_way(broker: Broker) -> None:
    await make_queue(broker, cap_records=1)
    job = Record(data=b"1", unique_key="u")
    await broker.produce("q", [job])
    await broker.delete_records("q", seqs=[1])
    assert (await broker.produce("q", [job])).first_seq == 2
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[2], dead=True)
    assert (await broker.produce("q", [job])).first_seq == 3
    await broker.produce("q", [b"pushes it out"])
    assert (await broker.produce("q", [job])).first_seq == 5


async def test_a_unique_job_is_appended_alone_and_to_a_queue(broker: Broker) -> None:
    await make_queue(broker)
    unique = Record(data=b"1", unique_key="u")
    for beside in (b"2", unique):
        with pytest.raises(Invalid):
            broker.produce("q", [unique, beside])
    with pytest.raises(Invalid):
        broker.produce("log", [unique])
    assert (broker.topic("q").count, broker.topics().items) == (0, ["q"])


async def test_a_unique_key_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", unique_key="u")])
    async with await reopen(broker, log, clock) as broker:
        assert (await broker.produce("q", [Record(data=b"1", unique_key="u")])).deduped


async def test_the_number_of_unique_keys_is_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(unique_keys_max=1)) as broker:
        await make_queue(broker)
        await broker.produce("q", [Record(data=b"1", unique_key="u")])
        with pytest.raises(Overloaded) as error:
            broker.produce("q", [Record(data=b"2", unique_key="v")])
        assert error.value.detail["limit"] == "unique_keys_max"
        assert (await broker.produce("q", [Record(data=b"1", unique_key="u")])).deduped
        await broker.claim("q", node="w", auto_ack=True)
        await broker.produce("q", [Record(data=b"2", unique_key="v")])


# Delays


async def test_a_delayed_job_is_invisible_to_claims_until_its_time(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", delay_ms=100), b"2", Record(data=b"3", delay_ms=50)])
    assert (numbers(broker)["ready"], numbers(broker)["delayed"]) == (1, 2)
    assert seqs(await read(broker, "q")) == [1, 2, 3], "readers see it all the same"
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]
    clock.advance(50)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [3]
    clock.advance(49)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == []
    clock.advance(1)
    claim = await broker.claim("q", node="w", max_count=9)
    assert (claim.seqs, claim.deliveries(1)) == ([1], 1)


async def test_deliver_at_follows_the_wall_clock_and_a_delay_does_not(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    later = clock.wall_ms() + 10_000
    await broker.produce("q", [Record(data=b"wall", deliver_at=later), Record(data=b"log", delay_ms=10_000)])
    clock.jump_wall(9_900)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == []
    clock.jump_wall(100)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [1]
    clock.jump_wall(-1_000_000)
    clock.advance(10_000)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]


async def test_a_time_that_has_passed_delays_nothing(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", deliver_at=clock.wall_ms()), Record(data=b"2", deliver_at=0)])
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [1, 2]


async def test_delays_survive_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    at = clock.wall_ms() + 200
    await broker.produce("q", [Record(data=b"1", delay_ms=100), Record(data=b"2", deliver_at=at)])
    async with await reopen(broker, log, clock) as broker:
        assert numbers(broker)["delayed"] == 2
        clock.advance(100)
        assert (await broker.claim("q", node="w", max_count=9)).seqs == [1]
        clock.advance(100)
        assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]


@pytest.mark.parametrize("record", [Record(data=b"", delay_ms=1), Record(data=b"", deliver_at=1)])
async def test_a_log_delays_nothing(broker: Broker, record: Record) -> None:
    await broker.put_topic("t")
    with pytest.raises(Invalid):
        broker.produce("t", [record])
    assert broker.topic("t").head_seq == 0


async def test_an_append_wakes_whoever_waits_for_it_before_it_is_answered(broker: Broker) -> None:
    await make_queue(broker)
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    broker.produce("q", [b"1"])
    await turn()
    assert claiming.result().seqs == [1]
