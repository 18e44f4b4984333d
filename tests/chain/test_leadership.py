"""One create is the election, the fence and the end of the log; and what is said of a link is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenure.chain.chain import Chain, Freed
from tenure.chain.home import create_home, find_home
from tenure.chain.keys import HOME, link_key, mark_key
from tenure.chain.leadership import Leadership, challenge
from tenure.chain.link import Kind, Link, Run, digest
from tenure.chain.place import Place
from tenure.errors import Conflict, Corrupt, Indeterminate, NotLeader
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.testing import ManualClock
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.chain.kit import FAST

LOG = b"L" * 16


class World:
    """One home and the members that look at it."""

    def __init__(self) -> None:
        self.sim = SimStore()
        self.clock = ManualClock()
        self._members = 0

    def retrying(self) -> RetryingStore:
        return RetryingStore(Metered(self.sim, StoreMetrics()), FAST)

    def chain(self) -> Chain:
        return Chain(self.retrying(), LOG, FAST)

    async def create(self) -> Place:
        await create_home(self.retrying(), LOG, epoch=0, nonce=b"g" * 16, url="", now_ms=1)
        return await self.end()

    async def end(self, place: Place | None = None) -> Place:
        """Walk to the end of the chain."""
        place = Place(0, 0) if place is None else place
        async for step in self.chain().follow(place):
            place = step.after
        return place

    async def lead(self, place: Place | None = None) -> Leadership:
        self._members += 1
        place = await self.end() if place is None else place
        leadership = await challenge(
            self.chain(),
            place,
            nonce=bytes([self._members]) * 16,
            directory=bytes([self._members]) * 16,
            url=f"http://{self._members}",
            clock=self.clock,
        )
        assert leadership is not None
        return leadership

    async def texts(self) -> list[bytes]:
        """Return what the chain holds, in order."""
        return [run.data async for step in self.chain().follow(Place(0, 0)) for run in step.link.runs]


async def ship(leadership: Leadership, text: bytes) -> None:
    end = leadership.place.end
    run = Run(1, end.offset, text)
    await leadership.ship([run], first_batch=end.batch + 1, last_batch=end.batch + 1)


def story(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def live() -> None:
            world = World()
            await world.create()
            await test(world)

        asyncio.run(live())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@story
async def test_links_are_read_in_the_order_in_which_they_were_shipped(world: World):
    leader = await world.lead()
    for text in (b"a", b"b", b"c"):
        await ship(leader, text)
    assert await world.texts() == [b"a", b"b", b"c"]
    assert (await world.end()) == leader.place


@story
async def test_the_next_leader_has_read_everything_that_was_committed(world: World):
    first = await world.lead()
    await ship(first, b"a")
    second = await world.lead()
    assert (second.epoch, second.place.end) == (first.epoch + 1, first.place.end)
    await ship(second, b"b")
    assert await world.texts() == [b"a", b"b"]


@story
async def test_a_fenced_leader_is_told_that_nothing_happened_and_who_leads(world: World):
    first = await world.lead()
    await ship(first, b"a")
    await world.lead()
    with pytest.raises(NotLeader) as caught:
        await ship(first, b"never")
    assert caught.value.detail["leader"] == "http://2"
    assert await world.texts() == [b"a"]
    with pytest.raises(NotLeader):
        await ship(first, b"nor this")


@story
async def test_of_two_candidates_one_leads(world: World):
    place = await world.end()
    leaders = [
        await challenge(world.chain(), place, nonce=nonce * 16, directory=b"D" * 16, url="", clock=world.clock)
        for nonce in (b"1", b"2")
    ]
    assert [leader is not None for leader in leaders] == [True, False]


@story
async def test_a_late_link_meets_the_fence(world: World):
    first = await world.lead()
    await ship(first, b"a")
    slot = link_key(first.place.epoch, first.place.number)
    world.sim.hook = lambda call: "late" if (call.kind, call.key) == ("put_new", slot) else None
    first.is_over = lambda: True
    with pytest.raises(Indeterminate):
        await ship(first, b"late")
    world.sim.hook = lambda call: None
    await world.lead()
    world.sim.deliver_late()
    assert await world.texts() == [b"a"]


@story
async def test_a_link_that_landed_before_the_fence_is_read_by_the_next_leader(world: World):
    first = await world.lead()
    place = await world.end()
    await ship(first, b"a")
    rival = await challenge(world.chain(), place, nonce=b"r" * 16, directory=b"D" * 16, url="", clock=world.clock)
    assert rival is None
    second = await world.lead()
    assert second.place.end == first.place.end


@pytest.mark.parametrize("fault", ["lost_request", "lost_reply", "duplicate", "refused", "false_exists"])
def test_the_same_bytes_are_sent_until_the_outcome_is_known(fault: Fault):
    async def live() -> None:
        world = World()
        await world.create()
        leader = await world.lead()
        await ship(leader, b"a")
        faults = [fault, fault, fault]

        def hook(call: Call) -> Fault | None:
            return faults.pop() if call.kind == "put_new" and faults else None

        world.sim.hook = hook
        await ship(leader, b"b")
        assert await world.texts() == [b"a", b"b"]
        assert not faults or fault in ("lost_reply", "duplicate")

    asyncio.run(live())


@story
async def test_a_look_after_a_link_is_repeated_until_the_store_answers(world: World):
    leader = await world.lead()
    refusals: list[Fault] = ["refused"] * 20

    def hook(call: Call) -> Fault | None:
        return refusals.pop() if call.kind in ("get", "head") and refusals else None

    world.sim.hook = hook
    await ship(leader, b"a")
    assert not refusals
    assert await world.texts() == [b"a"]


@story
async def test_a_leader_whose_memory_went_back_says_that_the_outcome_is_unknown(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    await ship(leader, b"b")
    leader.place = place  # as a machine restored from a snapshot finds itself
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"other")
    assert caught.value.code == "went_back"
    assert await world.texts() == [b"a", b"b"]


@story
async def test_a_leader_that_stood_still_while_its_epoch_was_freed_does_not_count_its_link(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    await world.lead()
    world.sim.objects[mark_key(place.epoch)] = (b"", 0)
    for number in range(place.number + 1):
        world.sim.objects.pop(link_key(place.epoch, number))  # also the fence, which no collector deletes
    world.clock.advance(FAST.lapse_ms + 1)
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"lost")
    assert caught.value.code == "left_behind"


@pytest.mark.parametrize("wall_ms", [-1, -60_000, FAST.lapse_ms + 1])
def test_a_wall_clock_that_went_back_or_ahead_while_the_other_stood_is_a_lapse(wall_ms: int):
    """A machine that is set back to a snapshot of its memory: the clock that counts its uptime goes on from there."""

    @story
    async def test(world: World) -> None:
        leader = await world.lead()
        await ship(leader, b"a")
        place, boot_ms = leader.place, world.clock.boot_ms()
        await world.lead()
        world.sim.objects[mark_key(place.epoch)] = (b"", 0)
        for number in range(place.number + 1):
            world.sim.objects.pop(link_key(place.epoch, number))
        world.clock.jump_wall(wall_ms)
        assert world.clock.boot_ms() == boot_ms
        with pytest.raises(Indeterminate) as caught:
            await ship(leader, b"lost")
        assert caught.value.code == "left_behind"

    test()


@story
async def test_a_link_that_took_so_long_that_its_epoch_was_freed_meanwhile_does_not_count(world: World):
    """A memory that was set back, with its clocks, sends at once; the link lands much later, in a slot that is free."""
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    await world.lead()

    def land_late(call: Call) -> Fault | None:
        if call.kind == "put_new":
            world.sim.objects[mark_key(place.epoch)] = (b"", 0)
            for number in range(place.number + 1):
                world.sim.objects.pop(link_key(place.epoch, number), None)
            world.clock.advance(FAST.lapse_ms + 1)
        return None

    world.sim.hook = land_late
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"lost")
    assert caught.value.code == "left_behind"


@story
async def test_nothing_changed_is_not_said_where_the_epoch_was_freed(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    await world.lead()
    world.sim.objects[mark_key(leader.epoch)] = (b"", 0)
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"b")
    assert caught.value.code == "left_behind"


@story
async def test_a_store_that_takes_back_the_newest_link_is_found_before_a_fence(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    await ship(leader, b"b")
    place = leader.place
    world.sim.objects.pop(link_key(place.epoch, place.number - 1))
    with pytest.raises(Corrupt, match="took back"):
        await challenge(world.chain(), place, nonce=b"r" * 16, directory=b"D" * 16, url="", clock=world.clock)
    with pytest.raises(Corrupt):
        await leader.prove()


@story
async def test_a_hole_in_the_chain_is_damage_and_not_its_end(world: World):
    leader = await world.lead()
    for text in (b"a", b"b", b"c"):
        await ship(leader, text)
    world.sim.objects.pop(link_key(leader.epoch, 1))
    with pytest.raises(Corrupt, match="missing"):
        await world.end()


@story
async def test_a_hole_of_several_links_is_found_before_a_fence_is_sent(world: World):
    leader = await world.lead()
    for body in (b"a", b"b", b"c", b"d"):
        await ship(leader, body)
    world.sim.lose([link_key(leader.epoch, number) for number in (1, 2)])
    before = dict(world.sim.objects)
    with pytest.raises(Corrupt, match="the store lost it"):
        await world.lead()
    assert world.sim.objects == before


@story
async def test_a_fence_into_a_hole_begins_nothing(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    await ship(leader, b"b")
    await ship(leader, b"c")
    world.sim.objects.pop(link_key(place.epoch, place.number))
    with pytest.raises(Corrupt, match="lost a part"):
        await challenge(world.chain(), place, nonce=b"r" * 16, directory=b"D" * 16, url="", clock=world.clock)


@story
async def test_a_reader_at_a_freed_place_begins_anew(world: World):
    leader = await world.lead()
    place = leader.place
    await ship(leader, b"a")
    await world.lead()
    world.sim.objects[mark_key(place.epoch)] = (b"", 0)
    world.sim.objects.pop(link_key(place.epoch, 0))
    with pytest.raises(Freed):
        await world.end(place)


@story
async def test_a_leader_whose_epoch_was_freed_while_it_stood_still_is_left_behind_and_the_store_is_sound(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    await world.lead()
    world.sim.objects[mark_key(place.epoch)] = (b"", 0)
    world.sim.objects.pop(link_key(place.epoch, 0))
    with pytest.raises(Indeterminate) as caught:
        await leader.prove()
    assert caught.value.code == "left_behind"


@story
async def test_a_link_in_a_freed_slot_that_the_collector_deletes_at_once_is_left_behind(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    slot = link_key(place.epoch, place.number)
    world.clock.advance(FAST.lapse_ms + 1)

    def collect(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("get", slot):
            world.sim.objects[mark_key(place.epoch)] = (b"", 0)
            world.sim.objects.pop(slot, None)
        return None

    world.sim.hook = collect
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"lost")
    assert caught.value.code == "left_behind"


@story
async def test_a_fence_in_a_freed_slot_that_the_collector_deletes_at_once_is_not_followed(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    place = leader.place
    slot = link_key(place.epoch, place.number)

    def collect(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("get", slot):
            world.sim.objects[mark_key(place.epoch)] = (b"", 0)
            world.sim.objects.pop(slot, None)
        return None

    world.sim.hook = collect
    with pytest.raises(Freed):
        await world.lead(place)


@story
async def test_a_fence_behind_which_a_rival_has_led_already_is_no_damage(world: World):
    place = await world.end()
    slot = link_key(place.epoch, place.number)

    def overtake(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("get", slot) and slot in world.sim.objects:
            prev = digest(world.sim.objects[slot][0])
            fence = Link(Kind.FENCE, LOG, place.epoch + 2, 0, prev, b"r" * 16, b"R" * 16)
            world.sim.objects[link_key(place.epoch + 1, 0)] = (fence.pack(), 0)
        return None

    world.sim.hook = overtake
    late = await world.lead(place)
    with pytest.raises(NotLeader):
        await ship(late, b"never")


@story
async def test_a_slow_reader_behind_which_an_epoch_is_freed_begins_anew(world: World):
    leader = await world.lead()
    place = leader.place
    behind = link_key(place.epoch, place.number + 1)

    def go_on(call: Call) -> Fault | None:
        if (call.kind, call.key) == ("get", behind):
            world.sim.objects[mark_key(place.epoch)] = (b"", 0)
            world.sim.objects[behind] = (b"a link that the collector deletes next", 0)
        return None

    world.sim.hook = go_on
    with pytest.raises(Freed):
        await world.end(place)


@story
async def test_a_link_of_another_log_is_a_conflict(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    with pytest.raises(Conflict) as caught:
        async for _ in Chain(world.retrying(), b"M" * 16, FAST).follow(Place(0, 0)):
            pass
    assert caught.value.code == "foreign_log"


@story
async def test_a_leader_that_writes_nothing_finds_the_fence_when_it_looks(world: World):
    leader = await world.lead()
    await leader.prove()
    await ship(leader, b"a")
    await leader.prove()
    await world.lead()
    with pytest.raises(NotLeader):
        await leader.prove()


@story
async def test_a_released_epoch_ends_with_a_link_that_says_so(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    await leader.ship((), first_batch=2, last_batch=1, is_released=True)
    steps = [step async for step in world.chain().follow(Place(0, 0))]
    assert steps[-1].link.is_released
    assert steps[-1].after.end == leader.place.end
    with pytest.raises(NotLeader):
        await ship(leader, b"b")


@story
async def test_a_commit_is_one_request(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    before = len(world.sim.calls)
    await ship(leader, b"b")
    assert [call.kind for call in world.sim.calls[before:]] == ["put_new"]


def test_a_home_is_found_by_its_genesis_where_its_marker_is_lost():
    async def live() -> None:
        world = World()
        await world.create()
        facts = await find_home(world.retrying())
        world.sim.objects.pop(HOME)
        assert await find_home(world.retrying()) == facts
        assert HOME in world.sim.objects
        world.sim.objects.pop(link_key(0, 0))
        with pytest.raises(Corrupt):
            await find_home(world.retrying())

    asyncio.run(live())


def test_a_prefix_that_holds_something_else_is_no_home():
    async def live() -> None:
        world = World()
        world.sim.objects["letters/1"] = (b"", 0)
        with pytest.raises(Conflict) as caught:
            await find_home(world.retrying())
        assert caught.value.code == "foreign_prefix"

    asyncio.run(live())


@story
async def test_a_fence_in_a_freed_slot_is_not_followed(world: World):
    leader = await world.lead()
    place = leader.place
    await ship(leader, b"a")
    await world.lead()
    world.sim.objects[mark_key(place.epoch)] = (b"", 0)
    world.sim.objects.pop(link_key(place.epoch, 0))
    with pytest.raises(Freed):
        await challenge(world.chain(), place, nonce=b"v" * 16, directory=b"D" * 16, url="", clock=world.clock)
    assert link_key(place.epoch, 0) in world.sim.objects, "the void fence lies there"
    with pytest.raises(Freed):
        await world.end(place)


@story
async def test_a_link_of_another_history_is_damage(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    with pytest.raises(Corrupt, match="does not follow"):
        await world.end(Place(leader.epoch, 0, b"x" * 16))


@story
async def test_a_leader_may_end_its_own_epoch_and_lead_the_next(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    epoch = leader.epoch
    await leader.renew(b"s" * 16)
    assert leader.epoch == epoch + 1
    await ship(leader, b"b")
    await leader.prove()
    assert await world.texts() == [b"a", b"b"]
    await world.lead()
    with pytest.raises(NotLeader):
        await leader.renew(b"t" * 16)


@story
async def test_a_leader_that_ends_an_epoch_which_was_cleared_away_knows_that_it_leads_no_more(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    world.sim.objects[mark_key(leader.epoch)] = (b"freed", 0)
    with pytest.raises(Indeterminate) as caught:
        await leader.renew(b"s" * 16)
    assert caught.value.code == "left_behind"
    assert leader.lost is caught.value


@pytest.mark.parametrize("renews", [False, True])
def test_a_leader_that_is_overtaken_says_so_also_where_the_store_refuses_its_look(renews: bool):
    async def run() -> None:
        world = World()
        await world.create()
        leader = await world.lead()
        await ship(leader, b"a")
        await world.lead()
        key, faults = mark_key(leader.epoch), list[Fault](["refused"])
        world.sim.hook = lambda call: faults.pop() if faults and call.key == key else None
        with pytest.raises(NotLeader):
            await (leader.renew(b"t" * 16) if renews else ship(leader, b"b"))
        assert leader.lost is not None

    asyncio.run(run())


@story
async def test_a_memory_from_before_its_own_directorys_next_life_does_not_say_that_nothing_happened(world: World):
    """The next life may have shipped, as its tail, the very batch that the old memory still waits for."""
    leader = await world.lead()
    await ship(leader, b"a")
    again = await challenge(
        world.chain(), leader.place, nonce=b"2" * 16, directory=leader.fence.directory, url="", clock=world.clock
    )
    assert again is not None
    await ship(again, b"tail")
    with pytest.raises(Indeterminate) as caught:
        await ship(leader, b"tail")
    assert caught.value.code == "went_back"


@story
async def test_a_link_lost_below_a_new_one_is_found_after_a_lapse(world: World):
    leader = await world.lead()
    await ship(leader, b"a")
    world.sim.objects.pop(link_key(leader.epoch, 0))
    world.clock.advance(FAST.lapse_ms + 1)
    with pytest.raises(Corrupt, match="took back"):
        await ship(leader, b"b")


@story
async def test_a_fence_that_somebody_deleted_is_not_taken_for_the_end_of_the_chain(world: World):
    first = await world.lead()
    await ship(first, b"a")
    await ship(await world.lead(), b"b")
    world.sim.objects.pop(link_key(first.epoch, 1))
    before = dict(world.sim.objects)
    with pytest.raises(Corrupt, match="the store lost it"):
        await world.lead()
    assert world.sim.objects == before, "no fence was sent into the hole"


@story
async def test_a_mark_that_somebody_deleted_does_not_let_a_member_lead_beside_the_chain(world: World):
    first = await world.lead()
    place = first.place
    await ship(first, b"a")
    await ship(await world.lead(), b"b")
    world.sim.objects.pop(link_key(first.epoch, 0))  # freed, and the mark is gone
    with pytest.raises(Corrupt):
        await world.lead(place)


async def rounds(world: World, work: Coroutine[Any, Any, Any]) -> int:
    """Return how many requests had to wait for one before them."""
    held: list[Hold] = []

    def hold(call: Call) -> Hold:
        held.append(Hold(is_done=False))
        return held[-1]

    world.sim.hook = hold
    task, count = asyncio.ensure_future(work), 0
    async with asyncio.timeout(20):
        while not task.done():
            for _ in range(100):
                await asyncio.sleep(0)
            if held:
                count += 1
            while held:
                held.pop().release()
    world.sim.hook = lambda call: None
    task.result()
    return count


@story
async def test_a_takeover_waits_for_three_requests_and_for_two_more_with_its_first_link(world: World):
    """A look at what was read, the fence, the looks after it; the link, the looks after that."""
    first = await world.lead()
    await ship(first, b"a")
    place = await world.end()
    assert await rounds(world, world.lead(place)) == 3
    third = await world.lead()
    assert await rounds(world, ship(third, b"b")) == 2
    assert await rounds(world, ship(third, b"c")) == 1


@story
async def test_a_fence_behind_a_link_whose_reply_is_slow_is_found(world: World):
    first = await world.lead()
    await ship(first, b"a")
    slot, held = link_key(first.place.epoch, first.place.number), Hold(is_done=True)
    world.sim.hook = lambda call: held if (call.kind, call.key) == ("put_new", slot) else None
    sending = asyncio.ensure_future(ship(first, b"b"))
    await asyncio.sleep(0.01)
    await first.prove()  # it is only slow
    await world.lead()
    with pytest.raises(Indeterminate) as caught:  # not NotLeader: the link is stored
        await first.prove()
    assert (caught.value.code, caught.value.detail["leader"]) == ("overtaken", "http://2")
    held.release()
    await sending
    assert await world.texts() == [b"a", b"b"]
    with pytest.raises(Indeterminate):
        await ship(first, b"never")
