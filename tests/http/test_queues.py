"""Claim, ack, nack, extend and redrive over HTTP: what each request answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import Call
from tenure.http.wire.message import Request, Response
from tenure.http.wire.respond import Pending, carry_out
from tests.http.conftest import Reply, Site
from tests.http.streaming import gatekeeper
from tests.kit.brokers import numbers, turn

Q = "/v0/topics/transcode"


async def make(site: Site, *records: Any, name: str = "transcode", **config: Any) -> None:
    """A queue, with a job for each record."""
    await site.put(f"/v0/topics/{name}", {"type": "queue", **config})
    if records:
        await site.post(f"/v0/topics/{name}", {"records": [r if isinstance(r, dict) else {"data": r} for r in records]})


async def take(site: Site, **options: Any) -> Reply:
    return await site.post(f"{Q}/claim", {"node": "w", **options})


async def test_the_path_names_the_topic_whatever_the_body_says(site: Site) -> None:
    """A key that reaches one queue could settle the jobs of another else."""
    await make(site, 1)
    await make(site, 2, name="other")
    claim = await site.post(f"{Q}/claim", {"node": "w", "$topic": "other", "topic": "other"})
    assert (claim["topic"], claim["claimed"][0]["data"]) == ("transcode", 1)
    acked = await site.post(f"{Q}/ack", {"node": "w", "seqs": [1], "$topic": "other"})
    assert (acked["topic"], acked["acked"]) == ("transcode", 1)
    deleted = await site.post(f"{Q}/delete", {"before_seq": 9, "$topic": "other"})
    assert (deleted["topic"], deleted["deleted"]) == ("transcode", 0)


# Claim


async def test_a_claim_answers_as_the_seed_shows(site: Site) -> None:
    await make(site, {"data": {"src": "clip"}, "tag": "clip-8800", "meta": {"trace": "z9"}}, {"data": 2}, 3)
    claim = await site.post(f"{Q}/claim", {"node": "api-fra-1", "max": 2, "lease_ms": 30_000})
    now = site.clock.wall_ms()
    lease = claim["lease_id"]
    assert claim.status == 200
    assert list(claim.json) == ["topic", "claimed", "count", "ready", "lease_id", "performance"]
    assert claim["claimed"] == [
        {
            "$seq": 1,
            "lease_id": lease,
            "deadline": now + 30_000,
            "$ts": now,
            "$tag": "clip-8800",
            "deliveries": 1,
            "data": {"src": "clip"},
            "meta": {"trace": "z9"},
        },
        {"$seq": 2, "lease_id": lease, "deadline": now + 30_000, "$ts": now, "deliveries": 1, "data": 2},
    ]
    assert (claim["topic"], claim["count"], claim["ready"]) == ("transcode", 2, 1)
    assert claim["performance"]["throttle_wait_ms"] == 0.0
    assert lease.startswith("lease_")
    int(lease.removeprefix("lease_"), 16)


async def test_data_and_meta_come_back_byte_for_byte(site: Site) -> None:
    await make(site)
    odd = b'{"b":1e400, "a":[1.0,\n 12345678901234567890123], "a":"\\ud800","%d":"%"}'
    await site.post(Q, b'{"records":[{"data":' + odd + b',"meta":{ "k" : 1.50 }},{"data":' + odd + b"}]}")
    claim = await take(site, max=2)
    assert claim.raw.count(b'"data":' + odd) == 2
    assert b'"meta":{ "k" : 1.50 }' in claim.raw


async def test_an_empty_claim_is_an_answer(site: Site) -> None:
    await make(site)
    claim = await take(site, max=5)
    assert (claim.status, claim["claimed"], claim["count"], claim["lease_id"]) == (200, [], 0, None)


@pytest.mark.parametrize(("asked", "got"), [({}, 1), ({"max": 0}, 1), ({"max": 7}, 7), ({"max": 5000}, 1000)])
async def test_max_is_clamped(site: Site, asked: dict[str, int], got: int) -> None:
    await make(site, *range(1001))
    assert (await take(site, **asked))["count"] == got


@pytest.mark.parametrize(("asked", "got"), [(None, 9000), (0, 100), (100, 100), (10**12, 86_400_000)])
async def test_lease_ms_is_the_topics_unless_given_and_is_clamped(site: Site, asked: int | None, got: int) -> None:
    await make(site, 1, lease_ms=9000)
    claim = await take(site, **({} if asked is None else {"lease_ms": asked}))
    assert claim["claimed"][0]["deadline"] == site.clock.wall_ms() + got


async def test_a_redelivery_counts_and_fills_the_slow_path(site: Site) -> None:
    await make(site, {"data": 1, "tag": "x"}, 2, 3)
    await take(site, max=2, lease_ms=1000)
    site.clock.advance(1001)
    again = await take(site, max=3)
    assert [(job["$seq"], job["deliveries"]) for job in again["claimed"]] == [(1, 2), (2, 2), (3, 1)]
    assert again["claimed"][0]["$tag"] == "x"


async def test_fault_28_a_claim_id_gives_the_same_jobs_again(site: Site) -> None:
    await make(site, 1, 2)
    first, again = await take(site, claim_id="c-1"), await take(site, claim_id="c-1")
    assert again["claimed"] == first["claimed"]
    assert again["lease_id"] == first["lease_id"]


async def test_an_auto_ack_holds_nothing(site: Site) -> None:
    await make(site, 1, 2)
    claim = await take(site, max=2, auto_ack=True)
    assert (claim["count"], claim["lease_id"], claim["claimed"][0]["lease_id"]) == (2, None, None)
    assert (await site.get(Q))["queue"]["in_flight"] == 0
    assert (await site.get(Q))["count"] == 0


async def test_a_claim_waits_for_a_job_and_no_longer(site: Site) -> None:
    await make(site)
    waiting = site.start("POST", f"{Q}/claim", {"node": "w", "wait_ms": 5000})
    await turn()
    assert not waiting.done()
    await site.post(Q, {"records": [{"data": 7}]})
    assert (await waiting)["claimed"][0]["data"] == 7
    waiting = site.start("POST", f"{Q}/claim", {"node": "w", "wait_ms": 5000})
    await turn()
    site.clock.advance(5001)
    assert (await waiting)["count"] == 0


async def test_a_waiting_claim_whose_caller_is_gone_takes_nothing(site: Site) -> None:
    await make(site)
    waiting = site.start("POST", f"{Q}/claim", {"node": "w", "wait_ms": 5000})
    await turn()
    waiting.cancel()
    await asyncio.wait([waiting])
    await site.post(Q, {"records": [{"data": 7}]})
    assert (await site.get(Q))["queue"]["ready"] == 1


@pytest.mark.parametrize("wait_ms", [0, 5000])
async def test_a_claim_whose_connection_is_lost_before_its_answer_leaves_gives_its_jobs_back(
    site: Site, wait_ms: int
) -> None:
    await make(site)
    if not wait_ms:
        await site.post(Q, {"records": [{"data": 7}]})
    call = site.app.admit_whole(Request("POST", f"{Q}/claim", headers={"content-type": "application/json"}))
    assert isinstance(call, Call)
    pending = carry_out(call, b'{"node":"w","wait_ms":%d}' % wait_ms, _unheard)
    assert isinstance(pending, Pending)
    if wait_ms:
        site.broker.produce("transcode", [b"7"])  # it is given the job, and the write of that is on its way
    assert numbers(site.broker, "transcode")["in_flight"] == 1
    pending.lose()
    await turn()
    assert numbers(site.broker, "transcode")["in_flight"] == 0


def _unheard(response: Response) -> None:
    raise AssertionError("nobody is there to be answered")


async def test_a_waiting_claim_hears_that_the_queue_is_gone(site: Site) -> None:
    await make(site)
    waiting = site.start("POST", f"{Q}/claim", {"node": "w", "wait_ms": 5000})
    await turn()
    await site.delete(Q)
    reply = await waiting
    assert (reply.status, reply.code) == (404, "topic_not_found")


async def test_a_cohort_shares_what_is_there(site: Site) -> None:
    await make(site, *range(10), claim_jitter_ms=50)
    claims = [site.start("POST", f"{Q}/claim", {"node": f"w{n}", "max": 10}) for n in range(5)]
    await turn()
    site.clock.advance(51)
    assert [(await claim)["count"] for claim in claims] == [2] * 5


# Ack


async def test_an_ack_answers_as_the_seed_shows(site: Site) -> None:
    await make(site, 1, 2, 3, durable=True)
    await take(site, max=2)
    ack = await site.post(f"{Q}/ack", {"node": "w", "seqs": [1, 3]})
    assert list(ack.json) == ["topic", "acked", "skipped", "ready", "in_flight", "performance"]
    assert (ack["topic"], ack["acked"], ack["skipped"], ack["ready"], ack["in_flight"]) == ("transcode", 1, [3], 1, 1)
    assert ack["performance"]["fsync_ms"] > 0, "the delete was synced first"
    assert (await site.get(Q))["count"] == 2


@pytest.mark.parametrize("durability", ["memory", "disk"])
async def test_no_sync_gates_the_ack_of_another_class(site: Site, durability: str) -> None:
    await make(site, 1, durability=durability)
    await take(site)
    ack = await site.post(f"{Q}/ack", {"node": "w", "seqs": [1]})
    assert (ack["acked"], ack["performance"]["fsync_ms"]) == (1, 0.0)


async def test_fault_27_a_repeated_ack_skips_what_is_gone(site: Site) -> None:
    await make(site, 1)
    await take(site)
    body = {"node": "w", "seqs": [1]}
    assert (await site.post(f"{Q}/ack", body))["acked"] == 1
    again = await site.post(f"{Q}/ack", body)
    assert (again.status, again["acked"], again["skipped"]) == (200, 0, [1])


async def test_a_lease_alone_settles_everything_held_under_it(site: Site) -> None:
    await make(site, 1, 2, 3)
    lease = (await take(site, max=3))["lease_id"]
    await site.post(f"{Q}/ack", {"node": "w", "seqs": [2]})
    assert (await site.post(f"{Q}/ack", {"node": "w", "lease_id": lease}))["acked"] == 2


async def test_fault_24_lease_ids_fence_a_stale_worker(site: Site) -> None:
    await make(site, 1)
    stale = (await take(site, lease_ms=1000))["lease_id"]
    site.clock.advance(1001)
    fresh = (await take(site))["lease_id"]
    skipped = await site.post(f"{Q}/ack", {"node": "w", "seqs": [1], "lease_ids": [stale]})
    assert (skipped["acked"], skipped["skipped"]) == (0, [1])
    assert (await site.post(f"{Q}/ack", {"node": "w", "seqs": [1], "lease_ids": [fresh]}))["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("foreign", ["unknown", "expired", "another's"])
async def test_fault_40_what_is_not_the_callers_is_skipped_and_nothing_is_written(
    site: Site, verb: str, foreign: str
) -> None:
    await make(site, 1, 2)
    await take(site, lease_ms=1000, **({"node": "v"} if foreign == "another's" else {}))
    if foreign == "expired":
        site.clock.advance(1001)
        await site.get(Q)
    body = {"node": "w", "seqs": [2 if foreign == "unknown" else 1], "lease_ms": 5000}
    before = site.state()
    reply = await site.post(f"{Q}/{verb}", body)
    assert (reply.status, reply["skipped"]) == (200, body["seqs"])
    strict = await site.post(f"{Q}/{verb}", {**body, "strict": True})
    assert (strict.status, strict.code) == (412, "precondition_failed")
    assert strict["error"]["detail"]["skipped"] == body["seqs"]
    assert site.state() == before


async def test_strict_passes_over_what_is_already_gone(site: Site) -> None:
    await make(site, 1, 2)
    await take(site, max=2)
    await site.post(f"{Q}/ack", {"node": "w", "seqs": [1]})
    ack = await site.post(f"{Q}/ack", {"node": "w", "seqs": [1, 2], "strict": True})
    assert (ack.status, ack["acked"], ack["skipped"]) == (200, 1, [1])


# Nack and extend


async def test_a_nack_answers_as_the_seed_shows_and_may_delay(site: Site) -> None:
    await make(site, 1, 2)
    await take(site, max=2)
    nack = await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "delay_ms": 5000, "reason": "busy"})
    assert list(nack.json) == ["topic", "nacked", "skipped", "ready", "in_flight", "performance"]
    assert (nack["nacked"], nack["skipped"], nack["ready"], nack["in_flight"]) == (1, [], 0, 1)
    site.clock.advance(5001)
    assert (await take(site))["claimed"][0]["deliveries"] == 2


async def test_fault_39_a_dead_nack_moves_the_job_with_its_story(site: Site) -> None:
    await make(site, {"data": 1, "meta": {"k": 1}}, dead_letter="transcode.dlq")
    await take(site)
    nack = await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "dead": True, "reason": "poison"})
    assert (nack["nacked"], nack["ready"], nack["in_flight"]) == (1, 0, 0)
    letters = await site.post("/v0/topics/transcode.dlq/diff", {})
    assert letters["records"][0]["meta"] == {
        "k": 1,
        "$dead_letter_from": "transcode",
        "$dead_letter_deliveries": 1,
        "$dead_letter_src_seq": 1,
        "$dead_letter_reason": "poison",
    }
    assert (await site.get(Q))["count"] == 0


async def test_an_extend_sets_from_now_and_answers_deadlines_by_seq(site: Site) -> None:
    await make(site, 1, 2, 3)
    await take(site, max=2)
    site.clock.advance(10_000)
    extend = await site.post(f"{Q}/extend", {"node": "w", "seqs": [1, 2, 3], "lease_ms": 60_000})
    due = site.clock.wall_ms() + 60_000
    assert list(extend.json) == ["topic", "extended", "skipped", "deadlines", "performance"]
    assert (extend["extended"], extend["skipped"], extend["deadlines"]) == (2, [3], {"1": due, "2": due})


async def test_an_extend_needs_its_duration_unless_a_lease_is_named(site: Site) -> None:
    await make(site, 1, lease_ms=7000)
    lease = (await take(site))["lease_id"]
    assert (await site.post(f"{Q}/extend", {"node": "w", "seqs": [1]})).status == 400
    extend = await site.post(f"{Q}/extend", {"node": "w", "lease_id": lease})
    assert extend["deadlines"] == {"1": site.clock.wall_ms() + 7000}


# Redrive


async def test_a_redrive_puts_letters_back(site: Site) -> None:
    await make(site, 1, dead_letter="dead")
    await take(site)
    await site.post(f"{Q}/nack", {"node": "w", "seqs": [1], "dead": True})
    back = await site.post("/v0/topics/dead/redrive")
    assert (back.status, back["topic"], back["to"], back["redriven"], back["seqs"]) == (
        200,
        "dead",
        "transcode",
        1,
        [1],
    )
    assert "fsync_ms" in back["performance"]
    assert (await take(site))["claimed"][0]["deliveries"] == 1


async def test_fault_47_a_letter_cannot_carry_a_key_into_another_tenants_queue(
    make_site: Callable[..., Site], broker: Broker
) -> None:
    keeper = gatekeeper("mine:rwda:a.")
    open_site, site = make_site(), make_site(admit=keeper.admit, track=keeper.track)
    await make(open_site, name="b.q")
    forged = {"data": "evil", "meta": {"$dead_letter_from": "b.q"}}
    mine = {"authorization": "Bearer mine", "host": "localhost"}
    await site.post("/v0/topics/a.dead", {"records": [{"data": "good"}]}, headers=mine)
    refused = await site.post("/v0/topics/a.dead", {"records": [forged]}, headers=mine)
    assert (refused.status, refused["error"]["detail"]["field"]) == (400, "meta")
    for caller in (mine, {}):  # the operator has no prefixes, and redrives as well
        reply = await (site if caller else open_site).post("/v0/topics/a.dead/redrive", {}, headers=caller)
        assert (reply.status, reply["redriven"], reply["destinations"]) == (200, 0, {})
    assert (await site.post("/v0/topics/a.dead/redrive", {"to": "b.q"}, headers=mine)).status == 403
    assert broker.topic("b.q").count == 0


# Errors


VERBS: dict[str, dict[str, Any]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_refuses_a_log_and_what_is_not_there(site: Site, verb: str) -> None:
    await site.put("/v0/topics/log", {})
    refused = await site.post(f"/v0/topics/log/{verb}", VERBS[verb])
    assert (refused.status, refused.code) == (409, "not_a_queue")
    absent = await site.post(f"/v0/topics/absent/{verb}", VERBS[verb])
    assert (absent.status, absent.code) == (404, "topic_not_found")
    assert (await site.get("/v0/topics/absent")).status == 404, "nothing is created by a typo"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("node", [None, "", "x" * 129, 7, ["w"]])
async def test_every_verb_wants_a_node(site: Site, verb: str, node: Any) -> None:
    await make(site, 1)
    body = {name: value for name, value in VERBS[verb].items() if name != "node"}
    reply = await site.post(f"{Q}/{verb}", body if node is None else {**body, "node": node})
    assert (reply.status, reply.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("verb", "bad"),
    [
        ("claim", {"max": "1"}),
        ("claim", {"max": -1}),
        ("claim", {"max": 1.5}),
        ("claim", {"max": 2**64}),
        ("claim", {"max": True}),
        ("claim", {"lease_ms": "x"}),
        ("claim", {"lease_ms": -1}),
        ("claim", {"wait_ms": -1}),
        ("claim", {"claim_id": ""}),
        ("claim", {"claim_id": "x" * 5000}),
        ("claim", {"auto_ack": 1}),
        ("ack", {"seqs": []}),
        ("ack", {"seqs": ["1"]}),
        ("ack", {"seqs": [-1]}),
        ("ack", {"seqs": [2**64]}),
        ("ack", {"seqs": 1}),
        ("ack", {"lease_ids": ["lease_1", "lease_2"]}),
        ("ack", {"lease_ids": [1]}),
        ("ack", {"strict": "yes"}),
        ("nack", {"delay_ms": -1}),
        ("nack", {"reason": "x" * 1025}),
        ("nack", {"dead": "no"}),
        ("extend", {"lease_ms": "x"}),
    ],
)
async def test_fault_48_bad_fields_are_refused_and_change_nothing(site: Site, verb: str, bad: dict[str, Any]) -> None:
    await make(site, 1)
    await take(site)
    before = site.state()
    reply = await site.post(f"{Q}/{verb}", {**VERBS[verb], **bad})
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert site.state() == before


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_more_than_a_thousand_seqs_are_too_many(site: Site, verb: str) -> None:
    await make(site, 1)
    reply = await site.post(f"{Q}/{verb}", {**VERBS[verb], "seqs": list(range(1001))})
    assert (reply.status, reply.code) == (400, "batch_too_large")


async def test_jobs_must_be_named(site: Site) -> None:
    await make(site, 1)
    assert (await site.post(f"{Q}/ack", {"node": "w"})).status == 400


@pytest.mark.parametrize("name", ["..", "a b", "x" * 300, "a\x00", "-x"])
async def test_fault_45_names_that_are_none_are_refused(site: Site, name: str) -> None:
    for verb, body in VERBS.items():
        reply = await site.post(f"/v0/topics/{name}/{verb}", body)
        assert (reply.status, reply.code) == (400, "invalid_request")


async def test_a_cap_on_jobs_in_flight_is_told(site: Site) -> None:
    await make(site, 1, 2, max_in_flight=1)
    await take(site)
    reply = await take(site)
    assert (reply.status, reply.code, reply.headers[b"retry-after"]) == (429, "in_flight_cap_exceeded", b"1")


async def test_a_thousand_jobs_are_one_answer(site: Site) -> None:
    await make(site, *({"data": {"n": n}} for n in range(1000)))
    claim = await take(site, max=1000)
    assert [job["data"]["n"] for job in json.loads(claim.raw)["claimed"]] == list(range(1000))
    ack = await site.post(f"{Q}/ack", {"node": "w", "seqs": list(range(1, 1001))})
    assert (ack["acked"], ack["ready"], ack["in_flight"]) == (1000, 0, 0)
