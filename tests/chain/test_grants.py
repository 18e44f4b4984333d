"""A leader that others follow: it beats, it answers under a grant, and it hands over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

import pytest

from tenure import Broker, Record
from tenure.chain.keys import CHAIN
from tenure.chain.link import Link
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.core.state.topic import Topic
from tenure.errors import Invalid, NotLeader, Overloaded
from tenure.log import checkpoint
from tenure.objects.background import background
from tenure.settings import Settings
from tenure.testing import ManualClock
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import Call, Fault, Hold, SimStore
from tests.chain.kit import open_log

BEATS = ChainSettings(silence_ms=3, hint_ms=1, beat_ms=500, grant_ms=1_500, backoff_ms=0, backoff_ms_max=1)
LIMIT_S = 20


def links(store: SimStore) -> list[Link]:
    """Return the links of the home in the order in which they were created."""
    return [Link.unpack(data, key) for key, (data, _) in list(store.objects.items()) if key.startswith(CHAIN)]


class Leader:
    """A broker that beats on a simulated store, and a clock that a test sets."""

    def __init__(self) -> None:
        self.store, self.clock = SimStore(), ManualClock()
        self.broker: Broker
        self.log: ShippedLog
        self._held: list[Hold] | None = None
        self.store.hook = self._hook

    def _hook(self, call: Call) -> Fault | Hold | None:
        if self._held is None or call.kind != "put_new" or call.client:
            return None
        self._held.append(Hold(is_done=False))
        return self._held[-1]

    async def open(self, settings: Settings | None = None) -> None:
        self.log = open_log(self.store, SimDisk(), settings=BEATS, clock=self.clock, beats=True, url="http://one")
        self.broker = await Broker.open(lambda: self.log, clock=self.clock, settings=settings)
        await self.broker.put_topic("mail", {"type": "queue", "durability": "disk", "leases_durable": False})
        await self.broker.put_topic("safe", {"type": "queue", "durability": "fsync"})
        await self.broker.synced()

    def take_store_away(self) -> None:
        """Let every create of this leader hang from now on."""
        self._held = []

    def bring_store_back(self) -> None:
        held, self._held = self._held or [], None

        async def release() -> None:
            for each in held:
                each.release()

        background().run(release())  # on the loop on which they are held

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                await asyncio.sleep(0.001)

    async def beat(self) -> None:
        """Let the time of one beat pass, and wait for its link."""
        count = len(links(self.store))
        self.clock.advance(BEATS.beat_ms)
        await self.until(lambda: len(links(self.store)) > count and self.log.beat_wait_ms == BEATS.beat_ms)
        # A link that was under way before says less.
        await self.until(lambda: self.log.granted_until_ms == self.clock.boot_ms() + BEATS.grant_ms)


def story(test: Callable[[Leader], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def live() -> None:
            leader = Leader()
            await leader.open()
            try:
                await test(leader)
            finally:
                leader.bring_store_back()
                await leader.broker.close()

        asyncio.run(live())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@pytest.mark.parametrize("wrong", [{"beat_ms": 500, "grant_ms": 999}, {"hint_ms": 500, "silence_ms": 1_000}])
def test_times_that_would_depose_a_living_leader_are_refused(wrong: dict[str, int]):
    with pytest.raises(Invalid):
        ChainSettings(**wrong)


@story
async def test_an_idle_leader_sends_an_empty_link_every_beat(leader: Leader):
    await leader.beat()  # with the seal of what was written before
    before = len(links(leader.store))
    for _ in range(3):
        await leader.beat()
    beats = links(leader.store)[before:]
    assert [(len(link.runs), link.beat_ms, link.url) for link in beats] == [(0, 500, "http://one")] * 3
    assert leader.log.leadership.metrics.links["beat"] == 3


@story
async def test_the_seal_rides_on_the_next_beat(leader: Leader):
    await leader.broker.produce("safe", [b"1"])
    before = len(links(leader.store))
    await leader.beat()
    [sealed] = links(leader.store)[before:]
    assert leader.broker._serving.committer._seal_timer is None
    assert sum(len(run.data) for run in sealed.runs) < 100
    await leader.beat()
    assert not links(leader.store)[-1].runs


@story
async def test_beats_go_out_while_the_loop_is_busy(leader: Leader):
    is_over = False

    def spin() -> None:
        if not is_over:
            leader.broker.topic("mail")
            asyncio.get_running_loop().call_soon(spin)

    spin()
    for _ in range(3):
        await leader.beat()
    is_over = True


@story
async def test_a_slow_link_is_its_own_beat_and_the_next_follows_it_at_once(leader: Leader):
    leader.take_store_away()
    leader.clock.advance(500)
    await leader.until(lambda: bool(leader._held))
    leader.clock.advance(1_000)
    await asyncio.sleep(0)
    assert leader._held is not None
    assert len(leader._held) == 1
    before = len(links(leader.store))
    leader.bring_store_back()
    await leader.until(lambda: len(links(leader.store)) == before + 2)


@story
async def test_every_link_says_log_time_and_when_the_next_one_comes(leader: Leader):
    await leader.beat()
    fence, *mine = [link for link in links(leader.store) if link.epoch == leader.log.epoch]
    assert (fence.is_fence, fence.beat_ms) == (True, 500)
    assert {link.beat_ms for link in mine} == {500}
    before = leader.broker._engine.clock_ms()
    await leader.beat()
    assert links(leader.store)[-1].log_ms == before + 500


@story
async def test_a_lead_is_steady_once_its_grant_was_renewed_in_time_for_a_beat(leader: Leader):
    """Only a lead that never was steady says that the store is too slow to be led."""
    leadership = leader.log.leadership
    assert not leadership.was_steady
    leader.take_store_away()
    leader.clock.advance(BEATS.grant_ms)
    await leader.until(lambda: bool(leader._held))
    leader.clock.advance(BEATS.grant_ms)  # the link takes as long as a grant, which has ended before it is renewed
    count = len(links(leader.store))
    leader.bring_store_back()
    await leader.until(lambda: len(links(leader.store)) > count and leader.log.beat_wait_ms == 0)
    assert not leadership.was_steady
    await leader.until(lambda: leader.log.granted_until_ms > leader.clock.boot_ms())
    assert not leadership.was_steady
    await leader.beat()
    await leader.until(lambda: leadership.was_steady)


@story
async def test_without_a_committed_link_the_grant_ends_and_nothing_is_decided(leader: Leader):
    broker = leader.broker
    await broker.produce("mail", [b"1", b"2"])
    await leader.beat()
    leader.take_store_away()
    leader.clock.advance(1_499)
    assert broker.topic("mail").count == 2  # it may still answer
    leader.clock.advance(1)
    pending = leader.log.pending_batch
    calls: list[Callable[[], Any]] = [
        lambda: broker.produce("mail", [b"3"]),
        lambda: broker.produce("safe", [b"3"]),
        lambda: broker.claim("mail", node="w"),
        lambda: broker.claim("mail", node="w", wait_ms=1_000),
        lambda: broker.work("mail", node="w"),
        lambda: broker.ack("mail", node="w", seqs=[1]),
        lambda: broker.diff("mail"),
        lambda: broker.topic("mail"),
        lambda: broker.topics(),
        lambda: broker.jobs("mail"),
        lambda: broker.leases("mail"),
        lambda: broker.strip("mail"),
        lambda: broker.meters("mail"),
        lambda: broker.events(),
        lambda: broker.delete_topic("mail"),
    ]
    for call in calls:
        with pytest.raises(Overloaded) as caught:
            call()
        assert caught.value.code == "store_away"
        assert caught.value.message.startswith("nothing happened")
    assert leader.log.pending_batch == pending
    leader.bring_store_back()
    await leader.until(lambda: leader.log.granted_until_ms > leader.clock.boot_ms())
    assert broker.topic("mail").count == 2  # by itself, with the next link


@story
async def test_a_write_that_waits_for_its_link_is_answered_with_it(leader: Leader):
    leader.take_store_away()
    produced = asyncio.ensure_future(_wait(leader.broker.produce("safe", [b"1"])))
    await leader.until(lambda: bool(leader._held))
    leader.clock.advance(10_000)
    with pytest.raises(Overloaded):
        leader.broker.topic("safe")
    assert not produced.done()
    leader.bring_store_back()
    assert (await produced).last_seq == 1


@story
async def test_what_was_decided_under_a_grant_that_is_over_is_answered_with_its_link(leader: Leader):
    """As after a stop of the process between the decision and the answer."""
    await leader.broker.put_topic("fast", {"type": "queue", "durability": "memory", "leases_durable": False})
    stream = leader.broker.work("fast", node="w", max_count=5, lease_ms=60_000)
    leader.take_store_away()
    await leader.broker.produce("fast", [b"1"])  # in time
    assert (await stream.__anext__()).seqs == [1]
    leader.broker.produce("fast", [b"2"])
    produced = leader.broker.produce("mail", [b"1"])
    leader.clock.advance(1_500)
    claim = stream.take()
    assert claim is not None
    waiting = [asyncio.ensure_future(_wait(produced)), asyncio.ensure_future(_wait(claim))]
    await asyncio.sleep(0.01)
    assert [each.done() for each in waiting] == [False, False]
    leader.bring_store_back()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*waiting)


@story
async def test_a_link_that_was_sent_long_ago_grants_nothing_when_it_is_committed_late(leader: Leader):
    leader.take_store_away()
    leader.clock.advance(500)
    await leader.until(lambda: bool(leader._held))
    sent_ms = leader.clock.boot_ms()
    leader.clock.advance(5_000)
    granted: list[float] = []
    leader.broker._serving.committer.after_sync = lambda: granted.append(leader.log.granted_until_ms)
    leader.bring_store_back()
    await leader.until(lambda: bool(granted))
    assert granted[0] == sent_ms + 1_500 < leader.clock.boot_ms()


@story
async def test_long_polls_wait_on_without_a_grant_and_are_served_when_it_is_back(leader: Leader):
    broker = leader.broker
    claiming = asyncio.ensure_future(_wait(broker.claim("mail", node="w", wait_ms=60_000)))
    reading = asyncio.ensure_future(_wait(broker.diff("mail", wait_ms=60_000)))
    await asyncio.sleep(0)
    await broker.produce("mail", [Record(data=b"1", delay_ms=3_000)])
    assert (await reading).records
    await leader.beat()
    reading = asyncio.ensure_future(_wait(broker.diff("mail", from_seq=1, wait_ms=60_000)))
    await asyncio.sleep(0)
    leader.take_store_away()
    leader.clock.advance(4_000)  # the job is due, the grant is over
    await asyncio.sleep(0.01)
    assert [claiming.done(), reading.done()] == [False, False]
    leader.bring_store_back()
    async with asyncio.timeout(LIMIT_S):
        assert (await claiming).seqs == [1]
        await broker.produce("mail", [b"2"])
        assert (await reading).records


async def test_topics_that_wait_for_their_turn_get_it_when_the_grant_is_back(monkeypatch: pytest.MonkeyPatch):
    leader = Leader()
    await leader.open(Settings(turn_topics_max=1))
    names, waiting = [f"q{number}" for number in range(6)], []
    for name in names:
        await leader.broker.put_topic(name, {"type": "queue", "durability": "fsync", "leases_durable": False})
        waiting.append(asyncio.ensure_future(_wait(leader.broker.claim(name, node="w", wait_ms=60_000))))
    await asyncio.sleep(0)
    coordinator, served = leader.broker._serving.coordinator, list[Topic]()
    serve = coordinator.serve

    def serve_slowly(topic: Topic) -> None:
        serve(topic)
        served.append(topic)
        if len(served) == 1:
            leader.take_store_away()
            leader.clock.advance(1_500)

    produced = [leader.broker.produce(name, [b"1"]) for name in names]
    monkeypatch.setattr(coordinator, "serve", serve_slowly)
    for each in produced:
        await each  # one link made them all visible, and after the first turn the grant was over
    await asyncio.sleep(0.01)
    assert sum(each.done() for each in waiting) < 6
    leader.bring_store_back()
    async with asyncio.timeout(LIMIT_S):
        assert [(await each).seqs for each in waiting] == [[1]] * 6
    await leader.broker.close()


@story
async def test_a_long_poll_whose_time_is_up_without_a_grant_is_refused(leader: Leader):
    broker = leader.broker
    waiting = [
        asyncio.ensure_future(_wait(broker.claim("mail", node="w", wait_ms=2_000))),
        asyncio.ensure_future(_wait(broker.diff("mail", wait_ms=2_000))),
    ]
    await asyncio.sleep(0)
    leader.take_store_away()
    leader.clock.advance(2_000)
    async with asyncio.timeout(LIMIT_S):
        for each in waiting:
            with pytest.raises(Overloaded) as caught:
                await each
            assert caught.value.code == "store_away"


def test_a_log_that_nobody_follows_needs_no_grant_and_sends_no_beat():
    async def live() -> None:
        store, clock = SimStore(), ManualClock()
        log = open_log(store, SimDisk(), clock=clock)
        async with await Broker.open(lambda: log, clock=clock) as broker:
            assert (log.granted_until_ms, log.beat_wait_ms) == (inf, None)
            count = len(links(store))
            clock.advance(60_000)
            assert broker.topics().items == []
            assert len(links(store)) == count
            assert {link.beat_ms for link in links(store)} == {0}

    asyncio.run(live())


def test_a_new_leader_has_no_grant_before_its_first_link():
    log = open_log(SimStore(), SimDisk(), settings=BEATS, clock=ManualClock(), beats=True)
    assert log.granted_until_ms == 0
    list(log.replay())
    assert log.granted_until_ms > 1_500


async def test_a_handover_takes_one_link_which_carries_what_was_pending_and_names_the_successor(
    monkeypatch: pytest.MonkeyPatch,
):
    leader = Leader()
    await leader.open()
    await leader.beat()
    await leader.broker.produce("mail", [b"1"])
    before = len(links(leader.store))
    waiting = asyncio.ensure_future(_wait(leader.broker.claim("safe", node="w", wait_ms=60_000)))
    await asyncio.sleep(0)
    saved: list[int] = []
    save = checkpoint.save

    def count_links(*about: Any) -> None:
        saved.append(len(links(leader.store)))
        save(*about)

    monkeypatch.setattr(checkpoint, "save", count_links)
    await leader.broker.close(hand_to="http://two")
    (last,) = links(leader.store)[before:]
    assert (last.is_released, last.url, last.beat_ms, bool(last.runs)) == (True, "http://two", 0, True)
    assert saved == [before + 1]  # the checkpoint of closing comes after it
    assert leader.log.granted_until_ms == 0
    with pytest.raises(NotLeader) as caught:
        await waiting
    assert caught.value.detail["leader"] == "http://two"
    with pytest.raises(NotLeader):
        leader.broker.topics()


async def test_what_fits_in_no_single_link_is_shipped_before_the_one_that_hands_over():
    leader = Leader()
    await leader.open()
    await leader.beat()
    leader.take_store_away()
    answers = [asyncio.ensure_future(_wait(leader.broker.produce("safe", [bytes(1 << 20)] * 3)))]
    await leader.until(lambda: bool(leader._held))
    for _ in range(4):  # while the first is under way; together they are more than a link holds
        answers.append(asyncio.ensure_future(_wait(leader.broker.produce("safe", [bytes(1 << 20)] * 3))))
        await asyncio.sleep(0.01)
    before = len(links(leader.store))
    closing = asyncio.create_task(leader.broker.close(hand_to="http://two"))
    await asyncio.sleep(0)
    leader.bring_store_back()
    await closing
    shipped = links(leader.store)[before:]
    assert [link.is_released for link in shipped] == [False] * (len(shipped) - 1) + [True]
    assert len(shipped) > 2
    assert all(link.runs or link.parts for link in shipped)
    await asyncio.gather(*answers)


@story
async def test_an_idle_leader_hands_over_with_one_link(leader: Leader):
    await leader.beat()
    before = len(links(leader.store))
    await leader.broker.close(hand_to="")
    [last] = links(leader.store)[before:]
    assert (last.is_released, last.url) == (True, "")


@story
async def test_after_a_handover_the_next_leader_has_everything(leader: Leader):
    await leader.broker.produce("mail", [b"1", b"2"])
    await leader.broker.close(hand_to="")
    opened = open_log(leader.store, SimDisk(1), settings=BEATS, clock=leader.clock, beats=True)
    async with await Broker.open(lambda: opened, clock=leader.clock) as second:
        assert second.topic("mail").count == 2


@story
async def test_a_leader_that_was_overtaken_refuses_everything_with_the_address_of_the_next(leader: Leader):
    broker = leader.broker
    claiming = asyncio.ensure_future(_wait(broker.claim("mail", node="w", wait_ms=60_000)))
    reading = asyncio.ensure_future(_wait(broker.diff("mail", wait_ms=60_000)))
    stream, events = broker.work("safe", node="w"), broker.events()
    await asyncio.sleep(0)
    await asyncio.to_thread(open_log, leader.store, SimDisk(1), settings=BEATS, beats=True, url="http://two")
    with pytest.raises(NotLeader):
        await broker.produce("safe", [b"1"])
    waiting: list[Callable[[], Any]] = [
        lambda: claiming,
        lambda: reading,
        stream.__anext__,
        events.__anext__,
        lambda: _wait(broker.claim("mail", node="w")),
        lambda: _wait(broker.produce("mail", [b"1"])),
        lambda: _wait(broker.diff("mail")),
    ]
    for call in waiting:
        with pytest.raises(NotLeader) as caught:
            async with asyncio.timeout(LIMIT_S):
                await call()
        assert (caught.value.detail["leader"], caught.value.status) == ("http://two", 421)
    for look in (broker.topics, lambda: broker.topic("mail"), broker.events, lambda: broker.work("mail", node="w")):
        with pytest.raises(NotLeader):
            look()
    assert leader.log.leadership.metrics.fenced == 1


@story
async def test_a_link_that_hangs_is_given_up_once_it_is_known_that_another_leads(leader: Leader):
    before = len(leader.store.calls)
    leader.take_store_away()
    produced = asyncio.ensure_future(_wait(leader.broker.produce("safe", [b"1"])))
    await leader.until(lambda: bool(leader._held))
    other = leader.store.client("two")  # which reaches the store
    await asyncio.to_thread(open_log, other, SimDisk(1), settings=BEATS, beats=True, url="http://two")
    with pytest.raises(NotLeader):
        await asyncio.to_thread(background().run, leader.log.leadership.prove())
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(NotLeader):
            await produced
        await leader.broker.close()
    assert leader.store.count("put_new", CHAIN, client="two") > 0
    assert len(leader.store.calls) > before


async def _wait(answer: Any) -> Any:
    return await answer
