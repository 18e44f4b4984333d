"""Routers (contract, section 7): copies from a cursor of the log, past filters, loops, full and absent destinations."""

from __future__ import annotations

import pytest

from tenure import Broker, Conflict, Denied, Invalid, NotFound, Overloaded, Record, Settings
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.broker.support import GatedLog, datas, make_queue, read, reopen, seqs, start, tagged, turn


async def hold_up(broker: Broker, name: str) -> None:
    """A topic that is full: routers to it wait until a put takes its cap away."""
    await broker.put_topic(name, {"cap_records": 1, "discard": "reject"})
    await broker.produce(name, [b"0"])


# Put, get, list, delete


async def test_a_put_creates_and_a_second_put_replaces(broker: Broker) -> None:
    router, created = await broker.put_router("r", source="a", dest="b")
    assert created
    assert (router.name, router.source, router.dest, router.filter) == ("r", "a", "b", None)
    assert (router.preserve_node, router.preserve_tag, router.create_dest, router.allow_cycle) == (
        True,
        True,
        True,
        False,
    )
    router, created = await broker.put_router("r", source="a", dest="c", filter="x", preserve_node=False)
    assert not created
    assert (router.dest, router.filter, router.preserve_node) == ("c", ["tag", "Eq", "x"], False)
    assert broker.topics().items == [], "neither end need exist"


async def test_a_router_from_a_topic_to_itself_is_refused(broker: Broker) -> None:
    with pytest.raises(Invalid):
        broker.put_router("r", source="a", dest="a")


async def test_a_router_may_have_an_arrow_in_its_name_and_a_topic_may_not(broker: Broker) -> None:
    await broker.put_router("a->b", source="a", dest="b")
    assert broker.router("a->b").dest == "b"
    with pytest.raises(Invalid):
        broker.put_router("r", source="a->b", dest="c")


async def test_an_absent_router_is_not_found_and_deleting_it_is_no_error(broker: Broker) -> None:
    with pytest.raises(NotFound) as error:
        broker.router("r")
    assert error.value.code == "router_not_found"
    assert await broker.delete_router("r") is False
    await broker.put_router("r", source="a", dest="b")
    assert await broker.delete_router("r") is True
    await broker.produce("a", [b"1"])
    assert broker.topics().items == ["a"], "a deleted router copies nothing"


async def test_routers_are_listed_by_name_source_and_dest(broker: Broker) -> None:
    for name, source, dest in (("x.1", "a", "b"), ("x.2", "b", "c"), ("y", "a", "c")):
        await broker.put_router(name, source=source, dest=dest)

    def names(**filters: str) -> list[str]:
        return [router.name for router in broker.routers(**filters).items]  # type: ignore[arg-type]

    assert names() == ["x.1", "x.2", "y"]
    assert names(prefix="x.") == ["x.1", "x.2"]
    assert names(source="a") == ["x.1", "y"]
    assert names(dest="c") == ["x.2", "y"]
    assert names(source="a", dest="c") == ["y"]
    assert names(source="nothing") == []
    page = broker.routers(limit=2)
    assert page.next_cursor is not None
    last = broker.routers(limit=2, cursor=page.next_cursor)
    assert ([router.name for router in last.items], last.next_cursor) == (["y"], None)


async def test_what_a_listing_answers_is_a_copy(broker: Broker) -> None:
    rule = ["tag", "Eq", "x"]
    router, _ = await broker.put_router("r", source="a", dest="b", filter=rule)
    rule[2] = router.dest = router.name = "changed"
    broker.routers().items[0].dest = "changed"
    broker.router("r").dest = "changed"
    assert (broker.router("r").dest, broker.router("r").filter) == ("b", ["tag", "Eq", "x"])


async def test_the_number_of_routers_is_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(routers_max=1)) as broker:
        await broker.put_router("r", source="a", dest="b")
        with pytest.raises(Overloaded):
            broker.put_router("s", source="a", dest="c")
        await broker.put_router("r", source="a", dest="c")


# Copying


async def test_the_first_read_after_the_answer_shows_the_copy(broker: Broker) -> None:
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [Record(data=b"1", tag="t", node="n", meta=b'{"m":1}'), b"2"])
    first, second = await read(broker, "b")
    assert (first.data, first.tag, first.node, first.meta) == (b"1", "t", "n", b'{"m":1}')
    assert (second.data, second.tag, second.node, second.meta) == (b"2", None, None, None)
    assert broker.router("r").forwarded == 2


async def test_seq_and_time_are_the_destination_s_own(broker: Broker, clock: ManualClock) -> None:
    await broker.produce("b", [b"before"])
    await broker.produce("a", [b"old"])
    await broker.put_router("r", source="a", dest="b")
    clock.advance(500)
    await broker.produce("a", [b"new"])
    copy = (await read(broker, "b"))[-1]
    assert (copy.data, copy.seq, copy.ts) == (b"new", 2, clock.wall_ms())


async def test_a_router_copies_what_comes_after_it_was_made(broker: Broker) -> None:
    await broker.produce("a", [b"1"])
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"2"])
    assert datas(await read(broker, "b")) == [b"2"]


async def test_a_replaced_router_goes_on_from_its_cursor_and_a_new_source_starts_now(broker: Broker) -> None:
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1"])
    await broker.put_router("r", source="a", dest="c")
    await broker.produce("a", [b"2"])
    assert (datas(await read(broker, "b")), datas(await read(broker, "c"))) == ([b"1"], [b"2"])
    await broker.produce("x", [b"old"])
    await broker.put_router("r", source="x", dest="c")
    await broker.produce("x", [b"3"])
    assert datas(await read(broker, "c")) == [b"2", b"3"]


async def test_node_and_tag_are_left_behind_where_asked(broker: Broker) -> None:
    await broker.put_router("r", source="a", dest="b", preserve_node=False, preserve_tag=False)
    await broker.produce("a", [Record(data=b"1", tag="t", node="n")])
    (copy,) = await read(broker, "b")
    assert (copy.tag, copy.node) == (None, None)


@pytest.mark.parametrize(
    ("filter", "copied"), [("a", [1]), (["tag", "Eq", "b"], [3]), (["tag", "Glob", "a*"], [1, 2]), (None, [1, 2, 3, 4])]
)
async def test_a_filter_lets_through_what_it_matches(broker: Broker, filter: object, copied: list[int]) -> None:
    await broker.put_router("r", source="a", dest="b", filter=filter)
    await broker.produce("a", tagged("a", "ab", "b", None))
    assert datas(await read(broker, "b")) == [[b"a", b"ab", b"b", b""][seq - 1] for seq in copied]
    assert broker.router("r").cursor == 4, "what was left out is passed too"


async def test_copies_of_tagged_records_can_be_deleted_by_tag(broker: Broker) -> None:
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", tagged("x", "y"))
    assert (await broker.delete_records("b", match="x")).deleted == 1


async def test_a_router_fans_out_and_chains(broker: Broker) -> None:
    for name, source, dest in (("1", "a", "b"), ("2", "a", "c"), ("3", "c", "d")):
        await broker.put_router(name, source=source, dest=dest)
    await broker.produce("a", [b"1", b"2"])
    for topic in "bcd":
        assert datas(await read(broker, topic)) == [b"1", b"2"]


async def test_a_copy_into_a_queue_is_a_job(broker: Broker) -> None:
    await make_queue(broker)
    await broker.put_router("r", source="a", dest="q")
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    await broker.produce("a", [b"1"])
    assert datas((await claiming).jobs) == [b"1"]


async def test_a_long_backlog_is_copied_in_steps_and_in_order(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(router_step_records=3)) as broker:
        await broker.put_router("r", source="a", dest="b")
        await broker.produce("a", [b"%d" % number for number in range(20)])
        await turn()
        assert datas(await read(broker, "b")) == [b"%d" % number for number in range(20)]


async def test_records_that_were_deleted_before_their_turn_are_not_copied(broker: Broker) -> None:
    await hold_up(broker, "b")
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1", b"2", b"3"])
    await broker.delete_records("a", seqs=[2])
    await broker.put_topic("b")
    assert datas(await read(broker, "b")) == [b"0", b"1", b"3"]
    assert (await broker.diff("b")).tombstone is None


# Cycles


async def test_a_cycle_is_refused_and_shown(broker: Broker) -> None:
    await broker.put_router("1", source="a", dest="b")
    await broker.put_router("2", source="b", dest="c")
    with pytest.raises(Conflict) as error:
        broker.put_router("3", source="c", dest="a")
    assert error.value.code == "router_cycle"
    assert error.value.detail["cycle"] == ["c", "a", "b", "c"]
    with pytest.raises(Conflict) as error:
        broker.put_router("3", source="b", dest="a")
    assert error.value.detail["cycle"] == ["b", "a", "b"]
    assert len(broker.routers().items) == 2


async def test_replacing_a_router_can_break_the_cycle_it_would_be_part_of(broker: Broker) -> None:
    await broker.put_router("1", source="a", dest="b")
    await broker.put_router("1", source="b", dest="a")
    assert broker.router("1").source == "b"


async def test_an_allowed_cycle_ends_at_the_hop_cap(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(router_hops_max=5)) as broker:
        await broker.put_router("1", source="a", dest="b")
        await broker.put_router("2", source="b", dest="a", allow_cycle=True)
        await broker.produce("a", [b"1"])
        await turn()
        assert (len(await read(broker, "a")), len(await read(broker, "b"))) == (3, 3), "5 hops make 5 copies"
        await broker.produce("b", [b"2"])
        await turn()
        assert datas(await read(broker, "b")).count(b"2") == 3


# Destinations


async def test_an_absent_destination_is_created_as_a_plain_log(broker: Broker) -> None:
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1"], config={"type": "queue", "durability": "memory"})
    assert (broker.topic("b").type, broker.topic("b").config["durability"]) == ("log", "disk")


async def test_a_router_that_must_not_create_needs_its_destination(broker: Broker) -> None:
    with pytest.raises(NotFound) as error:
        broker.put_router("r", source="a", dest="b", create_dest=False)
    assert (error.value.code, error.value.detail["topic"]) == ("topic_not_found", "b")
    assert broker.routers().items == []
    await broker.put_topic("b")
    await broker.put_router("r", source="a", dest="b", create_dest=False)
    await broker.produce("a", [b"1", b"2"])
    assert datas(await read(broker, "b")) == [b"1", b"2"]


async def test_a_router_does_not_bring_back_a_topic_that_only_a_put_creates(broker: Broker) -> None:
    await broker.put_topic("b", {"auto_create": False})
    await broker.delete_topic("b")
    with pytest.raises(NotFound):
        broker.put_router("r", source="a", dest="b")
    await broker.put_topic("b")
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1"])
    assert datas(await read(broker, "b")) == [b"1"]


async def test_a_full_destination_holds_the_router_until_there_is_room(broker: Broker) -> None:
    await make_queue(broker, cap_records=1, discard="reject")
    await broker.put_router("r", source="a", dest="q")
    await broker.produce("a", [b"1"])
    await broker.produce("a", [b"2"])
    await broker.produce("a", [b"3"])
    assert (datas(await read(broker, "q")), broker.router("r").cursor) == ([b"1"], 1)
    await broker.put_topic("q", {"cap_records": 2, "discard": "reject"})
    await broker.claim("q", node="w", auto_ack=True)
    await turn()
    assert datas(await read(broker, "q")) == [b"2", b"3"]
    assert broker.router("r").forwarded == 3


async def test_a_held_router_does_not_hold_its_neighbours(broker: Broker) -> None:
    await broker.put_topic("full", {"cap_records": 1, "discard": "reject"})
    await broker.produce("full", [b"x"])
    await broker.put_router("1", source="a", dest="full")
    await broker.put_router("2", source="a", dest="b")
    await broker.produce("a", [b"1"])
    assert datas(await read(broker, "b")) == [b"1"]


# Loss


async def test_what_the_source_lost_before_its_turn_is_a_gap_in_the_destination(broker: Broker) -> None:
    await broker.put_topic("a", {"cap_records": 2})
    await hold_up(broker, "b")
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1", b"2"])
    await broker.produce("a", [b"3", b"4", b"5"])
    await broker.put_topic("b")
    found = await broker.diff("b", from_seq=1)
    assert datas(found.records) == [b"4", b"5"]
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.missed_estimate) == ("source_trim", 3)
    assert broker.router("r").missed == 3
    assert (await broker.diff("b", from_seq=found.tombstone.gap_to)).tombstone is None, "once past it, it is past"
    assert seqs(found.records) == [3, 4]


async def test_a_topic_that_was_deleted_before_its_turn_came_is_not_copied_from(broker: Broker) -> None:
    await broker.produce("a", [b"old"])
    broker._pump._attend_later(broker._state.topics["a"])
    broker.delete_topic("a")
    broker.put_router("r", source="a", dest="b")
    await turn()
    assert broker.topics().items == []


# Durability


@pytest.mark.parametrize("durability", ["disk", "fsync"])
async def test_a_reader_of_the_destination_comes_past_the_gap(
    broker: Broker, clock: ManualClock, durability: str
) -> None:
    """The seq that marks it becomes durable: a reader is woken by it, told once, and goes on behind it."""
    await broker.put_topic("a", {"ttl_ms": 1_000})
    await broker.put_topic("b", {"durability": durability, "cap_records": 1, "discard": "reject"})
    await broker.produce("b", [b"fills it"])
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1", b"2", b"3"])
    clock.advance(5_000)
    await broker.diff("a")
    waiting = await start(broker.diff("b", from_seq=1, wait_ms=1_000))
    await broker.delete_records("b", before_seq=2)
    await broker.synced()
    found = await waiting
    assert found.tombstone is not None
    assert (found.next_from_seq, broker.topic("b").durable_seq) == (2, 2)
    assert (await broker.diff("b", from_seq=2)).tombstone is None


async def test_records_of_an_fsync_source_are_copied_once_synced(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("a", {"durability": "fsync"})
        await broker.put_router("r", source="a", dest="b")
        log.gate.clear()
        producing = await start(broker.produce("a", [b"1"]))
        assert broker.topics().items == ["a"], "nobody acts on a record that can vanish"
        log.gate.set()
        await producing
        assert datas(await read(broker, "b")) == [b"1"]


async def test_the_cursor_survives_a_restart_and_nothing_is_copied_twice(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.put_router("r", source="a", dest="b", filter=["tag", "Glob", "x*"])
    await broker.produce("a", tagged("x1", "y", "x2"))
    async with await reopen(broker, log, clock) as broker:
        await broker.produce("a", tagged("x3"))
        assert datas(await read(broker, "b")) == [b"x1", b"x2", b"x3"]
        assert broker.router("r").forwarded == 3


async def test_a_router_that_was_behind_catches_up_when_the_broker_opens(clock: ManualClock) -> None:
    disk = SimDisk()
    async with await Broker.open(disk, clock=clock) as broker:
        await broker.put_topic("a", {"durability": "fsync"})
        await broker.put_router("r", source="a", dest="b")
        broker.produce("a", [b"1"])
        broker._engine.write()
        killed = disk.kill()  # written, but not seen to be synced: the router has not been there
    async with await Broker.open(killed, clock=clock) as broker:
        await turn()
        assert datas(await read(broker, "b")) == [b"1"]


async def test_a_topic_is_not_deleted_with_routers_that_the_caller_does_not_reach(broker: Broker) -> None:
    await broker.put_topic("a.q")
    await broker.put_router("a.own", source="a.q", dest="a.copy")
    await broker.put_router("b.in", source="b.q", dest="a.q")
    with pytest.raises(Denied):
        await broker.delete_topic("a.q", reaches=lambda name: name.startswith("a."))
    assert [router.name for router in broker.routers().items] == ["a.own", "b.in"]
    assert [router.name for router in broker.routers(reaches=lambda name: name.startswith("a.")).items] == ["a.own"]
    await broker.delete_router("b.in")
    assert await broker.delete_topic("a.q", reaches=lambda name: name.startswith("a.")) == (True, ["a.own"])
