"""Return, begin and claims that isolate over HTTP: what each request answers, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.log import FileLog
from tenure.testing import ManualClock, SimDisk
from tests.http.conftest import Reply, Site
from tests.http.test_queues import Q, make
from tests.http.test_work import listen
from tests.kit.brokers import numbers, turn

LOST_GRACE_MS = 5_000


async def take(site: Site, **options: Any) -> Reply:
    return await site.post(f"{Q}/claim", {"node": "w", "isolate": True, **options})


async def lose(site: Site, *, node: str = "w", **options: Any) -> None:
    """Let the worker of every job that is ready fall silent."""
    await take(site, node=node, max=1_000, lease_ms=1_000, **options)
    site.clock.advance(1_001)


async def begin(site: Site, claim: Reply, seq: int, *, node: str = "w") -> Reply:
    return await site.post(f"{Q}/begin", {"node": node, "seq": seq, "lease_id": claim["lease_id"]})


@pytest.fixture
async def old(clock: ManualClock) -> AsyncIterator[Site]:
    """A site on a log that an older version wrote, whose upgrade is not finalized."""
    disk = SimDisk(1)
    await (await Broker.open(FileLog.open(disk, known=()), clock=clock)).close()
    async with await Broker.open(FileLog.open(disk), clock=clock) as broker:
        yield Site(App(Context(broker), ROUTES), broker, clock)


# Claims that isolate


async def test_a_lease_that_isolates_and_runs_out_is_no_try(site: Site) -> None:
    await make(site, 1, max_deliveries=2)
    await lose(site)
    job = await site.get(f"{Q}/jobs/1")
    assert (job["deliveries"], job["tries"], job["lost"], job["state"]) == (1, 0, 1, "ready")
    assert [(each["node"], each["end"]) for each in job["history"]] == [("w", "lost")]


async def test_a_suspect_says_how_often_it_was_lost_and_how_often_it_was_tried(site: Site) -> None:
    await make(site, 1, 2)
    await lose(site)
    await site.post(Q, {"records": [{"data": 3}]})
    fresh = await take(site, max=9)
    assert ([job["$seq"] for job in fresh["claimed"]], fresh["suspects"]) == ([3], 2)
    assert not {"tries", "lost"} & fresh["claimed"][0].keys()
    again = await take(site, max=9, suspects=True)
    shown = [(job["$seq"], job["deliveries"], job["tries"], job["lost"]) for job in again["claimed"]]
    assert shown == [(1, 2, 1, 1), (2, 2, 1, 1)]
    assert "suspects" not in again, "none waits any more"


async def test_suspects_are_counted_and_listed_apart(site: Site) -> None:
    await make(site, 1, 2)
    await lose(site)
    await site.post(Q, {"records": [{"data": 3}]})
    queue = (await site.get(Q))["queue"]
    assert (queue["ready"], queue["suspects"]) == (3, 2)
    listed = await site.get(f"{Q}/jobs?state=suspect")
    assert [(job["$seq"], job["lost"]) for job in listed["jobs"]] == [(1, 1), (2, 1)]
    assert [job["$seq"] for job in (await site.get(f"{Q}/jobs?state=ready"))["jobs"]] == [1, 2, 3]


async def test_a_claim_that_does_not_isolate_keeps_its_contract(site: Site) -> None:
    await make(site, 1)
    await site.post(f"{Q}/claim", {"node": "w", "lease_ms": 1_000})
    site.clock.advance(1_001)
    job = await site.get(f"{Q}/jobs/1")
    assert ("tries" in job, "lost" in job, job["history"][0]["end"]) == (False, False, "expired")


@pytest.mark.parametrize(
    "wrong",
    [
        {"isolate": False, "suspects": True},
        {"isolate": 1},
        {"isolate": "true"},
        {"isolate": None},
        {"suspects": 1},
        {"group": ""},
        {"group": "g" * 1_000},
        {"group": 7},
        {"group": ["g"]},
    ],
    ids=str,
)
async def test_a_claim_cannot_ask_for_isolation_in_another_way(site: Site, wrong: dict[str, Any]) -> None:
    await make(site, 1)
    before = site.state()
    refused = await take(site, **wrong)
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert site.state() == before


async def test_with_the_feature_off_every_delivery_is_a_try(old: Site) -> None:
    await make(old, 1)
    await take(old, lease_ms=1_000)
    old.clock.advance(1_001)
    job = await old.get(f"{Q}/jobs/1")
    assert ("tries" in job, "lost" in job, job["history"][0]["end"]) == (False, False, "expired")
    claim = await take(old)
    assert "suspects" not in claim
    for reply in (
        await begin(old, claim, 1),
        await old.post(f"{Q}/return", {"node": "w", "seqs": [1]}),
    ):
        assert (reply.status, reply.code) == (409, "feature_off")
        assert reply["error"]["detail"]["feature"] == "returns"


# Streams


async def test_a_cut_stream_that_isolates_keeps_its_jobs_for_the_grace(site: Site) -> None:
    await make(site, 1)
    stream = await listen(site, "node=w&isolate=true&group=g")
    await stream.next()
    await stream.hang_up()
    assert numbers(site.broker, "transcode")["in_flight"] == 1
    site.clock.advance(LOST_GRACE_MS)
    await turn()
    job = await site.get(f"{Q}/jobs/1")
    assert (job["state"], job["tries"], job["history"][0]["end"]) == ("ready", 0, "lost")


async def test_an_extend_within_the_grace_keeps_the_jobs_to_their_deadline(site: Site) -> None:
    await make(site, 1)
    stream = await listen(site, "node=w&isolate=true")
    await stream.next()
    await stream.hang_up()
    await site.post(f"{Q}/extend", {"node": "w", "seqs": [1], "lease_ms": 60_000})
    site.clock.advance(2 * LOST_GRACE_MS)
    await turn()
    assert numbers(site.broker, "transcode")["in_flight"] == 1


async def test_a_stream_is_told_of_suspects_while_nobody_takes_them(site: Site) -> None:
    await make(site, 1, 2)
    stream = await listen(site, "node=v&isolate=true")
    await stream.next()
    await lose(site)
    told = await stream.next()
    assert (told["event"], told["data"]) == ("suspects", {"topic": "transcode", "suspects": 1})
    await stream.hang_up()


async def test_a_stream_for_suspects_gets_those_and_nothing_else(site: Site) -> None:
    await make(site, 1)
    await lose(site)
    await site.post(Q, {"records": [{"data": 2}]})
    stream = await listen(site, "node=s&max=9&isolate=true&suspects=true")
    job = await stream.next()
    assert (job["id"], job["data"]["lost"], job["data"]["tries"]) == ("1", 1, 1)
    await turn()
    assert stream.waiting
    await stream.hang_up()


@pytest.mark.parametrize("query", ["isolate=yes", "isolate=true&isolate=true", "suspects=true", "isolate=true&group="])
async def test_a_stream_cannot_ask_for_isolation_in_another_way(site: Site, query: str) -> None:
    await make(site, 1)
    reply = await site.get(f"{Q}/work?node=w&{query}", headers={"accept": "text/event-stream"})
    assert (reply.status, reply.code) == (400, "invalid_request")


# Return


async def test_a_returned_job_is_ready_again_and_was_not_tried(site: Site) -> None:
    await make(site, 1, 2, 3)
    await take(site, max=3)
    back = await site.post(f"{Q}/return", {"node": "w", "seqs": [1, 2, 9], "reason": "a drain"})
    assert (back.status, back["returned"], back["skipped"], back["ready"], back["in_flight"]) == (200, 2, [9], 2, 1)
    job = await site.get(f"{Q}/jobs/1")
    assert (job["deliveries"], job["tries"], "lost" in job) == (1, 0, False)
    assert (job["history"][0]["end"], job["history"][0]["reason"]) == ("returned", "a drain")


async def test_a_returned_job_may_be_delayed(site: Site) -> None:
    await make(site, 1)
    claim = await take(site)
    back = await site.post(f"{Q}/return", {"node": "w", "lease_id": claim["lease_id"], "delay_ms": 60_000})
    assert (back["returned"], numbers(site.broker, "transcode")["delayed"]) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"seqs": [-1]},
        {"seqs": ["1"]},
        {"seqs": [2**64]},
        {"seqs": [1], "delay_ms": -1},
        {"seqs": [1], "delay_ms": "1s"},
        {"seqs": [1], "reason": "r" * 2_000},
        {"seqs": [1], "node": ""},
        {"seqs": [1], "node": None},
        {"seqs": [1], "lease_ids": []},
        {"seqs": list(range(1, 10_001))},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
async def test_a_wrong_return_is_refused_and_changes_nothing(site: Site, wrong: dict[str, Any]) -> None:
    await make(site, 1)
    await take(site)
    before = site.state()
    refused = await site.post(f"{Q}/return", {"node": "w", **wrong})
    assert refused.status == 400, refused.raw
    assert site.state() == before


# Begin


async def test_a_begun_job_that_is_lost_has_one_try_more(site: Site) -> None:
    await make(site, 1)
    await lose(site)
    claim = await take(site, suspects=True, lease_ms=1_000)
    begun = await begin(site, claim, 1)
    assert (begun.status, begun["topic"], begun["seq"]) == (200, "transcode", 1)
    assert (await begin(site, claim, 1)).status == 200, "a repeat changes nothing"
    site.clock.advance(1_001)
    job = await site.get(f"{Q}/jobs/1")
    assert (job["deliveries"], job["tries"], job["lost"], job["state"]) == (2, 1, 2, "delayed")


async def test_a_group_has_one_job_begun_at_a_time_over_all_its_queues(site: Site) -> None:
    await make(site, 1)
    await make(site, 2, name="mail")
    await lose(site)
    await site.post("/v0/topics/mail/claim", {"node": "w", "isolate": True, "lease_ms": 1_000})
    site.clock.advance(1_001)
    first = await take(site, suspects=True, group="g")
    second = await site.post("/v0/topics/mail/claim", {"node": "v", "isolate": True, "suspects": True, "group": "g"})
    assert (await begin(site, first, 1)).status == 200
    body = {"node": "v", "seq": 1, "lease_id": second["lease_id"]}
    refused = await site.post("/v0/topics/mail/begin", body)
    assert (refused.status, refused.code) == (409, "busy")
    await site.post(f"{Q}/ack", {"node": "w", "seqs": [1]})
    assert (await site.post("/v0/topics/mail/begin", body)).status == 200


async def test_a_job_that_is_not_held_cannot_be_begun(site: Site) -> None:
    await make(site, 1, 2)
    claim = await take(site)
    unknown = [
        await site.post(f"{Q}/begin", {"node": "w", "seq": 1, "lease_id": lease_id})
        for lease_id in ("", "x", "lease_1", "lease_" + "f" * 100)
    ]
    others = await begin(site, claim, 2), await begin(site, claim, 1, node="v"), await begin(site, claim, 99)
    for reply in (*unknown, *others):
        assert (reply.status, reply.code) == (412, "precondition_failed")


async def test_a_job_that_was_claimed_without_isolation_needs_no_begin(site: Site) -> None:
    await make(site, 1)
    claim = await site.post(f"{Q}/claim", {"node": "w"})
    refused = await begin(site, claim, 1)
    assert (refused.status, refused.code) == (409, "not_isolated")


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": None},
        {"seq": -1},
        {"seq": "1"},
        {"seq": [1]},
        {"seq": 2**64},
        {"lease_id": None},
        {"lease_id": 7},
        {"node": ""},
        {"node": None},
    ],
    ids=str,
)
async def test_a_wrong_begin_is_refused_and_changes_nothing(site: Site, wrong: dict[str, Any]) -> None:
    await make(site, 1)
    claim = await take(site)
    before = site.state()
    body = {"node": "w", "seq": 1, "lease_id": claim["lease_id"], **wrong}
    refused = await site.post(f"{Q}/begin", body)
    assert (refused.status, refused.code) == (400, "invalid_request"), refused.raw
    assert site.state() == before


async def test_return_and_begin_need_a_queue(site: Site) -> None:
    await site.put("/v0/topics/log")
    for verb, body in (("return", {"seqs": [1]}), ("begin", {"seq": 1, "lease_id": "lease_1"})):
        missing = await site.post(f"/v0/topics/nowhere/{verb}", {"node": "w", **body})
        assert (missing.status, missing.code) == (404, "topic_not_found")
        log = await site.post(f"/v0/topics/log/{verb}", {"node": "w", **body})
        assert (log.status, log.code) == (409, "not_a_queue")
