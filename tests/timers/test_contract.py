"""What timers promise, on a single Redis, on a cluster of three, and on the fake that users test with."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tenure.errors import Conflict, Invalid, Overloaded
from tenure.timers import Held, NewTimer, Timer, Timers
from tests.timers.conftest import SETTINGS, World

HOUR_MS = 3_600_000


async def claim_one(timers: Timers, topic: str = "t", *, lease_ttl_ms: int | None = None, node: str = "") -> Timer:
    (timer,) = await timers.claim(topic, max_count=10, lease_ttl_ms=lease_ttl_ms, node=node)
    return timer


async def test_a_timer_is_handed_out_when_it_is_due_and_not_before(world: World):
    scheduled = await world.timers.schedule("t", {"to": 42}, delay=HOUR_MS, timer_id="a")
    assert (scheduled.timer_id, scheduled.outcome) == ("a", "created")
    assert await world.timers.claim("t") == []
    await world.timers.schedule("t", {"to": 43}, delay=0, timer_id="b")
    timer = await claim_one(world.timers)
    assert (timer.timer_id, timer.json(), timer.deliveries, timer.failures) == ("b", {"to": 43}, 1, 0)
    assert timer.deadline_ms - timer.due_ms >= timer.lease_ms == SETTINGS.lease_ttl_ms


async def test_a_committed_timer_is_gone(world: World):
    await world.timers.schedule("t", b"x", delay=0)
    timer = await claim_one(world.timers)
    assert (await world.timers.commit("t", [timer])).count == 1
    stats = await world.timers.stats("t")
    assert (stats.ready, stats.in_flight, stats.committed_total) == (0, 0, 1)
    assert (await world.timers.commit("t", [timer])).lost == [timer.timer_id]


async def test_payloads_are_bytes_verbatim_or_json(world: World):
    class Point(msgspec.Struct):
        x: int

    raw = bytes(range(256))
    await world.timers.schedule("t", raw, at=1, timer_id="1")
    await world.timers.schedule("t", Point(3), at=2, timer_id="2")
    await world.timers.schedule("t", b"", at=3, timer_id="3")
    first, second, third = await world.timers.claim("t", max_count=3)
    assert (first.payload, second.json(Point), third.payload) == (raw, Point(3), b"")


async def test_moments_are_taken_as_datetimes_and_as_milliseconds(world: World):
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    ms = int(moment.timestamp() * 1000)
    assert (await world.timers.schedule("t", 1, at=moment)).due_ms == ms
    assert (await world.timers.schedule("t", 1, at=ms)).due_ms == ms
    now_ms = await world.now_ms()
    due_ms = (await world.timers.schedule("t", 1, delay=timedelta(hours=1))).due_ms
    assert now_ms + HOUR_MS <= due_ms <= await world.now_ms() + HOUR_MS


async def test_timers_come_in_the_order_of_their_moments(world: World):
    for ms in (5, 3, 4):
        await world.timers.schedule("t", ms, at=ms)
    assert [timer.json() for timer in await world.timers.claim("t", max_count=10)] == [3, 4, 5]


async def test_an_id_that_waits_is_replaced(world: World):
    first = await world.timers.schedule("t", 1, delay=0, timer_id="a")
    second = await world.timers.schedule("t", 2, delay=0, timer_id="a")
    assert second.version > first.version
    assert second.outcome == "replaced"
    assert (await claim_one(world.timers)).json() == 2


async def test_an_id_that_waits_is_kept_where_asked(world: World):
    first = await world.timers.schedule("t", 1, delay=0, timer_id="a")
    second = await world.timers.schedule("t", 2, delay=HOUR_MS, timer_id="a", on_conflict="keep")
    assert (second.version, second.due_ms, second.outcome) == (first.version, first.due_ms, "kept")
    assert (await claim_one(world.timers)).json() == 1


async def test_an_id_in_use_refuses_the_whole_batch_where_asked(world: World):
    await world.timers.schedule("t", 1, delay=HOUR_MS, timer_id="a")
    batch = [NewTimer(payload=2, delay=0, timer_id=one) for one in ("b", "a")]
    with pytest.raises(Conflict) as caught:
        await world.timers.schedule_many("t", batch, on_conflict="error")
    assert caught.value.detail["timer_ids"] == ["a"]
    assert await world.timers.get("t", "b") is None
    with pytest.raises(Conflict):
        await world.timers.schedule_many("u", [*batch, batch[0]], on_conflict="error")


async def test_an_id_twice_in_a_batch_is_its_last_message(world: World):
    batch = [NewTimer(payload=value, delay=0, timer_id="a") for value in (1, 2)]
    first, second = await world.timers.schedule_many("t", batch)
    assert (first.outcome, second.outcome) == ("created", "replaced")
    assert (await claim_one(world.timers)).json() == 2


async def test_hole_1_an_id_republished_while_it_runs_is_not_lost(world: World):
    await world.timers.schedule("t", "old", delay=0, timer_id="a")
    running = await claim_one(world.timers)
    await world.timers.schedule("t", "new", delay=0, timer_id="a")
    settled = await world.timers.commit("t", [running])
    assert (settled.count, settled.superseded, settled.lost) == (0, ["a"], [])
    new = await claim_one(world.timers)
    assert (new.json(), new.deliveries) == ("new", 1)
    assert (await world.timers.commit("t", [new])).count == 1


@pytest.mark.parametrize("verdict", ["commit", "reject", "nack", "extend"])
async def test_hole_1_no_verdict_on_an_old_message_touches_the_new_one(world: World, verdict: str):
    await world.timers.schedule("t", "old", delay=0, timer_id="a")
    running = await claim_one(world.timers)
    new = await world.timers.schedule("t", "new", delay=HOUR_MS, timer_id="a")
    answer = await getattr(world.timers, verdict)("t", [running])
    assert (answer.count, answer.superseded) == (0, ["a"])
    info = await world.timers.get("t", "a")
    assert info is not None
    assert (info.state, info.version, info.at_ms, info.payload) == ("waiting", new.version, new.due_ms, b'"new"')


async def test_an_id_that_runs_is_kept_or_refused_where_asked(world: World):
    await world.timers.schedule("t", "old", delay=0, timer_id="a")
    running = await claim_one(world.timers)
    assert (await world.timers.schedule("t", "new", delay=0, timer_id="a", on_conflict="keep")).outcome == "kept"
    with pytest.raises(Conflict):
        await world.timers.schedule("t", "new", delay=0, timer_id="a", on_conflict="error")
    assert (await world.timers.commit("t", [running])).count == 1


@pytest.mark.parametrize("verdict", ["commit", "reject", "nack", "extend"])
async def test_hole_2_a_late_verdict_leaves_the_lease_of_another_alone(world: World, verdict: str):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    slow = await claim_one(world.timers, lease_ttl_ms=1)
    await world.pass_ms(2)
    quick = await claim_one(world.timers, node="quick")
    assert (quick.version, quick.deliveries) == (slow.version, 2)
    answer = await getattr(world.timers, verdict)("t", [slow])
    assert (answer.count, answer.lost) == (0, ["a"])
    info = await world.timers.get("t", "a")
    assert info is not None
    assert (info.state, info.node, info.at_ms) == ("in_flight", "quick", quick.deadline_ms)
    assert (await world.timers.commit("t", [quick])).count == 1


async def test_a_late_verdict_counts_while_nobody_else_has_the_timer(world: World):
    await world.timers.schedule("t", 1, delay=0)
    late = await claim_one(world.timers, lease_ttl_ms=1)
    await world.pass_ms(2)
    assert (await world.timers.commit("t", [late])).count == 1


async def test_two_workers_never_hold_one_timer_fault_55(world: World):
    await world.timers.schedule_many("t", [NewTimer(payload=i, delay=0) for i in range(100)])
    claims = await asyncio.gather(*(world.timers.claim("t", max_count=30) for _ in range(8)))
    held = [timer.timer_id for timers in claims for timer in timers]
    assert len(held) == len(set(held)) == 100


async def test_an_extended_lease_does_not_lapse(world: World):
    await world.timers.schedule("t", 1, delay=0)
    timer = await claim_one(world.timers, lease_ttl_ms=1)
    extended = await world.timers.extend("t", [timer], lease_ttl_ms=HOUR_MS)
    assert (extended.count, extended.lost) == (1, [])
    await world.pass_ms(2)
    assert await world.timers.claim("t") == []
    assert extended.deadline_ms >= await world.now_ms() + HOUR_MS - 60_000


async def test_a_lapsed_lease_is_served_before_what_is_fresh(world: World):
    await world.timers.schedule("t", "lapsed", delay=0)
    await claim_one(world.timers, lease_ttl_ms=1)
    await world.timers.schedule("t", "fresh", at=1)
    await world.pass_ms(2)
    assert [timer.json() for timer in await world.timers.claim("t", max_count=2)] == ["lapsed", "fresh"]
    assert (await world.timers.stats("t")).lapsed_total == 1


async def test_a_nacked_timer_is_due_again_after_its_delay(world: World):
    await world.timers.schedule_many("t", [NewTimer(payload=i, at=i) for i in (1, 2)])
    now, later = await world.timers.claim("t", max_count=2)
    settled = await world.timers.nack("t", [now, later], delay_ms=[0, HOUR_MS], reason=["", "no route"])
    assert (settled.count, settled.dead) == (2, [])
    again = await claim_one(world.timers)
    assert (again.json(), again.deliveries, again.failures) == (1, 2, 0)
    info = await world.timers.get("t", later.timer_id)
    assert info is not None
    assert (info.state, info.failures, info.reason) == ("waiting", 1, "no route")


async def test_a_delivery_nobody_used_does_not_count(world: World):
    await world.timers.schedule("t", 1, delay=0)
    for _ in range(SETTINGS.max_deliveries + 1):
        await world.timers.nack("t", [await claim_one(world.timers)], unused=True)
    assert (await claim_one(world.timers)).deliveries == 1


async def test_a_timer_that_fails_too_often_becomes_a_dead_letter_with_its_reason(world: World):
    await world.timers.schedule("t", {"to": 42}, delay=0, timer_id="a")
    first = await claim_one(world.timers)
    assert (await world.timers.nack("t", [first], reason="failure 1", max_deliveries=2)).dead == []
    timer = await claim_one(world.timers)
    settled = await world.timers.nack("t", [timer], reason="failure 2", max_deliveries=2)
    assert (settled.count, settled.dead) == (1, ["a"])
    (letter,) = await world.timers.peek("t", state="dead")
    assert (letter.timer_id, letter.payload, letter.version) == ("a", b'{"to":42}', timer.version)
    assert (letter.deliveries, letter.failures, letter.reason) == (2, 2, "failure 2")
    assert await world.timers.claim("t") == []


async def test_a_timer_whose_workers_die_becomes_a_dead_letter_too(world: World):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    held = []
    for _ in range(2):
        held = await world.timers.claim("t", lease_ttl_ms=1, max_deliveries=2)
        await world.pass_ms(2)
    assert await world.timers.claim("t", max_deliveries=2) == []
    (letter,) = await world.timers.peek("t", state="dead")
    assert letter.reason == "its lease ran out at delivery 2"
    assert (await world.timers.commit("t", held)).lost == ["a"]


async def test_a_rejected_timer_is_a_dead_letter_and_a_redriven_one_begins_anew(world: World):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    timer = await claim_one(world.timers)
    assert (await world.timers.reject("t", [timer], reason="never")).count == 1
    (letter,) = await world.timers.peek("t", state="dead")
    assert (await world.timers.redrive("t", versions=[letter.version, 7])).skipped == [7]
    again = await claim_one(world.timers)
    assert (again.timer_id, again.deliveries, again.failures) == ("a", 1, 0)
    assert again.version > timer.version
    assert (await world.timers.stats("t")).dead == 0


async def test_a_dead_letter_whose_id_is_in_use_stays(world: World):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    await world.timers.reject("t", [await claim_one(world.timers)])
    await world.timers.schedule("t", 2, delay=HOUR_MS, timer_id="a")
    (letter,) = await world.timers.peek("t", state="dead")
    redriven = await world.timers.redrive("t")
    assert (redriven.count, redriven.skipped) == (0, [letter.version])
    assert await world.timers.discard("t") == 1
    assert await world.timers.discard("t") == 0


async def test_both_messages_of_an_id_that_died_twice_are_kept(world: World):
    for value in (1, 2):
        await world.timers.schedule("t", value, delay=0, timer_id="a")
        await world.timers.reject("t", [await claim_one(world.timers)], reason=str(value))
    assert sorted(letter.payload for letter in await world.timers.peek("t", state="dead")) == [b"1", b"2"]
    assert (await world.timers.redrive("t")).count == 1
    assert await world.timers.discard("t", versions=[]) == 0


async def test_cancelling_says_what_it_met(world: World):
    assert await world.timers.cancel("t", "a") == "unknown"
    await world.timers.schedule("t", 1, delay=HOUR_MS, timer_id="a")
    assert await world.timers.cancel("t", "a") == "cancelled"
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    running = await claim_one(world.timers, lease_ttl_ms=60_000)
    assert await world.timers.cancel("t", "a") == "in_flight"
    await world.timers.nack("t", [running], delay_ms=HOUR_MS)
    assert await world.timers.cancel("t", "a") == "cancelled"
    assert (await world.timers.stats("t")).cancelled_total == 2


async def test_a_lapsed_timer_can_be_cancelled(world: World):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    late = await claim_one(world.timers, lease_ttl_ms=1)
    await world.pass_ms(2)
    assert await world.timers.cancel("t", "a") == "cancelled"
    assert (await world.timers.commit("t", [late])).lost == ["a"]


async def test_cancelling_all_leaves_alone_what_a_worker_holds(world: World):
    await world.timers.schedule_many("t", [NewTimer(payload=n, at=n, timer_id=str(n)) for n in (1, 2)])
    (held,) = await world.timers.claim("t", lease_ttl_ms=HOUR_MS)
    (lapsed,) = await world.timers.claim("t", lease_ttl_ms=1)
    await world.pass_ms(2)
    count = 2 * SETTINGS.batch_max + 5
    await world.timers.schedule_many("t", [NewTimer(payload=n, delay=HOUR_MS) for n in range(count)])
    assert await world.timers.cancel_all("t") == count + 1
    stats = await world.timers.stats("t")
    assert (stats.scheduled, stats.ready, stats.in_flight, stats.cancelled_total) == (0, 0, 1, count + 1)
    assert (await world.timers.commit("t", [lapsed])).lost == [lapsed.timer_id]
    assert (await world.timers.commit("t", [held])).count == 1
    assert await world.timers.cancel_all("t") == 0


async def test_redis_answers_a_ping(world: World):
    assert await world.timers.ping()
    assert await world.timers.ping(timeout_ms=30_000)


async def test_many_are_split_into_batches(world: World):
    count = 2 * SETTINGS.batch_max + 5
    done = await world.timers.schedule_many("t", [NewTimer(payload=i, at=i + 1) for i in range(count)])
    assert len({one.version for one in done}) == count
    held = [timer for _ in range(3) for timer in await world.timers.claim("t", max_count=SETTINGS.batch_max)]
    assert [timer.json() for timer in held] == list(range(count))
    assert (await world.timers.extend("t", held)).count == count
    assert (await world.timers.commit("t", held)).count == count


async def test_a_claim_stays_within_its_bytes_and_always_takes_one(world: World):
    large = b"x" * 90_000
    await world.timers.schedule_many("t", [NewTimer(payload=large, delay=0) for _ in range(5)])
    assert [len(await world.timers.claim("t", max_count=5)) for _ in range(4)] == [2, 2, 1, 0]
    assert len(await world.timers.peek("t", state="in_flight")) == 2


async def test_a_full_topic_takes_no_more(world: World):
    batch = [NewTimer(payload=1, delay=HOUR_MS, timer_id=str(i)) for i in range(SETTINGS.timers_max)]
    await world.timers.schedule_many("t", batch)
    with pytest.raises(Overloaded) as caught:
        await world.timers.schedule("t", 1, delay=0)
    assert caught.value.code == "topic_full"
    assert (await world.timers.schedule("t", 2, delay=0, timer_id="7")).outcome == "replaced"


async def test_topics_do_not_know_each_other(world: World):
    await world.timers.schedule("one", 1, delay=0, timer_id="a")
    assert await world.timers.claim("two") == []
    timer = await claim_one(world.timers, "one")
    assert (await world.timers.commit("two", [timer])).lost == ["a"]


async def test_a_guessed_lease_settles_nothing(world: World):
    scheduled = await world.timers.schedule("t", 1, delay=0, timer_id="a")
    for token in (b"", b"x" * 16):
        assert (await world.timers.commit("t", [Held("a", token, scheduled.version)])).lost == ["a"]
    assert len(await world.timers.claim("t")) == 1


async def test_a_timer_named_twice_in_one_call_is_settled_once(world: World):
    await world.timers.schedule("t", 1, delay=0, timer_id="a")
    timer = await claim_one(world.timers)
    settled = await world.timers.commit("t", [timer, timer])
    assert (settled.count, settled.lost) == (1, ["a"])


async def test_numbers_tell_what_is_there(world: World):
    await world.timers.schedule_many("t", [NewTimer(payload=1, at=1), NewTimer(payload=1, delay=HOUR_MS)])
    await world.timers.schedule("t", 1, delay=0)
    await world.timers.claim("t")
    stats = await world.timers.stats("t")
    assert (stats.scheduled, stats.ready, stats.in_flight, stats.dead) == (1, 1, 1, 0)
    assert (stats.scheduled_total, stats.delivered_total) == (3, 1)
    assert stats.next_due_ms is not None
    assert stats.lag_ms == stats.now_ms - stats.next_due_ms


async def test_nothing_at_all_is_answered_too(world: World):
    assert await world.timers.schedule_many("t", []) == []
    assert (await world.timers.commit("t", [])).count == 0
    assert (await world.timers.redrive("t", versions=[])).count == 0
    assert await world.timers.peek("t") == []
    stats = await world.timers.stats("t")
    assert (stats.next_due_ms, stats.lag_ms) == (None, 0)


async def test_waiting_ends_when_something_due_is_scheduled(world: World):
    waiting = asyncio.create_task(world.timers.wait("t"))
    await asyncio.sleep(0)
    await world.timers.schedule("t", 1, delay=0)
    assert await waiting is True


async def test_waiting_ends_at_the_next_score(world: World):
    await world.timers.schedule("t", 1, delay=50)
    waiting = asyncio.create_task(world.timers.wait("t"))
    await asyncio.sleep(0)
    await world.pass_ms(51)
    assert await waiting is True
    assert len(await world.timers.claim("t")) == 1


async def test_waiting_ends_with_its_time(world: World):
    waiting = asyncio.create_task(world.timers.wait("t", timeout_ms=20))
    await asyncio.sleep(0)
    await world.pass_ms(21)
    assert await waiting is False


async def test_waiting_ends_when_a_lease_lapses(world: World):
    await world.timers.schedule("t", 1, delay=0)
    await claim_one(world.timers, lease_ttl_ms=30)
    waiting = asyncio.create_task(world.timers.wait("t"))
    await asyncio.sleep(0)
    await world.pass_ms(31)
    assert await waiting is True
    assert (await claim_one(world.timers)).deliveries == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay": -1},
        {"delay": 1, "at": 1},
        {},
        {"at": datetime(2030, 1, 1)},
        {"delay": 1.5},
        {"delay": True},
        {"delay": 0, "timer_id": ""},
        {"delay": 0, "timer_id": "x" * 257},
        {"delay": 0, "timer_id": "\ud800"},
        {"delay": 0, "payload": b"x" * 100_001},
        {"delay": 0, "payload": {1j}},
        {"delay": 0, "topic": "{a}"},
        {"delay": 0, "on_conflict": "ignore"},
    ],
    ids=str,
)
async def test_what_cannot_be_meant_is_refused(world: World, wrong: dict[str, object]):
    call: dict[str, object] = {"topic": "t", "payload": 1, **wrong}
    with pytest.raises(Invalid):
        await world.timers.schedule(call.pop("topic"), call.pop("payload"), **call)  # type: ignore[arg-type]


async def test_workers_are_refused_what_cannot_be_meant(world: World):
    for wrong in ({"max_count": 0}, {"max_count": 101}, {"lease_ttl_ms": 0}, {"node": "x" * 129}):
        with pytest.raises(Invalid):
            await world.timers.claim("t", **wrong)  # type: ignore[arg-type, unused-ignore]
    held = Held("a", b"x", 1)
    with pytest.raises(Invalid):
        await world.timers.nack("t", [held], delay_ms=-1)
    with pytest.raises(Invalid):
        await world.timers.nack("t", [held], delay_ms=[1, 2])
    with pytest.raises(Invalid):
        await world.timers.peek("t", state="gone")  # type: ignore[arg-type]
