"""The servers that share a home, over HTTP: who leads, who follows, the hand-over, and what a standby refuses."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import msgspec
import pytest

from tenure import Broker
from tenure.client.plan.answers import error_of
from tenure.client.transport.wire import Response as Answer
from tenure.errors import Conflict, NotLeader, Overloaded
from tenure.http.api.app import App, Call, Route
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.server import serve
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.http.streams.shared import streams_of
from tenure.http.wire.errors import error_response
from tenure.http.wire.message import Request, Response
from tenure.testing.clock import ManualClock
from tests.http.conftest import Reply, Site
from tests.http.wire_support import Peer
from tests.kit.clusters import HERE, THERE, FakeCluster, leading, member

LOCAL = {"host": "localhost"}
LEADER_FOUND = {"leader": THERE, "epoch": 7}


def standby_service(**fields: Any) -> Service:
    """A whole server without a broker, which follows another one; its routes are admitted as on the wire."""
    service = Service(ServerSettings(test_clock=True), environment={})
    service.context.cluster = FakeCluster(**fields)
    return service


class Local(Site):
    """Requests from this machine to a server without keys, which looks at the host instead."""

    async def send(self, request: Request) -> Reply:
        request.headers |= LOCAL
        return await super().send(request)


@pytest.fixture
def standby(broker: Broker, clock: ManualClock) -> Site:
    return Local(standby_service().app, broker, clock)


def path_of(route: Route) -> str:
    return re.sub(r":\w+", "1", route.pattern)


async def test_a_server_without_a_home_is_alone_and_leads(site: Site) -> None:
    reply = await site.get("/v0/cluster")
    assert (reply.status, reply["role"], reply["members"], reply["is_caught_up"]) == (200, "alone", [], True)
    reply = await site.get("/v0/leader")
    assert (reply.status, reply["leader"], reply["epoch"]) == (200, "", 0)


async def test_a_server_that_replays_alone_does_not_lead_yet(broker: Broker, clock: ManualClock) -> None:
    site = Site(App(Context(), ROUTES), broker, clock)
    assert (await site.get("/v0/cluster"))["is_caught_up"] is False
    reply = await site.get("/v0/leader")
    assert (reply.status, reply.code) == (503, "not_ready")


async def test_every_member_reports_its_view_of_the_cluster(site: Site, standby: Site) -> None:
    site.app.context.cluster = leading(member(THERE))
    reply = await site.get("/v0/cluster")
    assert (reply["role"], reply["leader"], reply["epoch"], reply["number"]) == ("leader", HERE, 7, 3)
    assert [found["url"] for found in reply["members"]] == [THERE]
    reply = await standby.get("/v0/cluster")
    assert (reply.status, reply["role"], reply["leader"]) == (200, "standby", THERE)


async def test_only_the_leader_answers_a_load_balancer(site: Site, standby: Site) -> None:
    site.app.context.cluster = leading()
    reply = await site.get("/v0/leader")
    assert (reply.status, reply["leader"], reply["epoch"]) == (200, HERE, 7)
    reply = await standby.get("/v0/leader")
    assert (reply.status, reply.code, reply["error"]["detail"]) == (421, "not_leader", LEADER_FOUND)


async def test_a_leader_that_drains_is_taken_out_of_the_load_balancer(site: Site) -> None:
    site.app.context.cluster = leading()
    site.app.context.draining = True
    reply = await site.get("/v0/leader")
    assert (reply.status, reply.code) == (503, "shutting_down")


async def test_a_standby_is_ready_once_it_has_caught_up(standby: Site) -> None:
    for path in ("/v0/ready", "/readyz"):
        reply = await standby.get(path)
        assert (reply.status, reply["status"], reply["wal_replay_complete"]) == (200, "standby", True)
    standby.app.context.cluster = FakeCluster(is_caught_up=False, follow_lag_links=40, follow_lag_ms=9_000)
    reply = await standby.get("/readyz")
    assert (reply.status, reply.code, reply["status"]) == (503, "not_ready", "behind")
    assert reply["error"]["detail"] == {"follow_lag_links": 40, "follow_lag_ms": 9_000}
    standby.app.context.draining = True
    assert (await standby.get("/readyz"))["status"] == "draining"


@pytest.mark.parametrize("route", standby_service().app.routes, ids=lambda route: f"{route.method} {route.pattern}")
def test_a_standby_refuses_what_needs_the_leader_by_the_head_alone(route: Route) -> None:
    admitted = standby_service().app.admit(Request(route.method, path_of(route), headers=LOCAL))
    if route.scopes and not route.anywhere:
        assert isinstance(admitted, Response)
        error = msgspec.json.decode(admitted.body)["error"]
        assert (admitted.status, error["code"], error["detail"]) == (421, "not_leader", LEADER_FOUND)
    else:
        assert isinstance(admitted, Call)


async def test_a_standby_answers_for_itself(standby: Site) -> None:
    for path in ("/v0/health", "/v0/key", "/", "/console/app.js", "/console/views/queues.js"):
        assert (await standby.get(path)).status == 200, path
    metrics = await standby.get("/v0/metrics")
    assert metrics.status == 200
    assert b"tenure_requests_total" in metrics.raw
    assert b"tenure_topics" not in metrics.raw, "it has no topics to show"


async def test_a_server_that_drains_still_says_who_leads(standby: Site) -> None:
    """A client that looks for the leader must hear who it is, and the last figures must be read."""
    standby.app.context.draining = True
    for path in ("/v0/cluster", "/v0/metrics"):
        assert (await standby.get(path)).status == 200, path
    reply = await standby.get("/v0/topics")
    assert (reply.status, reply["error"]["detail"]) == (421, LEADER_FOUND)


async def test_no_body_is_asked_for_where_another_server_leads() -> None:
    """The answer comes though the body was announced and never sent, and to a caller that asks before it sends."""
    head = b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\n"
    async with await serve(standby_service().app) as server:
        for rest in (b"content-length: 900000\r\n\r\n", b"content-length: 9\r\nexpect: 100-continue\r\n\r\n"):
            async with await Peer.connect(server) as peer:
                await peer.send(head + rest)
                reply = await peer.reply()
                assert (reply.status, reply.code) == (421, "not_leader")


async def test_over_http_2_a_refusal_ends_its_own_stream_and_the_connection_goes_on() -> None:
    """421 is the status with which HTTP/2 says that a request belongs to another connection: this one stays good."""
    async with (
        await serve(standby_service().app) as server,
        httpx.AsyncClient(
            http1=False, http2=True, trust_env=False, base_url=f"http://127.0.0.1:{server.port}"
        ) as client,
    ):
        refused = await client.post("/v0/topics/t", json={"records": [{"data": "x" * 1_000}]})
        assert (refused.status_code, refused.json()["error"]["detail"]) == (421, LEADER_FOUND)
        assert (await client.get("/v0/cluster")).status_code == 200
        assert server.connections.counts.accepted == 1


async def test_a_standby_that_knows_no_leader_says_so(standby: Site) -> None:
    standby.app.context.cluster = FakeCluster(leader="")
    reply = await standby.get("/v0/topics")
    assert (reply.status, reply["error"]["detail"]["leader"]) == (421, "")
    assert "try again" in reply["error"]["message"]


@pytest.mark.parametrize("draining", [False, True])
async def test_a_request_that_meets_no_leader_waits_until_one_is_known(
    broker: Broker, clock: ManualClock, draining: bool
) -> None:
    """Its caller need not ask round. It is served where this server leads then, and refused where another does."""
    service = standby_service(leader="")
    cluster = service.context.cluster
    assert isinstance(cluster, FakeCluster)
    cluster.deciding = asyncio.Event()
    service.context.draining = draining
    site = Local(service.app, broker, clock)
    calls = [site.start("POST", "/v0/topics/t", {"records": [{"data": 1}]}), site.start("GET", "/v0/topics")]
    assert (await site.get("/v0/cluster")).status == 200, "what any server answers does not wait"
    assert not any(call.done() for call in calls)
    if draining:
        cluster.found = msgspec.structs.replace(cluster.found, leader=THERE)
    else:
        cluster.found = msgspec.structs.replace(cluster.found, role="leader")
        service.context.set_broker(broker)
    cluster.deciding.set()
    replies = [await call for call in calls]
    assert [reply.status for reply in replies] == ([421, 421] if draining else [201, 200])
    if draining:
        assert replies[0]["error"]["detail"] == LEADER_FOUND


async def test_a_request_waits_for_a_leader_once(broker: Broker, clock: ManualClock) -> None:
    service = standby_service(leader="")
    cluster = service.context.cluster
    assert isinstance(cluster, FakeCluster)
    cluster.deciding, waits = asyncio.Event(), list[int]()

    async def decided() -> None:
        waits.append(1)

    cluster.decided = decided  # type: ignore[method-assign]
    reply = await Local(service.app, broker, clock).get("/v0/topics")
    assert (reply.status, reply["error"]["detail"]["leader"], waits) == (421, "", [1])


def test_a_client_decodes_the_refusal_with_the_address_of_the_leader() -> None:
    sent = error_response(NotLeader("elsewhere", leader=THERE, epoch=7), Request("GET", "/"))
    error = error_of(Answer(sent.status, sent.body))
    assert isinstance(error, NotLeader)
    assert (error.code, error.detail["leader"], error.detail["epoch"]) == ("not_leader", THERE, 7)


def test_a_client_knows_that_nothing_happened_while_the_store_was_away() -> None:
    sent = error_response(Overloaded("no grant", code="store_away"), Request("GET", "/"))
    assert (sent.status, dict(sent.headers)[b"retry-after"]) == (503, b"1")
    assert isinstance(error_of(Answer(sent.status, sent.body)), Overloaded)


async def test_the_lead_is_handed_over_to_any_or_to_one(site: Site) -> None:
    for body, to in ((None, ""), ({}, ""), ({"to": f"{THERE}/"}, THERE)):
        cluster = site.app.context.cluster = leading(member(HERE, role="leader"), member(THERE))
        reply = await site.post("/v0/cluster/handover", body)
        assert (reply.status, reply["role"], cluster.asked) == (200, "standby", [to])


async def test_a_hand_over_that_cannot_be_changes_nothing(site: Site) -> None:
    refused = await site.post("/v0/cluster/handover")
    assert (refused.status, refused.code) == (409, "no_standby"), "alone"
    cluster = site.app.context.cluster = leading(member("nonsense"), member(THERE))
    for to, status, code in (
        ("http://c:4000", 404, "member_not_found"),
        (HERE, 409, "leads_already"),
        ("b:4000", 400, "invalid_request"),
        ("http://" + "x" * 3_000, 400, "invalid_request"),
    ):
        refused = await site.post("/v0/cluster/handover", {"to": to})
        assert (refused.status, refused.code) == (status, code), to
    assert cluster.asked == []
    cluster.refusal = Conflict("nobody follows closely enough", code="no_standby")
    refused = await site.post("/v0/cluster/handover")
    assert (refused.status, refused.code) == (409, "no_standby")


async def test_a_standby_cannot_hand_over(standby: Site) -> None:
    reply = await standby.post("/v0/cluster/handover", {})
    assert (reply.status, reply.code, reply["error"]["detail"]) == (421, "not_leader", LEADER_FOUND)


async def test_a_tenant_cannot_hand_over_the_whole_server(broker: Broker, clock: ManualClock) -> None:
    service = Service(ServerSettings(), environment={"TENURE_API_KEYS": "root,blue:rwda:blue."})
    service.context.set_broker(broker)
    cluster = service.context.cluster = leading(member(THERE))
    site = Site(service.app, broker, clock)
    headers = {"host": "queue.example", "authorization": "Bearer blue"}
    assert (await site.get("/v0/cluster", headers=headers)).status == 200
    assert (await site.post("/v0/cluster/handover", headers=headers)).code == "forbidden"
    assert cluster.asked == []
    headers["authorization"] = "Bearer root"
    assert (await site.post("/v0/cluster/handover", headers=headers)).status == 200


async def test_streams_follow_the_broker_of_a_server_that_leads_again(broker: Broker, clock: ManualClock) -> None:
    context = Context(broker)
    first = streams_of(context)
    assert streams_of(context) is first
    async with await Broker.open(None, clock=clock) as again:
        context.set_broker(again)
        assert streams_of(context).broker is again
