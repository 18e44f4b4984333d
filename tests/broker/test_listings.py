"""Looking at a queue (contract, section 9): jobs by state, one job, live leases. Looking changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Broker, Invalid, NotFound, Record, Settings
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.broker.support import GatedLog, make_queue, reopen, snapshot, start


def listed(broker: Broker, state: str) -> list[int]:
    return [job["seq"] for job in broker.jobs("q", state=state).items]


async def test_every_job_is_listed_in_its_state_and_in_no_other(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=6, dlq_strategy="block")
    await broker.produce("q", [Record(data=b"7", delay_ms=9000)])
    await broker.claim("q", node="w", max_count=5)
    await broker.nack("q", node="w", seqs=[2])
    await broker.nack("q", node="w", seqs=[3], delay_ms=500)
    await broker.nack("q", node="w", seqs=[4], dead=True)
    assert listed(broker, "ready") == [2, 6]
    assert listed(broker, "in_flight") == [1, 5]
    assert listed(broker, "delayed") == [3, 7]
    assert listed(broker, "parked") == [4]
    clock.advance(500)
    assert (listed(broker, "ready"), listed(broker, "delayed")) == ([2, 3, 6], [7])
    clock.advance(40_000)
    assert (listed(broker, "ready"), listed(broker, "in_flight")) == ([1, 2, 3, 5, 6, 7], [])


async def test_a_job_is_listed_with_what_is_known_of_it(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=4, dlq_strategy="block")
    at = clock.wall_ms() + 800
    await broker.produce("q", [Record(data=b"5", deliver_at=at)])
    claim = await broker.claim("q", node="w", max_count=3, lease_ms=5000)
    await broker.nack("q", node="w", seqs=[2], delay_ms=700, reason="busy")
    await broker.nack("q", node="w", seqs=[3], dead=True, reason="poison")

    def only(state: str) -> list[dict[str, Any]]:
        return broker.jobs("q", state=state).items

    assert only("ready") == [{"seq": 4, "state": "ready", "deliveries": 0}]
    assert only("in_flight") == [
        {
            "seq": 1,
            "state": "in_flight",
            "deliveries": 1,
            "node": "w",
            "lease_id": claim.lease_id,
            "since": claim.deadline - 5000,
            "deadline": claim.deadline,
        }
    ]
    assert only("delayed") == [
        {"seq": 2, "state": "delayed", "deliveries": 1, "deliver_at": clock.wall_ms() + 700, "reason": "busy"},
        {"seq": 5, "state": "delayed", "deliveries": 0, "deliver_at": at},
    ]
    assert only("parked") == [{"seq": 3, "state": "parked", "deliveries": 1, "reason": "poison"}]


@pytest.mark.parametrize("state", ["ready", "in_flight", "delayed", "parked"])
async def test_pages_of_jobs_follow_each_other(broker: Broker, state: str) -> None:
    await make_queue(broker, jobs=7, dlq_strategy="block")
    if state != "ready":
        await broker.claim("q", node="w", max_count=7)
    if state == "delayed":
        await broker.nack("q", node="w", seqs=list(range(1, 8)), delay_ms=1000)
    if state == "parked":
        await broker.nack("q", node="w", seqs=list(range(1, 8)), dead=True)
    found, cursor = [], None
    for expected in (3, 3, 1):
        page = broker.jobs("q", state=state, limit=3, cursor=cursor)
        assert len(page.items) == expected
        found += [job["seq"] for job in page.items]
        cursor = page.next_cursor
    assert (found, cursor) == ([1, 2, 3, 4, 5, 6, 7], None)


async def test_ready_jobs_on_both_sides_of_the_fresh_cursor_are_paged_in_order(broker: Broker) -> None:
    await make_queue(broker, jobs=700)
    await broker.claim("q", node="w", max_count=300)
    await broker.nack("q", node="w", seqs=[5, 250])
    await broker.delete_records("q", seqs=[301])
    found, cursor = list[int](), None
    while True:
        page = broker.jobs("q", limit=100, cursor=cursor)
        found += [job["seq"] for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [5, 250, *range(302, 701)]


async def test_a_page_is_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(page_max=2)) as broker:
        await make_queue(broker, jobs=3)
        assert len(broker.jobs("q", limit=10**9).items) == 2
        assert len(broker.jobs("q", limit=0).items) == 1


async def test_an_unknown_state_is_refused(broker: Broker) -> None:
    await make_queue(broker)
    with pytest.raises(Invalid):
        broker.jobs("q", state="acked")


async def test_looking_changes_nothing_but_lets_time_pass(broker: Broker) -> None:
    await make_queue(broker, jobs=5)
    await broker.claim("q", node="w", max_count=3)
    before = snapshot(broker)
    broker.topics()
    broker.topic("q")
    broker.leases("q")
    broker.job("q", 1)
    for state in ("ready", "in_flight", "delayed", "parked"):
        broker.jobs("q", state=state)
    await broker.diff("q")
    assert snapshot(broker) == before


# One job


async def test_a_job_comes_with_its_record_its_state_and_its_deliveries(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", tag="t")])
    begin = clock.wall_ms()
    first = await broker.claim("q", node="a", lease_ms=1000)
    clock.advance(5000)
    second = await broker.claim("q", node="b")
    clock.advance(10)
    await broker.nack("q", node="b", seqs=[1], reason="no")
    record, about = broker.job("q", 1)
    assert (record.data, record.tag) == (b"1", "t")
    assert (about["seq"], about["state"], about["deliveries"], about["reason"]) == (1, "ready", 2, "no")
    assert about["history"] == [
        {
            "lease_id": first.lease_id,
            "node": "a",
            "from": begin,
            "to": begin + 1000,
            "end": "expired",
            "reason": None,
        },
        {
            "lease_id": second.lease_id,
            "node": "b",
            "from": begin + 5000,
            "to": begin + 5010,
            "end": "nack",
            "reason": "no",
        },
    ]


async def test_the_last_32_deliveries_of_a_job_are_kept(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    for number in range(40):
        await broker.claim("q", node="w")
        await broker.nack("q", node="w", seqs=[1], reason=str(number))
    history = broker.job("q", 1)[1]["history"]
    assert [delivery["reason"] for delivery in history] == [str(number) for number in range(8, 40)]


async def test_a_story_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], reason="no")
    before = broker.job("q", 1)
    async with await reopen(broker, log, clock) as broker:
        assert broker.job("q", 1) == before


@pytest.mark.parametrize("seq", [0, 1, 4, 2**64, pytest.param(10**5000, id="huge")])
async def test_a_job_that_is_done_or_never_was_is_not_found(broker: Broker, seq: int) -> None:
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", auto_ack=True)
    with pytest.raises(NotFound):
        broker.job("q", seq)


async def test_a_job_that_is_not_synced_yet_is_not_there_yet(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, durability="fsync")
        log.gate.clear()
        producing = await start(broker.produce("q", [b"1"]))
        assert broker.jobs("q").items == []
        with pytest.raises(NotFound):
            broker.job("q", 1)
        log.gate.set()
        await producing
        assert broker.job("q", 1)[0].data == b"1"


# Leases


async def test_live_leases_are_listed_with_what_they_hold(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=5)
    begin = clock.wall_ms()
    first = await broker.claim("q", node="a", max_count=3, lease_ms=1000)
    clock.advance(100)
    second = await broker.claim("q", node="b", lease_ms=5000)
    await broker.ack("q", node="a", seqs=[2])
    assert broker.leases("q").items == [
        {"lease_id": first.lease_id, "node": "a", "since": begin, "deadline": begin + 1000, "seqs": [1, 3]},
        {"lease_id": second.lease_id, "node": "b", "since": begin + 100, "deadline": begin + 5100, "seqs": [4]},
    ]
    page = broker.leases("q", limit=1)
    assert [lease["node"] for lease in broker.leases("q", cursor=page.next_cursor).items] == ["b"]
    clock.advance(1000)
    assert [lease["node"] for lease in broker.leases("q").items] == ["b"]
    await broker.nack("q", node="b", lease_id=second.lease_id)
    assert broker.leases("q").items == []


async def test_a_lease_whose_jobs_were_extended_apart_is_shown_with_their_earliest_deadline(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=4)
    begin = clock.wall_ms()
    claim = await broker.claim("q", node="a", max_count=4, lease_ms=1000, claim_id="c")
    await broker.extend("q", node="a", seqs=[1], lease_ms=9000)
    await broker.extend("q", node="a", seqs=[3], lease_ms=5000)
    for held, deadline in (([1, 2, 3, 4], begin + 1000), ([1, 3], begin + 5000)):
        (listed,) = broker.leases("q").items
        (drawn,) = broker.strip("q")["leases"]
        again = await broker.claim("q", node="a", claim_id="c")
        assert (listed["deadline"], listed["seqs"]) == (deadline, held)
        assert (drawn["deadline"], drawn["seqs"], drawn["held"]) == (deadline, held, len(held))
        assert (again.lease, again.deadline, again.seqs) == (claim.lease, deadline, held)
        await broker.ack("q", node="a", seqs=[2, 4])


async def test_listing_names_does_not_hold_back_the_time_for_the_rest_of_the_turn(broker: Broker, clock: ManualClock):
    """A list takes no time of its own: what follows in the same turn must not see that of the last command."""
    await broker.put_topic("q", {"type": "queue"})
    await broker.produce("q", [b"1"])
    await broker.synced()
    clock.advance(5_000)
    broker.topics()
    counters = broker.topic("q", touch=False).queue
    assert counters is not None
    assert counters["oldest_ready_ms"] == 5_000
