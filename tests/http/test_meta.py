"""The server about itself: health, readiness, metrics, its document; and the whole of it once over a socket."""

from __future__ import annotations

from importlib.metadata import version

import httpx
import msgspec

from tenure import Broker
from tenure.broker.open import Replay
from tenure.http.api.app import App, Call
from tenure.http.api.context import Context
from tenure.http.api.prometheus import Exposition, Traffic
from tenure.http.routes import ROUTES
from tenure.http.wire.message import Request
from tenure.testing.clock import ManualClock
from tests.http.conftest import Site


async def test_health_is_open_and_plain(site: Site) -> None:
    for path in ("/v0/health", "/healthz"):
        reply = await site.get(path)
        assert (reply.status, reply["status"], reply["version"]) == (200, "ok", version("tenure"))
        assert reply["uptime_ms"] >= 0
        assert reply["started_ms"] > 1_700_000_000_000


async def test_ready_counts_the_topics(site: Site) -> None:
    await site.put("/v0/topics/a")
    for path in ("/v0/ready", "/readyz"):
        reply = await site.get(path)
        assert (reply.status, reply["status"], reply["wal_replay_complete"]) == (200, "ready", True)
        assert reply["topics"] == 1


async def test_a_server_that_replays_is_alive_but_not_ready(broker: Broker, clock: ManualClock) -> None:
    replay = Replay()
    context = Context(replay=replay)
    site = Site(App(context, ROUTES), broker, clock)
    replay.frames, replay.segment, replay.segment_last = 5, 2, 9
    assert (await site.get("/healthz")).status == 200
    for method, target, body in [
        ("GET", "/v0/ready", None),
        ("GET", "/v0/topics", None),
        ("PUT", "/v0/topics/a", {}),
        ("POST", "/v0/topics/a", {"records": [{"data": 1}]}),
    ]:
        reply = await site.call(method, target, body)
        assert (reply.status, reply.code) == (503, "not_ready"), target
        assert reply["error"]["detail"] == {"frames": 5, "segment": 2, "segment_last": 9}
        assert reply.headers[b"retry-after"]
    context.set_broker(broker)
    assert (await site.get("/v0/ready")).status == 200


async def test_a_server_that_drains_is_not_ready_but_still_answers(site: Site) -> None:
    site.app.context.draining = True
    reply = await site.get("/readyz")
    assert (reply.status, reply.code) == (503, "shutting_down")
    assert (await site.post("/v0/topics/a", {"records": [{"data": 1}]})).status == 201


async def test_a_closed_broker_is_shutting_down(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    site = Site(App(Context(broker), ROUTES), broker, clock)
    await broker.close()
    reply = await site.post("/v0/topics/a", {"records": [{"data": 1}]})
    assert (reply.status, reply.code) == (503, "shutting_down")


async def test_metrics_are_text_unless_json_is_asked_for(site: Site) -> None:
    assert (await site.get("/v0/metrics")).status == 404, "where none are kept"
    site.app.context.exposition = Exposition(Traffic(), wire=dict, topics_max=10)
    reply = await site.get("/v0/metrics")
    assert reply.status == 200
    assert reply.response.content_type.startswith(b"text/plain")
    reply = await site.get("/v0/metrics", headers={"accept": "application/json"})
    assert "metrics" in reply


async def test_the_document_is_served_as_it_is_made(site: Site) -> None:
    assert (await site.get("/openapi.json")).status == 404, "where there is none"
    site.app.context.openapi = lambda: b'{"openapi":"3.1.0","performance":{"server_total_ms":0}}'
    assert (await site.get("/openapi.json"))["openapi"] == "3.1.0"


async def test_records_cross_a_real_socket_to_the_byte(address: str) -> None:
    data = '{"b":1e400, "a":"é\\ud800", "a":[ ]}'.encode()
    async with httpx.AsyncClient(base_url=address, headers={"content-type": "application/json"}) as client:
        assert (await client.put("/v0/topics/a", content=b'{"durable":true}')).status_code == 201
        sent = await client.post("/v0/topics/a", content=b'{"records":[{"data":' + data + b"}]}")
        assert (sent.status_code, sent.json()["seqs"]) == (200, [1])
        read = await client.post("/v0/topics/a/diff", content=b"{}")
        assert b'"data":' + data + b"}" in read.content
        refused = await client.post("/v0/topics/a", content=b"{", headers={"content-type": "text/plain"})
        assert refused.status_code == 415
        head = await client.head("/v0/topics/a")
        assert (head.status_code, head.content) == (200, b"")
        assert msgspec.json.decode((await client.delete("/v0/topics/a")).content)["deleted"] is True


async def test_every_body_but_that_of_an_append_is_held_to_64_kib(site: Site) -> None:
    sizes = {"bulk": 64 << 20, "command": 64 << 10}
    for route in site.app.routes:
        path = "/".join("a" if part.startswith(":") else part for part in route.pattern.split("/"))
        admitted = site.app.admit(Request(route.method, path))
        assert isinstance(admitted, Call)
        bulk = (route.method, route.pattern) == ("POST", "/v0/topics/:topic")
        assert admitted.body_bytes_max == sizes["bulk" if bulk else "command"], route.pattern
    ack = b'{"node":"w","seqs":[1]}'
    assert (await site.post("/v0/topics/a/ack", ack.ljust(65_537))).code == "payload_too_large"
    assert (await site.post("/v0/topics/a/ack", ack.ljust(65_536))).code == "topic_not_found"
    assert (await site.post("/v0/topics/a", {"records": [{"data": "x" * 1_000_000}]})).status == 201
