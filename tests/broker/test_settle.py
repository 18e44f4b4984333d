"""Ack, nack, extend, and what happens to a lease whose time is up (seed 003 and contract, section 9)."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Broker, Invalid, LeaseLost
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.broker.support import make_queue, numbers, read, reopen, seqs, snapshot

# Ack


async def test_an_ack_is_the_delete(broker: Broker) -> None:
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", max_count=2)
    done = await broker.ack("q", node="w", seqs=[1, 2])
    assert (done.topic, done.count, done.skipped, done.ready, done.in_flight) == ("q", 2, [], 1, 0)
    assert seqs(await read(broker, "q")) == [3]
    assert broker.topic("q").bytes == 1


async def test_a_repeated_ack_has_the_same_effect_and_reports_the_seqs(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2)
    await broker.ack("q", node="w", seqs=[1])
    before = snapshot(broker)
    again = await broker.ack("q", node="w", seqs=[1])
    assert (again.count, again.skipped) == (0, [1])
    assert snapshot(broker) == before


async def test_only_the_holder_can_ack(broker: Broker) -> None:
    await make_queue(broker, jobs=4)
    await broker.claim("q", node="w", max_count=2)
    await broker.claim("q", node="v")
    done = await broker.ack("q", node="w", seqs=[4, 3, 2, 1, 99])
    assert (done.count, done.skipped, done.in_flight, done.ready) == (2, [4, 3, 99], 1, 1)


async def test_a_seq_named_twice_is_acked_once(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2)
    assert (await broker.ack("q", node="w", seqs=[2, 2, 1, 2])).count == 2
    assert broker.topic("q").count == 0


async def test_a_claim_can_be_acked_as_a_range(broker: Broker) -> None:
    await make_queue(broker, jobs=1000)
    await broker.claim("q", node="w", max_count=1000)
    assert (await broker.ack("q", node="w", seqs=range(1, 1001))).count == 1000


async def test_acks_in_any_order_leave_exactly_what_was_not_acked(broker: Broker) -> None:
    await make_queue(broker, jobs=10)
    await broker.claim("q", node="w", max_count=10)
    for part in ([9, 2], [5], [10, 1, 3]):
        await broker.ack("q", node="w", seqs=part)
    assert seqs(await read(broker, "q")) == [4, 6, 7, 8]
    assert broker.topic("q").bytes == 4


# Naming jobs: leases and fences

SETTLERS = ("ack", "nack", "extend")


async def settle(broker: Broker, how: str, **options: Any) -> tuple[int, list[int]]:
    """Ack, nack or extend; how many jobs it was about, and which were skipped."""
    if how == "extend":
        options.setdefault("lease_ms", 5000)
        extension = await broker.extend("q", **options)
        return len(extension.deadlines), extension.skipped
    done = await (broker.ack("q", **options) if how == "ack" else broker.nack("q", **options))
    return done.count, done.skipped


@pytest.mark.parametrize("how", SETTLERS)
async def test_a_lease_id_alone_means_all_that_is_still_held_under_it(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=6)
    first = await broker.claim("q", node="w", max_count=3)
    await broker.claim("q", node="w", max_count=3)
    await broker.ack("q", node="w", seqs=[2])
    assert await settle(broker, how, node="w", lease_id=first.lease_id) == (2, [])
    held = [job["seq"] for job in broker.jobs("q", state="in_flight").items]
    assert held == ([1, 3, 4, 5, 6] if how == "extend" else [4, 5, 6])


@pytest.mark.parametrize("how", SETTLERS)
async def test_a_lease_id_needs_its_node(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=2)
    claim = await broker.claim("q", node="w", max_count=2)
    before = snapshot(broker)
    assert await settle(broker, how, node="v", lease_id=claim.lease_id) == (0, [])
    assert snapshot(broker) == before


@pytest.mark.parametrize("how", SETTLERS)
@pytest.mark.parametrize("lease_id", ["", "lease_", "lease_zz", "lease_0", "nonsense", "lease_" + "f" * 60])
async def test_a_lease_id_that_never_was_holds_nothing(broker: Broker, how: str, lease_id: str) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2)
    assert await settle(broker, how, node="w", lease_id=lease_id) == (0, [])
    assert await settle(broker, how, node="w", seqs=[1], lease_id=lease_id) == (0, [1])
    assert await settle(broker, how, node="w", seqs=[1], lease_ids=[lease_id]) == (0, [1])


@pytest.mark.parametrize("how", SETTLERS)
async def test_a_lease_id_given_with_seqs_fences_them_all(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=4)
    first = await broker.claim("q", node="w", max_count=2)
    await broker.claim("q", node="w", max_count=2)
    assert await settle(broker, how, node="w", seqs=[1, 2, 3, 4], lease_id=first.lease_id) == (2, [3, 4])


@pytest.mark.parametrize("how", SETTLERS)
async def test_a_stale_fence_skips_its_seq_though_the_node_is_right(
    broker: Broker, clock: ManualClock, how: str
) -> None:
    await make_queue(broker, jobs=2)
    old = await broker.claim("q", node="w", max_count=2)
    clock.advance(30_001)
    new = await broker.claim("q", node="w", max_count=2)
    assert await settle(broker, how, node="w", seqs=[1, 2], lease_ids=[old.lease_id, new.lease_id]) == (1, [1])


@pytest.mark.parametrize("how", SETTLERS)
async def test_fences_of_another_number_than_seqs_are_refused(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=2)
    claim = await broker.claim("q", node="w", max_count=2)
    before = snapshot(broker)
    attempts: list[dict[str, Any]] = [
        {"seqs": [1, 2], "lease_ids": [claim.lease_id]},
        {"seqs": [1], "lease_ids": []},
        {"lease_id": claim.lease_id, "lease_ids": [claim.lease_id]},
        {"lease_ids": [claim.lease_id]},
        {},
        {"seqs": []},
    ]
    for options in attempts:
        with pytest.raises(Invalid):
            await settle(broker, how, node="w", **options)
    assert snapshot(broker) == before


@pytest.mark.parametrize("how", SETTLERS)
async def test_more_seqs_than_a_claim_can_hold_are_refused(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=1)
    with pytest.raises(Invalid) as error:
        await settle(broker, how, node="w", seqs=list(range(1001)))
    assert error.value.code == "batch_too_large"


@pytest.mark.parametrize("how", SETTLERS)
async def test_strict_refuses_all_where_one_living_seq_is_not_the_caller_s(broker: Broker, how: str) -> None:
    await make_queue(broker, jobs=4)
    await broker.claim("q", node="w", max_count=2)
    await broker.ack("q", node="w", seqs=[1])
    before = snapshot(broker)
    with pytest.raises(LeaseLost) as error:
        await settle(broker, how, node="w", seqs=[1, 2, 3, 4], strict=True)
    assert (error.value.code, error.value.detail["skipped"]) == ("precondition_failed", [3, 4])
    assert snapshot(broker) == before
    assert await settle(broker, how, node="w", seqs=[1, 2, 99], strict=True) == (1, [1, 99]), "gone is only skipped"


# Nack


async def test_a_nack_gives_the_job_back_at_once(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2)
    done = await broker.nack("q", node="w", seqs=[2, 1, 77])
    assert (done.topic, done.count, done.skipped, done.ready, done.in_flight) == ("q", 2, [77], 2, 0)
    claim = await broker.claim("q", node="v", max_count=2)
    assert (claim.seqs, claim.deliveries(1), claim.deliveries(2)) == ([1, 2], 2, 2)


async def test_a_nack_with_a_delay_hides_the_job_until_then(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    done = await broker.nack("q", node="w", seqs=[1], delay_ms=500)
    assert (done.ready, done.in_flight, numbers(broker)["delayed"]) == (0, 0, 1)
    clock.advance(499)
    assert (await broker.claim("q", node="v")).seqs == []
    clock.advance(1)
    assert (await broker.claim("q", node="v")).seqs == [1]


async def test_a_delay_is_clamped_to_a_day(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], delay_ms=10**15)
    clock.advance(86_400_000)
    assert (await broker.claim("q", node="v")).seqs == [1]


async def test_the_reason_of_a_nack_is_kept_with_the_delivery(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    start_ms = clock.wall_ms()
    claim = await broker.claim("q", node="w")
    clock.advance(40)
    await broker.nack("q", node="w", seqs=[1], reason="no such file: é")
    _, about = broker.job("q", 1)
    assert about["reason"] == "no such file: é"
    assert about["history"] == [
        {
            "lease_id": claim.lease_id,
            "node": "w",
            "from": start_ms,
            "to": start_ms + 40,
            "end": "nack",
            "reason": "no such file: é",
        }
    ]


async def test_a_reason_may_be_empty_and_has_a_limit_in_bytes(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    with pytest.raises(Invalid):
        broker.nack("q", node="w", seqs=[1], reason="é" * 513)
    assert (await broker.nack("q", node="w", seqs=[1], reason="")).count == 1
    await broker.claim("q", node="w")
    assert (await broker.nack("q", node="w", seqs=[1], reason="é" * 512)).count == 1


async def test_back_off_applies_to_nacks_without_a_delay(broker: Broker, clock: ManualClock) -> None:
    backoff = {"min_ms": 100, "max_ms": 350, "factor": 2, "jitter": False}
    await make_queue(broker, jobs=1, retry_backoff=backoff)
    for delay_ms in (100, 200, 350, 350):
        await broker.claim("q", node="w")
        await broker.nack("q", node="w", seqs=[1])
        clock.advance(delay_ms - 1)
        assert numbers(broker)["ready"] == 0
        clock.advance(1)
        assert numbers(broker)["ready"] == 1
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], delay_ms=0)
    assert numbers(broker)["ready"] == 1, "a delay that was given wins, 0 too"


async def test_back_off_applies_to_expiries(broker: Broker, clock: ManualClock) -> None:
    backoff = {"min_ms": 100, "max_ms": 10_000, "factor": 3, "jitter": False}
    await make_queue(broker, jobs=1, retry_backoff=backoff)
    for delay_ms in (100, 300):
        await broker.claim("q", node="w", lease_ms=1000)
        clock.advance(1000 + delay_ms - 1)
        assert numbers(broker)["delayed"] == 1
        clock.advance(1)
        assert numbers(broker)["ready"] == 1


async def test_a_job_that_expired_long_ago_has_its_back_off_behind_it(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, retry_backoff={"min_ms": 100, "jitter": False})
    await broker.claim("q", node="w", lease_ms=1000)
    clock.advance(60_000)
    assert (await broker.claim("q", node="v")).seqs == [1]


# Extend


async def test_an_extend_sets_the_deadline_from_now(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2, lease_ms=10_000)
    clock.advance(4000)
    extension = await broker.extend("q", node="w", seqs=[1, 2, 9], lease_ms=5000)
    assert extension.deadlines == dict.fromkeys([1, 2], clock.wall_ms() + 5000), "it sets, it does not add"
    assert (extension.topic, extension.skipped) == ("q", [9])
    clock.advance(5000)
    assert numbers(broker)["in_flight"] == 2
    clock.advance(1)
    assert numbers(broker)["in_flight"] == 0


async def test_an_extend_may_shorten_a_lease(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=60_000)
    await broker.extend("q", node="w", seqs=[1], lease_ms=200)
    clock.advance(201)
    assert (await broker.claim("q", node="v")).seqs == [1]


async def test_an_extend_counts_no_delivery_and_keeps_the_lease_id(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    claim = await broker.claim("q", node="w", max_count=2)
    for part in ([1], [1, 2], [2]):
        await broker.extend("q", node="w", seqs=part, lease_ms=5000)
    assert [(job["lease_id"], job["deliveries"]) for job in broker.jobs("q", state="in_flight").items] == [
        (claim.lease_id, 1)
    ] * 2


async def test_an_extend_of_some_jobs_leaves_the_others_where_they_were(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=5)
    claim = await broker.claim("q", node="w", max_count=5, lease_ms=1000)
    await broker.extend("q", node="w", seqs=[2, 4], lease_ms=3000)
    await broker.extend("q", node="w", seqs=[4], lease_ms=5000)
    clock.advance(1001)
    assert [job["seq"] for job in broker.jobs("q", state="in_flight").items] == [2, 4]
    clock.advance(2000)
    assert [job["seq"] for job in broker.jobs("q", state="in_flight").items] == [4]
    assert (await broker.ack("q", node="w", lease_id=claim.lease_id)).count == 1, "still the one lease"
    assert (await broker.claim("q", node="v", max_count=9)).seqs == [1, 2, 3, 5]


async def test_an_extend_by_lease_id_may_leave_the_time_out(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, lease_ms=7000)
    claim = await broker.claim("q", node="w", lease_ms=1000)
    extension = await broker.extend("q", node="w", lease_id=claim.lease_id)
    assert extension.deadlines == {1: clock.wall_ms() + 7000}
    with pytest.raises(Invalid):
        broker.extend("q", node="w", seqs=[1])


async def test_the_time_of_an_extend_is_clamped(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    for lease_ms, given in ((0, 100), (10**12, 86_400_000)):
        extension = await broker.extend("q", node="w", seqs=[1], lease_ms=lease_ms)
        assert extension.deadlines == {1: clock.wall_ms() + given}


# Expiry


@pytest.mark.parametrize("how", SETTLERS)
async def test_a_lease_is_good_up_to_its_deadline_that_moment_included(
    broker: Broker, clock: ManualClock, how: str
) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w", max_count=2, lease_ms=1000)
    clock.advance(1000)
    assert await settle(broker, how, node="w", seqs=[1, 2]) == (2, [])


@pytest.mark.parametrize("how", SETTLERS)
async def test_past_its_deadline_a_lease_is_over_though_nobody_reclaimed_the_job(
    broker: Broker, clock: ManualClock, how: str
) -> None:
    await make_queue(broker, jobs=2)
    claim = await broker.claim("q", node="w", max_count=2, lease_ms=1000)
    clock.advance(1001)
    assert await settle(broker, how, node="w", seqs=[1, 2]) == (0, [1, 2])
    assert await settle(broker, how, node="w", lease_id=claim.lease_id) == (0, [])
    assert (numbers(broker)["in_flight"], numbers(broker)["ready"]) == (0, 2)


async def test_an_expired_job_is_claimable_and_counts_one_delivery_more(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    for deliveries in (1, 2, 3):
        claim = await broker.claim("q", node="w", lease_ms=1000)
        assert (claim.seqs, claim.deliveries(1)) == ([1], deliveries)
        clock.advance(1001)
    assert numbers(broker) | {"oldest_ready_ms": 0} == {
        "ready": 1,
        "in_flight": 0,
        "delayed": 0,
        "parked": 0,
        "dead": 0,
        "dead_lettered": 0,
        "oldest_ready_ms": 0,
        "ack_holes": 0,
    }


async def test_the_wall_clock_does_not_end_leases(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    clock.jump_wall(10**9)
    assert numbers(broker)["in_flight"] == 1
    clock.jump_wall(-(10**10))
    clock.advance(1001)
    assert numbers(broker)["in_flight"] == 0


async def test_a_slow_worker_cannot_touch_what_another_holds_now(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="slow", lease_ms=1000)
    clock.advance(1001)
    await broker.claim("q", node="quick")
    before = snapshot(broker)
    assert (await broker.ack("q", node="slow", seqs=[1])).skipped == [1]
    assert (await broker.nack("q", node="slow", seqs=[1])).skipped == [1]
    assert (await broker.extend("q", node="slow", seqs=[1], lease_ms=5000)).skipped == [1]
    assert snapshot(broker) == before
    assert (await broker.ack("q", node="quick", seqs=[1])).count == 1


async def test_leases_and_counts_survive_a_restart_and_run_on(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", max_count=2, lease_ms=1000)
    await broker.nack("q", node="w", seqs=[2])
    second = await broker.claim("q", node="w", lease_ms=5000)
    clock.advance(600)
    broker = await reopen(broker, log, clock)
    assert numbers(broker)["in_flight"] == 2
    clock.advance(401)
    claim = await broker.claim("q", node="v", max_count=9)
    assert (claim.seqs, claim.deliveries(1), claim.deliveries(3)) == ([1, 3], 2, 1)
    assert (await broker.ack("q", node="w", lease_id=second.lease_id)).count == 1
    await broker.close()


async def test_an_expiry_needs_no_caller_to_count(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", max_count=3, lease_ms=1000)
    clock.advance(1001)
    assert numbers(broker)["ready"] == 3
    assert broker.metrics.expired == 3
