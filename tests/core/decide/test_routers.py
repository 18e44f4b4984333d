"""Routers: copies from a cursor of the log, past filters, loops, full and absent destinations."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Conflict, Denied, Invalid, NotFound, Overloaded, Record, Settings
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas, seqs, tagged
from tests.kit.rules import Rules, read


def hold_up(rules: Rules, name: str) -> None:
    """A topic that is full: routers to it wait until a put takes its cap away."""
    rules.put_topic(name, {"cap_records": 1, "discard": "reject"})
    rules.produce(name, [b"0"])


# Put, get, list, delete


def test_a_put_creates_and_a_second_put_replaces(rules: Rules) -> None:
    router, created = rules.put_router("r", source="a", dest="b")
    assert created
    assert (router.name, router.source, router.dest, router.filter) == ("r", "a", "b", None)
    assert (router.preserve_node, router.preserve_tag, router.create_dest, router.allow_cycle) == (
        True,
        True,
        True,
        False,
    )
    router, created = rules.put_router("r", source="a", dest="c", filter="x", preserve_node=False)
    assert not created
    assert (router.dest, router.filter, router.preserve_node) == ("c", ["tag", "Eq", "x"], False)
    assert rules.topics().items == [], "neither end need exist"


def test_a_router_from_a_topic_to_itself_is_refused(rules: Rules) -> None:
    with pytest.raises(Invalid):
        rules.put_router("r", source="a", dest="a")


def test_a_router_may_have_an_arrow_in_its_name_and_a_topic_may_not(rules: Rules) -> None:
    rules.put_router("a->b", source="a", dest="b")
    assert rules.router("a->b").dest == "b"
    with pytest.raises(Invalid):
        rules.put_router("r", source="a->b", dest="c")


def test_an_absent_router_is_not_found_and_deleting_it_is_no_error(rules: Rules) -> None:
    with pytest.raises(NotFound) as error:
        rules.router("r")
    assert error.value.code == "router_not_found"
    assert rules.delete_router("r") is False
    rules.put_router("r", source="a", dest="b")
    assert rules.delete_router("r") is True
    rules.produce("a", [b"1"])
    assert rules.topics().items == ["a"], "a deleted router copies nothing"


def test_routers_are_listed_by_name_source_and_dest(rules: Rules) -> None:
    for name, source, dest in (("x.1", "a", "b"), ("x.2", "b", "c"), ("y", "a", "c")):
        rules.put_router(name, source=source, dest=dest)

    def names(**filters: Any) -> list[str]:
        return [router.name for router in rules.routers(**filters).items]

    assert names() == ["x.1", "x.2", "y"]
    assert names(prefix="x.") == ["x.1", "x.2"]
    assert names(source="a") == ["x.1", "y"]
    assert names(dest="c") == ["x.2", "y"]
    assert names(source="a", dest="c") == ["y"]
    assert names(source="nothing") == []
    page = rules.routers(limit=2)
    assert page.next_cursor is not None
    last = rules.routers(limit=2, cursor=page.next_cursor)
    assert ([router.name for router in last.items], last.next_cursor) == (["y"], None)


def test_what_a_listing_answers_is_a_copy(rules: Rules) -> None:
    rule = ["tag", "Eq", "x"]
    router, _ = rules.put_router("r", source="a", dest="b", filter=rule)
    rule[2] = router.dest = router.name = "changed"
    rules.routers().items[0].dest = "changed"
    rules.router("r").dest = "changed"
    assert (rules.router("r").dest, rules.router("r").filter) == ("b", ["tag", "Eq", "x"])


# Copying


def test_the_first_read_after_the_answer_shows_the_copy(rules: Rules) -> None:
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [Record(data=b"1", tag="t", node="n", meta=b'{"m":1}'), b"2"])
    first, second = read(rules, "b")
    assert (first.data, first.tag, first.node, first.meta) == (b"1", "t", "n", b'{"m":1}')
    assert (second.data, second.tag, second.node, second.meta) == (b"2", None, None, None)
    assert rules.router("r").forwarded == 2


def test_seq_and_time_are_the_destination_s_own(rules: Rules, clock: ManualClock) -> None:
    rules.produce("b", [b"before"])
    rules.produce("a", [b"old"])
    rules.put_router("r", source="a", dest="b")
    clock.advance(500)
    rules.produce("a", [b"new"])
    copy = (read(rules, "b"))[-1]
    assert (copy.data, copy.seq, copy.ts) == (b"new", 2, clock.wall_ms())


def test_a_router_copies_what_comes_after_it_was_made(rules: Rules) -> None:
    rules.produce("a", [b"1"])
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"2"])
    assert datas(read(rules, "b")) == [b"2"]


def test_a_replaced_router_goes_on_from_its_cursor_and_a_new_source_starts_now(rules: Rules) -> None:
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1"])
    rules.put_router("r", source="a", dest="c")
    rules.produce("a", [b"2"])
    assert (datas(read(rules, "b")), datas(read(rules, "c"))) == ([b"1"], [b"2"])
    rules.produce("x", [b"old"])
    rules.put_router("r", source="x", dest="c")
    rules.produce("x", [b"3"])
    assert datas(read(rules, "c")) == [b"2", b"3"]


def test_node_and_tag_are_left_behind_where_asked(rules: Rules) -> None:
    rules.put_router("r", source="a", dest="b", preserve_node=False, preserve_tag=False)
    rules.produce("a", [Record(data=b"1", tag="t", node="n")])
    (copy,) = read(rules, "b")
    assert (copy.tag, copy.node) == (None, None)


@pytest.mark.parametrize(
    ("filter", "copied"), [("a", [1]), (["tag", "Eq", "b"], [3]), (["tag", "Glob", "a*"], [1, 2]), (None, [1, 2, 3, 4])]
)
def test_a_filter_lets_through_what_it_matches(rules: Rules, filter: object, copied: list[int]) -> None:
    rules.put_router("r", source="a", dest="b", filter=filter)
    rules.produce("a", tagged("a", "ab", "b", None))
    assert datas(read(rules, "b")) == [[b"a", b"ab", b"b", b""][seq - 1] for seq in copied]
    assert rules.router("r").cursor == 4, "what was left out is passed too"


def test_copies_of_tagged_records_can_be_deleted_by_tag(rules: Rules) -> None:
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", tagged("x", "y"))
    assert (rules.delete_records("b", match="x")).deleted == 1


def test_a_router_fans_out_and_chains(rules: Rules) -> None:
    for name, source, dest in (("1", "a", "b"), ("2", "a", "c"), ("3", "c", "d")):
        rules.put_router(name, source=source, dest=dest)
    rules.produce("a", [b"1", b"2"])
    for topic in "bcd":
        assert datas(read(rules, topic)) == [b"1", b"2"]


def test_records_that_were_deleted_before_their_turn_are_not_copied(rules: Rules) -> None:
    hold_up(rules, "b")
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1", b"2", b"3"])
    rules.delete_records("a", seqs=[2])
    rules.put_topic("b")
    assert datas(read(rules, "b")) == [b"0", b"1", b"3"]
    assert (rules.diff("b")).tombstone is None


# Cycles


def test_a_cycle_is_refused_and_shown(rules: Rules) -> None:
    rules.put_router("1", source="a", dest="b")
    rules.put_router("2", source="b", dest="c")
    with pytest.raises(Conflict) as error:
        rules.put_router("3", source="c", dest="a")
    assert error.value.code == "router_cycle"
    assert error.value.detail["cycle"] == ["c", "a", "b", "c"]
    with pytest.raises(Conflict) as error:
        rules.put_router("3", source="b", dest="a")
    assert error.value.detail["cycle"] == ["b", "a", "b"]
    assert len(rules.routers().items) == 2


def test_replacing_a_router_can_break_the_cycle_it_would_be_part_of(rules: Rules) -> None:
    rules.put_router("1", source="a", dest="b")
    rules.put_router("1", source="b", dest="a")
    assert rules.router("1").source == "b"


# Destinations


def test_an_absent_destination_is_created_as_a_plain_log(rules: Rules) -> None:
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1"], config={"type": "queue", "durability": "memory"})
    assert (rules.topic("b").type, rules.topic("b").config.durability) == ("log", "disk")


def test_a_router_that_must_not_create_needs_its_destination(rules: Rules) -> None:
    with pytest.raises(NotFound) as error:
        rules.put_router("r", source="a", dest="b", create_dest=False)
    assert (error.value.code, error.value.detail["topic"]) == ("topic_not_found", "b")
    assert rules.routers().items == []
    rules.put_topic("b")
    rules.put_router("r", source="a", dest="b", create_dest=False)
    rules.produce("a", [b"1", b"2"])
    assert datas(read(rules, "b")) == [b"1", b"2"]


def test_a_router_does_not_bring_back_a_topic_that_only_a_put_creates(rules: Rules) -> None:
    rules.put_topic("b", {"auto_create": False})
    rules.delete_topic("b")
    with pytest.raises(NotFound):
        rules.put_router("r", source="a", dest="b")
    rules.put_topic("b")
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1"])
    assert datas(read(rules, "b")) == [b"1"]


def test_a_held_router_does_not_hold_its_neighbours(rules: Rules) -> None:
    rules.put_topic("full", {"cap_records": 1, "discard": "reject"})
    rules.produce("full", [b"x"])
    rules.put_router("1", source="a", dest="full")
    rules.put_router("2", source="a", dest="b")
    rules.produce("a", [b"1"])
    assert datas(read(rules, "b")) == [b"1"]


# Loss


def test_what_the_source_lost_before_its_turn_is_a_gap_in_the_destination(rules: Rules) -> None:
    rules.put_topic("a", {"cap_records": 2})
    hold_up(rules, "b")
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1", b"2"])
    rules.produce("a", [b"3", b"4", b"5"])
    rules.put_topic("b")
    found = rules.diff("b", from_seq=1)
    assert datas(found.records) == [b"4", b"5"]
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.missed_estimate) == ("source_trim", 3)
    assert rules.router("r").missed == 3
    assert (rules.diff("b", from_seq=found.tombstone.gap_to)).tombstone is None, "once past it, it is past"
    assert seqs(found.records) == [3, 4]


def test_a_topic_is_not_deleted_with_routers_that_the_caller_does_not_reach(rules: Rules) -> None:
    rules.put_topic("a.q")
    rules.put_router("a.own", source="a.q", dest="a.copy")
    rules.put_router("b.in", source="b.q", dest="a.q")
    with pytest.raises(Denied):
        rules.delete_topic("a.q", reaches=lambda name: name.startswith("a."))
    assert [router.name for router in rules.routers().items] == ["a.own", "b.in"]
    assert [router.name for router in rules.routers(reaches=lambda name: name.startswith("a.")).items] == ["a.own"]
    rules.delete_router("b.in")
    assert rules.delete_topic("a.q", reaches=lambda name: name.startswith("a.")) == (True, ["a.own"])


def test_the_number_of_routers_is_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(routers_max=1))
    rules.put_router("r", source="a", dest="b")
    with pytest.raises(Overloaded):
        rules.put_router("s", source="a", dest="c")
    rules.put_router("r", source="a", dest="c")


def test_the_number_of_routers_from_one_topic_is_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(routers_per_source_max=2))
    rules.put_router("r", source="a", dest="b")
    rules.put_router("s", source="a", dest="c")
    rules.put_router("t", source="b", dest="d")
    for name in ("u", "t"):
        with pytest.raises(Overloaded, match="delete some, or raise") as error:
            rules.put_router(name, source="a", dest="e")
        assert error.value.detail == {"limit": "routers_per_source_max", "max": 2}
    rules.put_router("s", source="a", dest="e")
    rules.delete_router("r")
    rules.put_router("t", source="a", dest="d")
    assert len(rules.routers(source="a").items) == 2


def test_without_a_limit_any_number_of_routers_leads_from_a_topic(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(routers_per_source_max=0))
    for number in range(200):
        rules.put_router(f"r{number}", source="a", dest=f"b{number}")
    assert len(rules.state.routers_from["a"]) == 200
