"""Groups: a buffer has those that were asked for, and each reports what it pins."""

from __future__ import annotations

import pytest

from tenure.buffer import Collector, Consumer, drop_group, groups
from tenure.buffer.manifest.groups import GroupStat, group_stat
from tenure.errors import NotFound
from tenure.testing.simstore import SimStore
from tests.kit.buffers import QUICK, folded, produced, quick


async def acked(store: SimStore, group: str, through: int) -> None:
    async with Consumer(store, group=group, settings=QUICK, collect=False) as consumer:
        await consumer.next_descriptors(through + 1)
        await consumer.ack_through(through)


async def trimmed(store: SimStore) -> int:
    collector = Collector(store, settings=QUICK)
    report = await collector.run_once()
    await collector.close()
    return report.trimmed


async def by_name(store: SimStore) -> dict[str, GroupStat]:
    return {each.group: each for each in await groups(store, settings=QUICK)}


async def test_a_new_buffer_has_no_group_that_nobody_asked_for(sim: SimStore):
    """Such a group would pin everything for ever, as no consumer of it ever comes."""
    await produced(sim, [b"a"], [b"b"])
    assert await groups(sim, settings=QUICK) == []
    await acked(sim, "orders", 1)
    assert await trimmed(sim) == 2


async def test_a_group_that_was_named_when_the_buffer_was_made_pins_before_its_consumer_starts(sim: SimStore):
    await produced(sim, [b"a"], settings=quick(initial_groups=("audit",)))
    await acked(sim, "orders", 0)
    assert await trimmed(sim) == 0
    assert {name: each.consumer for name, each in (await by_name(sim)).items()}["audit"] == ""


async def test_each_group_says_where_it_stands_and_what_it_alone_pins(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(6)))
    await acked(sim, "quick", 5)
    assert (await by_name(sim))["quick"].pinned_batches == 0
    await acked(sim, "middle", 3)
    await acked(sim, "slow", 1)
    found = await by_name(sim)
    assert {name: (each.last_acked, each.lag_batches, each.pinned_batches) for name, each in found.items()} == {
        "quick": (5, 0, 0),
        "middle": (3, 2, 0),
        "slow": (1, 4, 2),
    }
    await drop_group(sim, "slow", settings=QUICK)
    assert (await by_name(sim))["middle"].pinned_batches == 2
    assert await trimmed(sim) == 4


async def test_a_group_that_is_not_there_is_not_dropped_and_the_others_are_named(sim: SimStore):
    await produced(sim, [b"a"])
    with pytest.raises(NotFound, match="it has none"):
        await drop_group(sim, "default", settings=QUICK)
    for number in range(12):
        await acked(sim, f"g{number:02}", 0)
    before = (await folded(sim)).number
    with pytest.raises(NotFound, match=r"it has g00, g01, .*, g09 and 2 more") as caught:
        await drop_group(sim, "g", settings=QUICK)
    assert (caught.value.code, (await folded(sim)).number) == ("no_group", before)


async def test_a_group_that_has_not_started_is_behind_by_what_it_will_read(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(6)))
    new = await group_stat(sim, "orders", settings=QUICK)
    assert (new.consumer, new.last_acked, new.lag_batches, new.pinned_batches) == ("", None, 6, 0)
    await acked(sim, "quick", 3)
    assert await trimmed(sim) == 4
    new = await group_stat(sim, "orders", settings=QUICK)
    assert (new.last_acked, new.lag_batches) == (None, 2)
    async with Consumer(sim, group="orders", settings=QUICK, collect=False) as consumer:
        assert [each.seq for each in await consumer.next_descriptors(10)] == [4, 5]
    known = await group_stat(sim, "quick", settings=QUICK)
    assert (known.last_acked, known.lag_batches, bool(known.consumer)) == (3, 2, True)
