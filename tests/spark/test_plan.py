"""Ranges of a group: cut once, the same for every driver. Needs no Spark."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tenure.buffer import Collector, Descriptor, quarantine, verify
from tenure.buffer.manifest.format import FORMAT, Cut, encode
from tenure.buffer.manifest.keys import plan_key
from tenure.buffer.manifest.range_plans import RangePlans
from tenure.errors import Conflict, Corrupt, Invalid, LeaseLost, NotFound
from tenure.spark.jobs.plan import Limits, Plan, balance
from tenure.testing.simstore import Call, Fault, SimStore
from tests.kit.buffers import QUICK, produced, quick


@pytest.fixture
def store() -> SimStore:
    """Six batches of two entries."""
    store = SimStore()
    asyncio.run(produced(store, *([b"%d" % number, b""] for number in range(6))))
    return store


def opened(store: SimStore, **arguments: object) -> Plan:
    return Plan(store, **({"settings": QUICK} | arguments))  # type: ignore[arg-type]


def plans(store: SimStore) -> list[str]:
    return sorted(key for key in store.objects if key.startswith("plan/"))


def described(sizes: list[int]) -> list[Descriptor]:
    return [
        Descriptor(
            seq=seq,
            location=f"data/{seq}",
            bytes=size,
            entries=1,
            checksum="",
            producer="p",
            ordinal=seq,
            first_ms=0,
            last_ms=0,
            buffer_id="b",
        )
        for seq, size in enumerate(sizes)
    ]


class Table:
    name = "table"
    schema_version = 3


def test_ranges_follow_each_other_and_cover_everything(store: SimStore):
    with opened(store, limits=Limits(batches_max=4)) as plan:
        seen = []
        while (planned := plan.next()) is not None:
            seen.append((planned.low, planned.high, planned.entries, [each.seq for each in planned.descriptors]))
            plan.ack_through(planned.high)
        assert seen == [(0, 3, 8, [0, 1, 2, 3]), (4, 5, 4, [4, 5])]
        assert (plan.next_seq, plan.end_seq(), plan.lag.batches) == (6, 5, 0)


def test_a_range_is_the_same_until_it_is_acknowledged(store: SimStore):
    with opened(store, limits=Limits(batches_max=2)) as plan:
        assert plan.next() == plan.next()


def test_a_commit_carries_the_range_and_the_sinks_name_and_version(store: SimStore):
    with opened(store) as plan:
        planned = plan.next()
        assert planned is not None
        assert str(planned.commit(Table())) == f"{plan.buffer_id}/table/0-5/3"


@pytest.mark.parametrize(
    ("limits", "high"),
    [
        (Limits(entries_max=1), 0),
        (Limits(entries_max=5), 1),
        (Limits(entries_max=6), 2),
        (Limits(bytes_max=1), 0),
        (Limits(batches_max=3), 2),
        (Limits(), 5),
    ],
    ids=["less than a batch", "between two", "exactly", "a byte", "batches", "everything"],
)
def test_limits_end_a_range_but_leave_it_a_batch(store: SimStore, limits: Limits, high: int):
    with opened(store, limits=limits) as plan:
        planned = plan.next()
        assert planned is not None
        assert planned.high == high


def test_a_range_is_read_page_by_page(store: SimStore):
    with opened(store, settings=quick(descriptors_max=2)) as plan:
        planned = plan.next()
        assert planned is not None
        assert [each.seq for each in planned.descriptors] == list(range(6))


def test_limits_below_one_are_refused():
    for name in ("entries_max", "bytes_max", "batches_max"):
        with pytest.raises(Invalid, match=name):
            Limits(**{name: 0})


# The durable cut


def test_who_plans_from_the_same_batch_later_gets_the_same_range_whatever_the_limits(store: SimStore):
    first = opened(store, limits=Limits(batches_max=2))
    planned = first.next()
    for batches_max in (1, 5):
        with opened(store, limits=Limits(batches_max=batches_max)) as later:
            assert later.next() == planned
    assert plans(store) == [plan_key("default", 0)]


def test_the_plan_is_deleted_once_its_range_is_acknowledged(store: SimStore):
    with opened(store, limits=Limits(batches_max=2)) as plan:
        plan.next()
        assert len(plans(store)) == 1
        plan.ack_through(1)
        assert plans(store) == []


def test_a_plan_left_behind_a_commit_goes_with_the_next_start(store: SimStore):
    """The driver died between the sink's commit and the acknowledgement."""
    opened(store, limits=Limits(batches_max=2)).next()
    with opened(store, last_committed=1) as plan:
        assert plans(store) == []
        planned = plan.next()
        assert planned is not None
        assert planned.low == 2


def test_groups_cut_for_themselves(store: SimStore):
    one, other = opened(store, limits=Limits(batches_max=2)), opened(store, group="other")
    ends = [planned.high for plan in (one, other) if (planned := plan.next()) is not None]
    assert ends == [1, 5]
    one.close()
    other.close()


@pytest.mark.parametrize("fault", ["lost_request", "lost_reply", "late", "duplicate"])
def test_a_create_whose_answer_is_lost_is_found_out_about(store: SimStore, fault: Fault):
    broken: list[Call] = []

    def once(call: Call) -> Fault | None:
        if call.kind == "put_new" and call.key.startswith("plan/") and not broken:
            broken.append(call)
            return fault
        return None

    store.hook = once
    with opened(store, limits=Limits(batches_max=2)) as plan:
        planned = plan.next()
        assert planned is not None
        assert planned.high == 1
        assert broken
        store.deliver_late()
        assert plan.next() == planned


def test_a_cut_that_goes_between_two_looks_is_made_again(store: SimStore):
    """Its range was acknowledged by another driver, so no driver reads the other's end from it any more."""
    cuts = RangePlans(store, "buffer", group="default", settings=QUICK)
    asyncio.run(cuts.agree(0, 3))
    looks = []

    def gone(call: Call) -> None:
        if call.kind == "get" and call.key.startswith("plan/"):
            looks.append(call)
            if len(looks) == 2:
                del store.objects[call.key]

    store.hook = gone
    assert asyncio.run(cuts.agree(0, 5)) == 5


def test_a_foreign_or_impossible_plan_is_refused(store: SimStore):
    with opened(store) as plan:
        for cut in (
            Cut(FORMAT, "another", 0, 3),
            Cut(FORMAT, plan.buffer_id, 1, 3),
            Cut(FORMAT, plan.buffer_id, 0, -1),
        ):
            store.objects[plan_key("default", 0)] = (encode(cut), 0)
            with pytest.raises(Corrupt, match="another's") as caught:
                plan.next()
            assert caught.value.code == "plan_damaged"
        store.objects[plan_key("default", 0)] = (b"{}", 0)
        with pytest.raises(Corrupt):
            plan.next()


async def test_plans_are_the_buffers_own_files(store: SimStore):
    await RangePlans(store, "buffer", group="default", settings=QUICK).agree(0, 3)
    store.objects["plan/mine.txt"] = (b"", 0)
    assert [finding.key async for finding in verify(store, settings=QUICK) if finding.kind == "foreign"] == [
        "plan/mine.txt"
    ]


# The fence


def test_a_second_plan_of_the_group_fences_the_first(store: SimStore):
    first = opened(store, limits=Limits(batches_max=2))
    first.next()
    with opened(store):
        for call in (first.next, first.end_seq, lambda: first.between(0, 1), lambda: first.ack_through(1)):
            with pytest.raises(LeaseLost):
                call()
    first.close()


def test_a_zombie_that_was_already_reading_cannot_acknowledge_and_changes_no_cut(store: SimStore):
    zombie = opened(store, limits=Limits(batches_max=2))
    held = zombie.next()
    with opened(store, limits=Limits(batches_max=6)) as plan:
        assert plan.next() == held
        plan.ack_through(1)
        with pytest.raises(LeaseLost):
            zombie.ack_through(1)
        planned = plan.next()
        assert planned is not None
        assert (planned.low, planned.high) == (2, 5)


# What the table holds


def test_the_group_goes_on_behind_what_the_table_holds(store: SimStore):
    with opened(store, last_committed=3) as plan:
        assert plan.next_seq == 4
    with opened(store) as plan:
        assert plan.next_seq == 4


def test_a_table_behind_the_frontier_is_refused(store: SimStore):
    with opened(store, last_committed=3):
        pass
    with pytest.raises(Conflict) as caught:
        opened(store, last_committed=2)
    assert (caught.value.code, caught.value.detail) == ("sink_behind", {"last": 2, "next": 4})


def test_a_table_beyond_the_end_is_refused(store: SimStore):
    with pytest.raises(Conflict) as caught:
        opened(store, last_committed=6)
    assert (caught.value.code, caught.value.detail) == ("sink_ahead", {"last": 6, "end": 5})


def test_an_empty_prefix_is_no_buffer():
    with pytest.raises(NotFound) as caught:
        opened(SimStore())
    assert caught.value.code == "no_buffer"


# Batches that were given up


def test_a_batch_that_was_given_up_is_left_out_of_the_range_it_is_in(store: SimStore):
    """The range was cut before the batch was known to be bad, so it cannot be made shorter."""
    opened(store, limits=Limits(batches_max=4)).next()
    asyncio.run(quarantine(store, 2, reason="lost", settings=QUICK))
    asyncio.run(quarantine(store, 3, reason="lost, too", settings=QUICK))
    with opened(store) as plan:
        planned = plan.next()
        assert planned is not None
        assert (planned.low, planned.high, [each.seq for each in planned.descriptors]) == (0, 3, [0, 1])
        plan.ack_through(3)
        assert plan.next_seq == 4


def test_the_table_is_not_behind_where_the_frontier_moved_over_what_was_given_up(store: SimStore):
    with opened(store, last_committed=1):
        pass
    for seq in (2, 3):
        asyncio.run(quarantine(store, seq, reason="lost", settings=QUICK))
    with opened(store, last_committed=1) as plan:
        planned = plan.next()
        assert planned is not None
        assert (planned.low, planned.high, [each.seq for each in planned.descriptors]) == (2, 5, [4, 5])
    with opened(store, last_committed=1, limits=Limits(batches_max=1)) as plan:
        assert plan.next() == planned
        plan.ack_through(5)
        assert plans(store) == []
    with pytest.raises(Conflict) as caught:
        opened(store, last_committed=3)
    assert caught.value.code == "sink_behind"


@pytest.mark.parametrize("count", [1, 3])
def test_a_range_whose_every_batch_was_given_up_is_planned_once_more_and_empty(store: SimStore, count: int):
    """Its end was agreed on, and a driver that is late may still commit it: the table has to pass it as it was cut."""
    with opened(store, last_committed=1, limits=Limits(batches_max=count)) as plan:
        cut = plan.next()
    for seq in range(2, 2 + count):
        asyncio.run(quarantine(store, seq, reason="lost", settings=QUICK))
    assert cut is not None
    with opened(store, last_committed=1) as plan:
        again = plan.next()
        assert again is not None
        assert again == msgspec.structs.replace(cut, descriptors=())
        plan.ack_through(again.high)
        behind = plan.next()
        assert behind is not None
        assert [each.seq for each in behind.descriptors] == list(range(2 + count, 6))
        assert (behind.low, plans(store)) == (2 + count, [plan_key("default", 2 + count)])


def test_what_another_group_gave_up_is_not_left_out(store: SimStore):
    with opened(store, group="other") as other:
        asyncio.run(quarantine(store, 1, reason="theirs", group="other", settings=QUICK))
        assert [len(planned.descriptors) for planned in [other.next()] if planned] == [5]
    with opened(store) as plan:
        assert [len(planned.descriptors) for planned in [plan.next()] if planned] == [6]


def test_what_is_not_in_the_buffer_or_of_a_group_that_is_not_there_cannot_be_given_up(store: SimStore):
    with opened(store, last_committed=1):
        pass
    with pytest.raises(NotFound):
        asyncio.run(quarantine(store, 6, reason="too early", settings=QUICK))
    with pytest.raises(NotFound, match="it has default") as caught:
        asyncio.run(quarantine(store, 2, reason="misspelt", group="defualt", settings=QUICK))
    assert caught.value.code == "no_group"
    assert not any(key.startswith("quarantine/") for key in store.objects)


# Between and acknowledging


def test_any_range_that_is_kept_can_be_read_again_and_acknowledged(store: SimStore):
    with opened(store) as plan:
        assert [each.seq for each in plan.between(1, 3).descriptors] == [1, 2, 3]
        assert [each.seq for each in plan.between(0, 0).descriptors] == [0]
        plan.ack_through(3)
        plan.ack_through(3)
        plan.ack_through(0)
        assert plan.next_seq == 4


def test_a_range_that_is_trimmed_or_not_there_yet_is_refused(store: SimStore):
    with opened(store) as plan:
        for low, high in ((4, 6), (6, 7)):
            with pytest.raises(Invalid) as caught:
                plan.between(low, high)
            assert caught.value.code == "range_gone"
        for low, high in ((2, 1), (-1, 1)):
            with pytest.raises(Invalid, match="not a range"):
                plan.between(low, high)
        plan.next()
        plan.ack_through(5)
    asyncio.run(Collector(store, settings=QUICK).run_once())
    with opened(store) as plan:
        with pytest.raises(Invalid) as caught:
            plan.between(0, 1)
        assert caught.value.code == "range_gone"


def test_nothing_is_acknowledged_that_was_not_planned(store: SimStore):
    with opened(store, limits=Limits(batches_max=6)) as plan, pytest.raises(Invalid) as caught:
        plan.ack_through(0)
    assert caught.value.code == "out_of_order"


# Shares


@pytest.mark.parametrize(
    ("sizes", "parts", "shares"),
    [
        ([], 3, []),
        ([5], 3, [[0]]),
        ([1, 1, 1], 3, [[0], [1], [2]]),
        ([1, 1, 1, 1], 2, [[0, 1], [2, 3]]),
        ([9, 1, 1, 1], 2, [[0], [1, 2, 3]]),
        ([1, 1, 1, 9], 2, [[0, 1, 2], [3]]),
        ([9, 1, 1], 3, [[0], [1], [2]]),
        ([1, 1, 9], 3, [[0], [1], [2]]),
        ([0, 0, 0], 2, [[0, 1], [2]]),
    ],
    ids=["none", "one", "each", "even", "large first", "large last", "as many", "as many, large last", "no bytes"],
)
def test_shares_are_consecutive_and_about_equal(sizes: list[int], parts: int, shares: list[list[int]]):
    assert [[each.seq for each in share] for share in balance(described(sizes), parts)] == shares


def test_no_share_is_far_above_its_part():
    sizes = [1 + (number * 7919) % 97 for number in range(500)]
    for parts in (1, 2, 3, 8, 16):
        found = balance(described(sizes), parts)
        assert [each.seq for share in found for each in share] == list(range(500))
        assert len(found) == parts
        assert max(sum(each.bytes for each in share) for share in found) <= sum(sizes) / parts + 97


def test_no_parts_are_no_plan():
    with pytest.raises(Invalid, match="parts must be at least 1, not 0"):
        balance(described([1]), 0)


# A range that is too large for its table


def test_who_takes_over_between_two_halves_plans_the_same_second_half(store: SimStore):
    with opened(store) as plan:
        planned = plan.next()
        assert planned is not None
        half = plan.halve(planned)
        assert (half.low, half.high, [each.seq for each in half.descriptors]) == (0, 2, [0, 1, 2])
    asyncio.run(produced(store, [b"more"]))
    with opened(store) as other:  # nothing was written yet: the whole again, with the same halves
        again = other.next()
        assert again is not None
        assert (again.low, again.high) == (0, 5)
        assert other.halve(again) == half
    with opened(store, last_committed=2) as successor:
        second = successor.next()
        assert second is not None
        assert (second.low, second.high) == (3, 5)


def test_halves_are_acknowledged_one_by_one_and_leave_no_plan(store: SimStore):
    with opened(store) as plan:
        seen = []
        while (planned := plan.next()) is not None:
            while planned.entries > 2:  # more than one batch
                planned = plan.halve(planned)
            seen.append((planned.low, planned.high))
            plan.ack_through(planned.high)
        assert seen == [(number, number) for number in range(6)]
        assert plan.limits.entries_max == 2
    assert plans(store) == []
