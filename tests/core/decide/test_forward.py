"""One step of a router: how much it copies, that the cursor goes with the copies, and what blocks it."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Overloaded, Settings
from tenure.core.decide.forward import Forwarded, forward
from tenure.core.events import Appended, RouterMoved, TopicPut
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas
from tests.kit.rules import Rules, read


@pytest.fixture
def rules(clock: ManualClock) -> Rules:
    """Five records that a router has not seen yet, and goes two of them at a time."""
    rules = Rules(clock, Settings(router_step_records=2))
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"0"])  # passed on at once: the destination is there from here on
    return rules


def append(rules: Rules, topic: str, count: int) -> None:
    """Append without letting routers pass it on."""
    first, now_ms = rules.state.topics[topic].head_seq + 1, rules.now_ms
    for seq in range(first, first + count):
        rules._fold([Appended(now_ms, rules.state.topics[topic].id, now_ms, seq, 1, b"", b"%d" % seq, True)])


def steps(rules: Rules, router: str = "r") -> Any:
    return forward(rules.state, rules.state.routers[router], rules.now_ms, rules.payloads)


def outcome(stepping: Any) -> Forwarded:
    with pytest.raises(StopIteration) as done:
        next(stepping)
    forwarded: Forwarded = done.value.value[0]
    return forwarded


def test_copies_and_the_cursor_are_one_batch(rules: Rules) -> None:
    append(rules, "a", 5)
    stepping = steps(rules)
    events: list[Any] = next(stepping)
    assert [type(event) for event in events] == [RouterMoved, Appended]
    rules._fold(events)
    assert outcome(stepping) == Forwarded(more=True, size=len(events[1].blobs)), "two of five"
    assert (rules.state.routers["r"].cursor, rules.state.topics["b"].head_seq) == (3, 3)


def test_a_destination_that_is_absent_is_made_in_the_batch_of_its_first_copies(rules: Rules) -> None:
    rules.put_router("s", source="a", dest="c")
    append(rules, "a", 1)
    assert [type(event) for event in next(steps(rules, "s"))] == [TopicPut, RouterMoved, Appended]


def test_a_router_with_nothing_new_takes_no_step(rules: Rules) -> None:
    assert outcome(steps(rules)) == Forwarded(more=False)


def test_a_router_whose_source_is_gone_takes_no_step(rules: Rules) -> None:
    router = rules.state.routers["r"]
    del rules.state.topics["a"]
    assert outcome(forward(rules.state, router, rules.now_ms, rules.payloads)) == Forwarded(more=False)


def test_a_step_ends_before_the_record_with_which_it_would_pass_its_bytes(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(router_step_bytes=4))
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"0"])
    append(rules, "a", 9)
    cursors, more = list[int](), True
    while more:
        stepping = steps(rules)
        rules._fold(next(stepping))
        more = outcome(stepping).more
        cursors.append(rules.state.routers["r"].cursor)
    assert cursors == [5, 9, 10], "eight records of one byte, and one of two"


def test_a_step_takes_one_record_however_large(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(router_step_bytes=1))
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"0"])
    append(rules, "a", 10)
    rules.state.routers["r"].cursor = 9
    stepping = steps(rules)
    rules._fold(next(stepping))
    assert (outcome(stepping).more, rules.state.routers["r"].cursor) == (True, 10)


def test_a_full_destination_blocks_its_router(rules: Rules) -> None:
    rules.put_topic("full", {"cap_records": 1, "discard": "reject"})
    rules.produce("full", [b"1"])
    rules.put_router("q", source="a", dest="full")
    append(rules, "a", 1)
    assert outcome(steps(rules, "q")) == Forwarded(more=False, blocked=True)
    assert rules.state.routers["q"].cursor == 1


def test_a_log_that_takes_nothing_blocks_a_router_where_it_is(rules: Rules) -> None:
    append(rules, "a", 1)
    stepping = steps(rules)
    next(stepping)
    with pytest.raises(StopIteration) as done:
        stepping.throw(Overloaded("the disk is full"))
    assert done.value.value[0] == Forwarded(more=False, blocked=True)
    assert rules.state.routers["r"].cursor == 1


@pytest.mark.parametrize("cap", [{"cap_records": 3}, {"cap_bytes": 40}])
def test_a_step_copies_as_many_as_its_destination_has_room_for(clock: ManualClock, cap: dict[str, int]) -> None:
    rules = Rules(clock)
    rules.put_topic("b", {"type": "queue", "discard": "reject", **cap})
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1"])
    append(rules, "a", 6)
    done = []
    for _ in range(5):
        stepping = steps(rules)
        for events in stepping:
            rules._fold(events)
        done += datas(rules.claim("b", node="w", max_count=9, auto_ack=True).jobs)
    assert done == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert rules.state.routers["r"].cursor == 7


def test_a_record_that_its_destination_may_never_hold_is_missed_and_the_others_pass(clock: ManualClock) -> None:
    rules = Rules(clock)
    rules.put_topic("b", {"discard": "reject", "cap_bytes": 30})
    rules.put_router("r", source="a", dest="b")
    rules.produce("a", [b"1"])
    for data in (b"9" * 60, b"3"):
        rules.produce("a", [data])
    assert datas(read(rules, "b")) == [b"1"], "the destination holds one: it might have room later"
    rules.delete_records("b", before_seq=2)
    rules.produce("a", [b"4"])
    assert datas(read(rules, "b")) == [b"3", b"4"]
    router = rules.state.routers["r"]
    assert (router.cursor, router.missed) == (4, 1)
