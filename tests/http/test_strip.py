"""What the console stands on: both ends of a queue with the place of its events, meters, what a key may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.http.conftest import Site
from tests.http.streaming import Listener, gatekeeper
from tests.http.test_work import SSE


async def fill(site: Site, count: int) -> None:
    await site.put("/v0/topics/q", {"type": "queue", "lease_ms": 1_000})
    await site.post("/v0/topics/q", {"records": [{"data": n} for n in range(count)]})


async def rows_after(site: Site, event_id: str, count: int) -> list[dict[str, Any]]:
    reply = await site.get("/v0/topics/q/events", headers=SSE | {"last-event-id": event_id})
    stream = Listener(reply.response)
    try:
        return [event["data"] for event in await stream.events(count)]
    finally:
        await stream.hang_up()


def seqs(items: list[dict[str, Any]]) -> list[int]:
    return [item["$seq"] for item in items]


async def test_both_ends_of_a_long_queue_are_shown_and_the_rest_is_counted(site: Site) -> None:
    await fill(site, 2_000)
    found = await site.get("/v0/topics/q/strip?head=3&tail=2")
    assert (seqs(found["head"]), seqs(found["tail"]), found["count"]) == ([1, 2, 3], [1_999, 2_000], 2_000)
    assert found["queue"]["ready"] == 2_000
    assert found["next_at"] is None


async def test_a_short_queue_is_all_head(site: Site) -> None:
    await fill(site, 3)
    found = await site.get("/v0/topics/q/strip?head=10&tail=10")
    assert (seqs(found["head"]), found["tail"]) == ([1, 2, 3], [])
    assert (await site.get("/v0/topics/q/strip?head=2&tail=10"))["tail"][0]["$seq"] == 3


async def test_parked_jobs_are_shown_apart_and_the_next_one_wherever_it_lies(site: Site) -> None:
    await site.put("/v0/topics/q", {"type": "queue", "dlq_strategy": "block"})
    await site.post("/v0/topics/q", {"records": [{"data": n} for n in range(60)]})
    await site.post("/v0/topics/q/claim", {"node": "w", "max": 50})
    await site.post("/v0/topics/q/nack", {"node": "w", "seqs": list(range(1, 41)), "dead": True, "reason": "broken"})
    found = await site.get("/v0/topics/q/strip?head=3&tail=2")
    assert (seqs(found["head"]), seqs(found["tail"])) == ([41, 42, 43], [59, 60])
    assert (found["next"]["$seq"], found["next"]["state"]) == (51, "ready")
    assert seqs(found["parked"]) == list(range(1, 25))
    assert (found["parked"][0]["reason"], found["queue"]["parked"]) == ("broken", 40)
    await site.post("/v0/topics/q/claim", {"node": "w", "max": 10})
    assert (await site.get("/v0/topics/q/strip"))["next"] is None


async def test_the_ends_of_a_queue_cost_the_same_behind_any_number_of_parked_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.core.decide.strip._SEQS_MAX", 30)
    await site.put("/v0/topics/q", {"type": "queue", "dlq_strategy": "block"})
    await site.post("/v0/topics/q", {"records": [{"data": n} for n in range(600)]})
    await site.post("/v0/topics/q/claim", {"node": "w", "max": 40})
    await site.post("/v0/topics/q/nack", {"node": "w", "seqs": list(range(1, 41)), "dead": True})
    found = await site.get("/v0/topics/q/strip?head=3&tail=2")
    assert (seqs(found["head"]), found["next"]["$seq"], seqs(found["tail"])) == ([], 41, [599, 600])


async def test_dead_stretches_are_stepped_over(site: Site) -> None:
    await fill(site, 5_000)
    await site.post("/v0/topics/q/delete", {"seqs": list(range(2, 4_999))})
    found = await site.get("/v0/topics/q/strip?head=2&tail=5")
    assert (seqs(found["head"]), seqs(found["tail"])) == ([1, 4_999], [5_000])


async def test_jobs_in_every_state_are_told_apart(site: Site) -> None:
    await fill(site, 2)
    await site.post("/v0/topics/q", {"records": [{"data": 0, "delay_ms": 5_000}]})
    claim = await site.post("/v0/topics/q/claim", {"node": "w"})
    found = await site.get("/v0/topics/q/strip")
    held, ready, delayed = found["head"]
    assert (held["state"], held["node"], held["lease_id"]) == ("in_flight", "w", claim["lease_id"])
    assert held["deadline"] - held["since"] == 1_000 == found["next_at"] - 1 - found["now"]
    assert (ready["state"], delayed["state"]) == ("ready", "delayed")
    assert delayed["deliver_at"] == found["now"] + 5_000
    assert found["leases_count"] == 1
    assert found["leases"][0] | {"since": 0, "deadline": 0} == {
        "lease_id": claim["lease_id"],
        "node": "w",
        "since": 0,
        "deadline": 0,
        "held": 1,
        "seqs": [1],
    }


async def test_following_from_its_event_id_misses_nothing_and_repeats_nothing(site: Site) -> None:
    await fill(site, 3)
    first = await site.get("/v0/topics/q/strip")
    await site.post("/v0/topics/q/claim", {"node": "a"})
    second = await site.get("/v0/topics/q/strip")  # its own row is still on the way to the hub
    await site.post("/v0/topics/q/claim", {"node": "b"})
    for snapshot, expected in ((first, ["a", "b"]), (second, ["b"])):
        rows = await rows_after(site, snapshot["event_id"], len(expected))
        assert [row["node"] for row in rows] == expected


async def test_a_look_makes_the_expiry_known(site: Site) -> None:
    await fill(site, 1)
    await site.post("/v0/topics/q/claim", {"node": "w"})
    before = await site.get("/v0/topics/q/strip")
    site.clock.advance(1_001)
    after = await site.get("/v0/topics/q/strip")
    assert [item["state"] for item in after["head"]] == ["ready"]
    assert after["event_id"] != before["event_id"]


async def test_rows_say_when_delayed_jobs_come_back(site: Site) -> None:
    await fill(site, 1)
    start = await site.get("/v0/topics/q/strip")
    await site.post("/v0/topics/q/claim", {"node": "w"})
    await site.post("/v0/topics/q/nack", {"node": "w", "seqs": [1], "delay_ms": 70})
    await site.post("/v0/topics/q", {"records": [{"data": 0, "delay_ms": 90}, {"data": 1}]})
    rows = await rows_after(site, start["event_id"], 3)
    assert [row.get("deliver_at", 0) - start["now"] for row in rows[1:]] == [70, 90]


async def test_meters_measure_waiting_work_and_deliveries(site: Site) -> None:
    await fill(site, 1_000)
    site.clock.advance(40)
    claim = await site.post("/v0/topics/q/claim", {"node": "w", "max": 1_000})
    site.clock.advance(300)
    await site.post("/v0/topics/q/ack", {"node": "w", "lease_id": claim["lease_id"]})
    meters = (await site.get("/v0/topics/q/meters")).json
    assert (meters["claimed"], meters["acked"], meters["worst"]) == (1_000, 1_000, None)
    assert (meters["in_queue_ms"]["count"], meters["in_queue_ms"]["sum"]) == (1_000, 40_000)
    assert 200 < meters["processing_ms"]["p99"] <= 500
    assert meters["deliveries"]["counts"][0] == 1_000


async def test_the_job_that_keeps_coming_back_is_named_until_it_is_gone(site: Site) -> None:
    await fill(site, 2)
    for _ in range(3):
        await site.post("/v0/topics/q/claim", {"node": "w"})
        await site.post("/v0/topics/q/nack", {"node": "w", "seqs": [1]})
    await site.post("/v0/topics/q/claim", {"node": "w"})
    listed = await site.get("/v0/topics?meters=true")
    assert listed["topics"][0]["meters"]["worst"] == {"seq": 1, "deliveries": 4, "tries": 4}
    await site.post("/v0/topics/q/ack", {"node": "w", "seqs": [1]})
    assert (await site.get("/v0/topics/q/meters"))["worst"] is None
    assert "meters" not in (await site.get("/v0/topics"))["topics"][0]


async def test_a_key_is_told_what_it_may_do(make_site: Callable[..., Site]) -> None:
    site = make_site(admit=gatekeeper("one:read+write:a.|b.,all").admit)
    narrow = await site.get("/v0/key", headers={"authorization": "Bearer one"})
    assert (narrow["keys"], narrow["scopes"], narrow["prefixes"]) == (True, ["read", "write"], ["a.", "b."])
    wide = await site.get("/v0/key", headers={"authorization": "Bearer all"})
    assert (len(wide["scopes"]), wide["prefixes"]) == (4, None)
    assert (await make_site().get("/v0/key"))["keys"] is False
