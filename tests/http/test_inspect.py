"""Looking at a queue over HTTP: jobs, one job, leases."""

from __future__ import annotations

import pytest

from tests.http.conftest import Site
from tests.http.test_queues import Q, make, take


async def test_jobs_are_listed_by_state_with_who_holds_them(site: Site) -> None:
    await make(site, 1, 2, 3, {"data": 4, "delay_ms": 5000})
    lease = (await take(site))["lease_id"]
    await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "reason": "busy"})
    claim = await take(site)
    assert claim["lease_id"] != lease
    ready = await site.get(f"{Q}/jobs")
    assert (ready["topic"], ready["state"]) == ("transcode", "ready")
    assert ready["jobs"] == [
        {"$seq": 2, "state": "ready", "deliveries": 0},
        {"$seq": 3, "state": "ready", "deliveries": 0},
    ]
    assert "next_cursor" not in ready
    (held,) = (await site.get(f"{Q}/jobs?state=in_flight"))["jobs"]
    assert held == {
        "$seq": 1,
        "state": "in_flight",
        "deliveries": 2,
        "node": "w",
        "lease_id": claim["lease_id"],
        "since": site.clock.wall_ms(),
        "deadline": claim["claimed"][0]["deadline"],
        "reason": "busy",
    }
    (delayed,) = (await site.get(f"{Q}/jobs?state=delayed"))["jobs"]
    assert delayed["deliver_at"] == site.clock.wall_ms() + 5000
    assert (await site.get(f"{Q}/jobs?state=parked"))["jobs"] == []


async def test_pages_go_on_where_they_ended(site: Site) -> None:
    await make(site, *range(5))
    seqs, target = [], f"{Q}/jobs?limit=2"
    while True:
        page = await site.get(target)
        seqs += [job["$seq"] for job in page["jobs"]]
        if "next_cursor" not in page:
            break
        target = f"{Q}/jobs?limit=2&cursor={page['next_cursor']}"
    assert seqs == [1, 2, 3, 4, 5]


async def test_one_job_shows_its_record_and_its_deliveries(site: Site) -> None:
    await make(site, {"data": {"a": 1}, "tag": "t", "node": "maker", "meta": {"m": 1}})
    lease = (await take(site))["lease_id"]
    site.clock.advance(10)
    await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "reason": "busy"})
    job = await site.get(f"{Q}/jobs/1")
    now = site.clock.wall_ms()
    assert {name: job[name] for name in ("topic", "$seq", "$ts", "$tag", "$node", "data", "meta", "state")} == {
        "topic": "transcode",
        "$seq": 1,
        "$ts": now - 10,
        "$tag": "t",
        "$node": "maker",
        "data": {"a": 1},
        "meta": {"m": 1},
        "state": "ready",
    }
    assert (job["deliveries"], job["reason"]) == (1, "busy")
    (delivery,) = job["history"]
    assert delivery == {
        "lease_id": lease,
        "node": "w",
        "from": now - 10,
        "to": now,
        "end": delivery["end"],
        "reason": "busy",
    }


async def test_leases_tell_who_holds_what(site: Site) -> None:
    await make(site, 1, 2, 3)
    claim = await take(site, max=2)
    other = await take(site, node="v")
    leases = (await site.get(f"{Q}/leases"))["leases"]
    assert leases == [
        {
            "lease_id": claim["lease_id"],
            "node": "w",
            "since": site.clock.wall_ms(),
            "deadline": claim["claimed"][0]["deadline"],
            "seqs": [1, 2],
        },
        {**leases[1], "lease_id": other["lease_id"], "node": "v", "seqs": [3]},
    ]
    page = await site.get(f"{Q}/leases?limit=1")
    assert (await site.get(f"{Q}/leases?cursor={page['next_cursor']}"))["leases"] == leases[1:]


@pytest.mark.parametrize("what", ["jobs", "jobs/1", "leases"])
async def test_a_log_and_an_absent_topic_are_refused(site: Site, what: str) -> None:
    await site.put("/v0/topics/log", {})
    assert (await site.get(f"/v0/topics/log/{what}")).code == "not_a_queue"
    assert (await site.get(f"/v0/topics/absent/{what}")).code == "topic_not_found"


@pytest.mark.parametrize(
    "target",
    ["jobs?state=lost", "jobs?limit=x", "jobs?cursor=%21", "jobs/x", "jobs/-1", "jobs/" + "9" * 30, "leases?cursor=x"],
)
async def test_nonsense_is_refused(site: Site, target: str) -> None:
    await make(site, 1)
    reply = await site.get(f"{Q}/{target}")
    assert (reply.status, reply.code) == (400, "invalid_request")


@pytest.mark.parametrize("seq", ["2", str(2**64 - 1), "99999999999999999999"])
async def test_a_job_that_is_not_there_is_not_found(site: Site, seq: str) -> None:
    await make(site, 1)
    reply = await site.get(f"{Q}/jobs/{seq}")
    assert (reply.status, reply.code) == (404, "not_found")


async def test_looking_changes_nothing(site: Site) -> None:
    await make(site, 1, 2)
    await take(site)
    before = site.state()
    for target in ("jobs", "jobs?state=in_flight", "jobs/1", "leases"):
        await site.get(f"{Q}/{target}")
    assert site.state() == before
