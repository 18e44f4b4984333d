"""Two tenants on one server: nothing that one key is answered names what is another's (fault 47).

The routes come from the table of a whole server, so a new route fails here until it has calls of its own. The broker is
filled by an operator in the ways that tie tenants together: routers across them, dead letters of one in the other.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import Route
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.testing.clock import ManualClock
from tests.http.conftest import Reply, Site
from tests.http.streaming import Listener
from tests.http.test_work import SSE

KEYS = {"TENURE_API_KEYS": "root,blue:rwda:blue.|azure.,red:rwda:red."}
BLUE = {"authorization": "Bearer blue", "host": "queue.example"}
T = "/v0/topics/blue.q"
FOREIGN = re.compile(rb"\bred\.")

CALLS: dict[str, list[tuple[str, Any]]] = {
    "POST /v0/_test/advance": [("/v0/_test/advance", {"ms": 1})],
    "GET /v0/metrics": [("/v0/metrics", None)],
    "GET /v0/key": [("/v0/key", None)],
    "GET /v0/cluster": [("/v0/cluster", None)],
    "POST /v0/cluster/handover": [("/v0/cluster/handover", {"to": "http://red.example"})],
    "GET /v0/upgrade": [("/v0/upgrade", None)],
    "POST /v0/upgrade/finalize": [("/v0/upgrade/finalize", None)],
    "GET /v0/topics": [
        *((f"/v0/topics?page_size={size}&meters=true", None) for size in (1, 2, 3, 100)),
        ("/v0/topics?prefix=red", None),
        ("/v0/topics?prefix=b", None),
    ],
    "PUT /v0/topics/:topic": [
        (T, {"type": "queue"}),
        (T, {"type": "log"}),
        (T, {"type": "queue", "dead_letter": "red.letters"}),
        ("/v0/topics/blue.new", {}),
        ("/v0/topics/red.q", {}),
    ],
    "PATCH /v0/topics/:topic": [
        (T, {"lease_ms": 1_000}),
        (T, {"dead_letter": "red.letters"}),
        ("/v0/topics/blue.none", {}),
        ("/v0/topics/red.q", {}),
    ],
    "GET /v0/topics/:topic": [(T, None), ("/v0/topics/blue.none", None), ("/v0/topics/red.q", None)],
    "DELETE /v0/topics/:topic": [
        *((f"/v0/topics/blue.{name}", None) for name in ("q", "in", "a", "c", "none")),
        ("/v0/topics/red.q", None),
    ],
    "POST /v0/topics/:topic": [
        (T, {"records": [{"data": 1}]}),
        ("/v0/topics/blue.n2", {"records": [{"data": 1}], "config": {"dead_letter": "red.letters"}}),
    ],
    "POST /v0/topics/:topic/diff": [(f"{T}/diff", {}), ("/v0/topics/blue.dead/diff", {"include_tags": True})],
    "POST /v0/topics/:topic/delete": [(f"{T}/delete", {"before_seq": 2})],
    "POST /v0/topics/:topic/claim": [(f"{T}/claim", {"node": "w", "max": 9})],
    "POST /v0/topics/:topic/ack": [(f"{T}/ack", {"node": "w", "seqs": [1]})],
    "POST /v0/topics/:topic/nack": [(f"{T}/nack", {"node": "held", "seqs": [1], "dead": True})],
    "POST /v0/topics/:topic/return": [
        (f"{T}/return", {"node": "held", "seqs": [1]}),
        ("/v0/topics/red.q/return", {"node": "held", "seqs": [1]}),
    ],
    "POST /v0/topics/:topic/begin": [
        (f"{T}/begin", {"node": "held", "seq": 1, "lease_id": "lease_1"}),
        ("/v0/topics/red.q/begin", {"node": "held", "seq": 1, "lease_id": "lease_1"}),
    ],
    "POST /v0/workers/hello": [
        ("/v0/workers/hello", {"node": "w", "queues": ["blue.q", "blue.none"]}),
        ("/v0/workers/hello", {"node": "w", "queues": [], "gone": [{"node": "held", "begun": {"blue.q": [1]}}]}),
        ("/v0/workers/hello", {"node": "w", "queues": []}),
    ],
    "POST /v0/topics/:topic/extend": [(f"{T}/extend", {"node": "held", "seqs": [1], "lease_ms": 1000})],
    "POST /v0/topics/:topic/redrive": [
        (f"{T}/redrive", {}),
        (f"{T}/redrive", {"to": "red.q"}),
        ("/v0/topics/blue.dead/redrive", {}),
        ("/v0/topics/blue.strange/redrive", {}),
    ],
    "GET /v0/topics/:topic/work": [(f"{T}/work?node=w", None)],
    "DELETE /v0/topics/:topic/work": [(f"{T}/work?node=w", None)],
    "GET /v0/topics/:topic/jobs": [(f"{T}/jobs?state={state}&limit=1", None) for state in ("ready", "in_flight")],
    "GET /v0/topics/:topic/jobs/:seq": [(f"{T}/jobs/1", None), (f"{T}/jobs/99", None)],
    "GET /v0/topics/:topic/leases": [(f"{T}/leases?limit=1", None)],
    "GET /v0/topics/:topic/strip": [(f"{T}/strip", None)],
    "GET /v0/topics/:topic/meters": [(f"{T}/meters", None)],
    "GET /v0/topics/:topic/events": [(f"{T}/events", None), ("/v0/topics/blue.dead/events", None)],
    "GET /v0/routers": [
        *((f"/v0/routers?page_size={size}", None) for size in (1, 2, 100)),
        ("/v0/routers?source=red.q", None),
        ("/v0/routers?dest=red.copy", None),
        ("/v0/routers?prefix=red", None),
    ],
    "PUT /v0/routers/:r": [
        ("/v0/routers/blue.loop", {"source": "blue.b", "dest": "blue.a"}),
        ("/v0/routers/blue.out", {"source": "blue.q", "dest": "blue.c"}),
        ("/v0/routers/blue.new", {"source": "blue.q", "dest": "red.q"}),
        ("/v0/routers/red.in", {"source": "blue.q", "dest": "blue.c"}),
    ],
    "GET /v0/routers/:r": [(f"/v0/routers/{name}", None) for name in ("blue.out", "blue.own", "red.in", "blue.none")],
    "DELETE /v0/routers/:r": [(f"/v0/routers/{name}", None) for name in ("blue.out", "blue.own", "red.in")],
    "POST /v0/watch": [
        ("/v0/watch", {"topics": {"blue.q": {}}}),
        ("/v0/watch", {"topics": {"blue.q": {}, "red.q": {}}}),
        ("/v0/watch?lenient=true", {"topics": {"blue.none": {}}}),
    ],
    "GET /v0/watch/:wid": [("", None)],
}
TABLE = [route for route in Service(ServerSettings(test_clock=True), environment={}).app.routes if route.scopes]
"""Open routes answer everybody the same."""


def line(route: Route) -> str:
    return f"{route.method} {route.pattern}"


@pytest.fixture
async def site(broker: Broker, clock: ManualClock) -> Site:
    """Both tenants' topics, and what an operator laid between them."""
    for name, letters in (("blue.q", "red.letters"), ("blue.p", "blue.dead"), ("red.q", "red.letters")):
        await broker.put_topic(name, {"type": "queue", "max_deliveries": 9, "dead_letter": letters})
        await broker.produce(name, [b"1", b"2", b"3"])
    for name in ("red.0", "azure.x", "blue.a", "blue.b", "blue.c", "blue.in", "red.copy", "red.x", "red.y"):
        await broker.put_topic(name)
    await broker.put_topic("blue.strange", {"type": "queue"})
    for name, source, dest in (
        ("blue.out", "blue.q", "red.copy"),
        ("red.in", "red.q", "blue.in"),
        ("red.there", "blue.a", "red.x"),
        ("red.back", "red.x", "blue.b"),
        ("blue.own", "blue.p", "blue.c"),
        ("blue.own2", "blue.p", "azure.x"),
    ):
        await broker.put_router(name, source=source, dest=dest)
    await broker.claim("blue.q", node="held", max_count=1)
    await broker.claim("blue.p", node="held", max_count=2)
    await broker.nack("blue.p", node="held", seqs=[1, 2], dead=True)
    service = Service(ServerSettings(test_clock=True), environment=KEYS)
    service.context.set_broker(broker)
    return Site(service.app, broker, clock)


def says_red(reply: Reply) -> bool:
    """Whether another tenant's name is in an answer, its headers, or a cursor in it."""
    raw = reply.raw + repr(reply.headers).encode()
    for cursor in re.findall(rb'"next_cursor":"([\w-]+)"', raw):
        raw += urlsafe_b64decode(cursor + b"==")
    return bool(FOREIGN.search(raw))


async def stream_of(site: Site, target: str) -> Listener:
    if not target:
        target = (await site.post("/v0/watch", {"topics": {"blue.q": {}, "blue.in": {}}}, headers=BLUE))["stream_url"]
    reply = await site.get(target, headers=BLUE | SSE)
    assert reply.status == 200, reply.raw
    return Listener(reply.response)


async def stir(broker: Broker) -> None:
    """What an operator and the other tenant do meanwhile."""
    await broker.nack("blue.q", node="held", seqs=[1], dead=True)
    await broker.redrive("blue.dead", to="red.q")
    await broker.produce("red.q", [b"4"])
    await broker.produce("blue.q", [b"4"])
    await broker.produce("blue.dead", [b"4"])


@pytest.mark.parametrize("route", TABLE, ids=line)
async def test_no_route_names_what_is_anothers(site: Site, route: Route) -> None:
    calls = CALLS.get(line(route))
    assert calls, "a new route needs calls of its own here"
    for target, body in calls:
        if route.sse:
            stream = await stream_of(site, target)
            await stream.block()
            await stir(site.broker)
            while b"produced" not in b"".join(stream.sent) and b"$seq" not in b"".join(stream.sent):
                await stream.next()
            await stream.hang_up()
            assert not FOREIGN.search(b"".join(stream.sent))
        else:
            reply = await site.call(route.method, target, body, headers=BLUE)
            assert not says_red(reply), (target, reply.status, reply.raw)


async def test_a_row_of_an_event_leaves_out_a_topic_that_is_anothers(site: Site) -> None:
    streams = [await stream_of(site, f"/v0/topics/{name}/events") for name in ("blue.q", "blue.dead")]
    for stream in streams:
        await stream.block()
    await stir(site.broker)
    dead_lettered = await streams[0].next()
    assert (dead_lettered["event"], "dest" in dead_lettered["data"]) == ("dead_lettered", False)
    redriven = await streams[1].next()
    assert (redriven["event"], "dest" in redriven["data"]) == ("redriven", False)
    for stream in streams:
        await stream.hang_up()


async def test_a_dead_letter_topic_that_is_anothers_is_marked_and_not_named(site: Site) -> None:
    for reply in (await site.get(T, headers=BLUE), await site.get(f"{T}/strip", headers=BLUE)):
        assert (reply["config"]["dead_letter"], reply["config"]["dead_letter_hidden"]) == (None, True)
    own = await site.get("/v0/topics/blue.p", headers=BLUE)
    assert own["config"]["dead_letter"] == "blue.dead"
    assert "dead_letter_hidden" not in own["config"]


async def test_a_cycle_names_the_topics_within_reach_only(site: Site) -> None:
    body = {"source": "blue.b", "dest": "blue.a"}
    refused = await site.put("/v0/routers/blue.loop", body, headers=BLUE)
    assert (refused.status, refused.code) == (409, "router_cycle")
    assert refused["error"]["detail"]["cycle"] == ["blue.b", "blue.a", None, "blue.b"]
    root = await site.put("/v0/routers/blue.loop", body, headers=BLUE | {"authorization": "Bearer root"})
    assert root["error"]["detail"]["cycle"] == ["blue.b", "blue.a", "red.x", "blue.b"]


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("DELETE", None), ("PUT", {"source": "blue.q", "dest": "blue.c"})]
)
async def test_a_router_with_an_end_elsewhere_is_out_of_reach_whatever_its_name(
    site: Site, method: str, body: Any
) -> None:
    before = site.state()
    refused = await site.call(method, "/v0/routers/blue.out", body, headers=BLUE)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert site.state() == before


@pytest.mark.parametrize("topic", ["blue.q", "blue.in", "blue.a"])
async def test_a_topic_is_not_deleted_with_routers_out_of_reach(site: Site, topic: str) -> None:
    """By the router's other end, by its name, at its source and at its destination."""
    before = site.state()
    refused = await site.delete(f"/v0/topics/{topic}", headers=BLUE)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert "have them deleted first" in refused["error"]["message"]
    assert site.state() == before
    root = await site.delete(f"/v0/topics/{topic}", headers=BLUE | {"authorization": "Bearer root"})
    assert root["deleted"]


async def test_a_topic_goes_with_routers_within_reach(site: Site) -> None:
    gone = await site.delete("/v0/topics/blue.p", headers=BLUE)
    assert (gone["deleted"], gone["routers_removed"]) == (True, ["blue.own", "blue.own2"])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_pages_of_topics_and_routers_hold_all_within_reach_and_nothing_else(site: Site, size: int) -> None:
    for what, field, expected in (
        ("topics", "topic", [name for name in site.broker.topics().items if name.startswith(("blue.", "azure."))]),
        ("routers", "router", ["blue.own", "blue.own2"]),
    ):
        found: list[str] = []
        cursor = ""
        while True:
            page = await site.get(f"/v0/{what}?page_size={size}{cursor}", headers=BLUE)
            assert len(page[what]) <= size
            found += (item[field] for item in page[what])
            if "next_cursor" not in page:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == expected


async def test_a_listing_costs_what_is_within_reach_and_not_what_others_have(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(site.broker.put_topic(f"bluf.{number}") for number in range(500)))
    calls = []
    really = site.broker.topics

    def topics(**options: Any) -> Any:
        calls.append(options)
        return really(**options)

    monkeypatch.setattr(site.broker, "topics", topics)
    page = await site.get("/v0/topics?prefix=bl&page_size=1", headers=BLUE)
    assert [topic["topic"] for topic in page["topics"]] == ["blue.a"]
    assert (await site.get("/v0/topics?prefix=bluf&page_size=1", headers=BLUE))["topics"] == []
    assert len(calls) < 5
    assert (await site.get("/v0/topics?prefix=bluf&cursor=AAAA", headers=BLUE)).status == 400


async def test_a_row_of_a_redriven_job_leaves_out_where_it_came_from_if_that_is_anothers(site: Site) -> None:
    broker = site.broker
    await broker.put_topic("red.work", {"type": "queue", "dead_letter": "red.buried"})
    await broker.produce("red.work", [b"1"])
    await broker.claim("red.work", node="w")
    await broker.nack("red.work", node="w", seqs=[1], dead=True)
    stream = await stream_of(site, "/v0/topics/blue.q/events")
    await stream.block()
    await broker.redrive("red.buried", to="blue.q")
    produced = await stream.next()
    assert (produced["event"], "origin" in produced["data"]) == ("produced", False)
    assert not FOREIGN.search(b"".join(stream.sent))
    await stream.hang_up()
