"""Tenants by prefix, and what one of them may use up (faults 47, 49)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.http.bare import Bare
from tests.kit.restartable_server import Serve, Serving, until

RED, BLUE, ROOT = "red-key-0123456789", "blue-key-0123456789", "root-key-0123456789"
KEYS = f"{RED}:rwda:red.,{BLUE}:rwda:blue.,{ROOT}"


@pytest.fixture(scope="module")
def server(serve_all: Serve) -> Serving:
    server = serve_all(keys=KEYS)
    for name, key in (("red.q", RED), ("blue.q", BLUE)):
        server.ok("PUT", f"/v0/topics/{name}", {"type": "queue"}, key=key)
        server.ok("POST", f"/v0/topics/{name}", {"records": [{"data": name}] * 3}, key=key)
    return server


def test_fault_47_another_tenants_topic_is_out_of_reach_by_every_route(server: Serving) -> None:
    for method, path, body in [
        ("GET", "", None),
        ("PUT", "", {}),
        ("DELETE", "", None),
        ("POST", "", {"records": [{"data": 1}]}),
        ("POST", "/diff", {}),
        ("POST", "/delete", {"before_seq": 100}),
        ("POST", "/claim", {"node": "w"}),
        ("POST", "/ack", {"node": "w", "seqs": [1]}),
        ("POST", "/nack", {"node": "w", "seqs": [1]}),
        ("POST", "/extend", {"node": "w", "seqs": [1], "lease_ms": 1_000}),
        ("POST", "/redrive", {}),
        ("GET", "/jobs", None),
        ("GET", "/jobs/1", None),
        ("GET", "/leases", None),
        ("GET", "/events", None),
        ("GET", "/work?node=w", None),
    ]:
        for name in ("red.q", "red.absent"):
            answer = server.call(method, f"/v0/topics/{name}{path}", body, key=BLUE)
            assert answer.status_code == 403, (method, path, answer.text)
            assert name == "red.absent" or "red.q" not in answer.text, "there or not, the answer is the same"
    assert server.queue("red.q", key=RED)["ready"] == 3


def test_fault_47_another_tenants_topic_is_out_of_reach_through_a_body(server: Serving) -> None:
    for method, path, body in [
        ("PUT", "/v0/topics/blue.sly", {"type": "queue", "dead_letter": "red.q"}),
        ("POST", "/v0/topics/blue.sly", {"records": [{"data": 1}], "config": {"dead_letter": "red.q"}}),
        ("PUT", "/v0/routers/blue.r", {"source": "red.q", "dest": "blue.copy"}),
        ("PUT", "/v0/routers/blue.r", {"source": "blue.q", "dest": "red.q"}),
        ("POST", "/v0/topics/blue.q/redrive", {"to": "red.q"}),
        ("POST", "/v0/watch", {"topics": {"blue.q": {}, "red.q": {}}}),
    ]:
        answer = server.call(method, path, body, key=BLUE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), (path, answer.text)
    assert server.call("GET", "/v0/topics/blue.sly", key=BLUE).status_code == 404


def test_fault_47_another_tenants_lease_counts_for_nothing(server: Serving) -> None:
    mine = server.ok("POST", "/v0/topics/red.q/claim", {"node": "w", "max": 1}, key=RED)
    theirs = server.ok("POST", "/v0/topics/blue.q/claim", {"node": "w", "max": 1}, key=BLUE)
    seq, lease = mine["claimed"][0]["$seq"], mine["lease_id"]
    assert seq == theirs["claimed"][0]["$seq"]
    for verb, extra in (("ack", {}), ("nack", {}), ("extend", {"lease_ms": 1_000})):
        body: dict[str, Any] = {"node": "w", "seqs": [seq], "lease_ids": [lease]} | extra
        assert server.ok("POST", f"/v0/topics/blue.q/{verb}", body, key=BLUE)["skipped"] == [seq]
        whole = server.ok("POST", f"/v0/topics/blue.q/{verb}", {"node": "w", "lease_id": lease} | extra, key=BLUE)
        assert whole[{"ack": "acked", "nack": "nacked", "extend": "extended"}[verb]] == 0
    assert server.ok("POST", "/v0/topics/red.q/ack", {"node": "w", "lease_id": lease}, key=RED)["acked"] == 1


def test_fault_47_another_tenants_watch_session_does_not_open(server: Serving) -> None:
    watch = server.ok("POST", "/v0/watch", {"topics": {"red.q": {}}}, key=RED)
    for key in (BLUE, ROOT, ""):
        answer = server.call("GET", watch["stream_url"], key=key, accept="text/event-stream")
        assert answer.status_code == 401, answer.text
        assert "red" not in answer.text


def test_fault_47_listings_and_metrics_show_only_ones_own(server: Serving) -> None:
    server.ok("PUT", "/v0/routers/red.r", {"source": "red.q", "dest": "red.copy"}, key=RED)
    for path in ("/v0/topics", "/v0/topics?prefix=red", "/v0/routers", "/v0/routers?source=red.q", "/v0/metrics"):
        answer = server.call("GET", path, key=BLUE)
        assert answer.status_code == 200
        assert not re.search(r"\bred\.", answer.text), path
    names = {topic["topic"] for topic in server.ok("GET", "/v0/topics", key=ROOT)["topics"]}
    assert {"red.q", "blue.q"} <= names


# What one may use up


def refused(server: Serving, method: str, path: str, body: Any, *, key: str = "") -> tuple[int, str, Any]:
    answer = server.call(method, path, body, key=key)
    error = answer.json()["error"]
    if answer.status_code == 429:
        assert int(answer.headers["retry-after"]) > 0
    return answer.status_code, error["code"], error.get("detail", {}).get("max")


def test_fault_49_topics_routers_records_and_bytes_are_capped(serve: Serve) -> None:
    server = serve(settings={"engine.topics_max": 3, "engine.routers_max": 1, "engine.records_max": 5})
    for number in range(3):
        server.ok("PUT", f"/v0/topics/t{number}")
    assert refused(server, "PUT", "/v0/topics/t3", {}) == (429, "throttled", 3)
    assert refused(server, "POST", "/v0/topics/t3", {"records": [{"data": 1}]}) == (429, "throttled", 3)
    server.ok("PUT", "/v0/routers/r0", {"source": "t0", "dest": "t1"})
    assert refused(server, "PUT", "/v0/routers/r1", {"source": "t1", "dest": "t2"}) == (429, "throttled", 1)
    status, code, _ = refused(server, "POST", "/v0/topics/t0", {"records": [{"data": 1}] * 6})
    assert (status, code) == (400, "batch_too_large")
    status, code, _ = refused(server, "POST", "/v0/topics/t0", {"records": [{"data": "x" * (1 << 20)}]})
    assert (status, code) == (400, "record_too_large")
    server.ok("DELETE", "/v0/topics/t2")
    server.ok("PUT", "/v0/topics/t3")


def test_fault_49_jobs_in_flight_and_jobs_at_all_are_capped(serve: Serve) -> None:
    server = serve()
    server.ok("PUT", "/v0/topics/q", {"type": "queue", "max_in_flight": 2, "cap_records": 5, "discard": "reject"})
    server.ok("POST", "/v0/topics/q", {"records": [{"data": 1}] * 5})
    status, code, _ = refused(server, "POST", "/v0/topics/q", {"records": [{"data": 1}]})
    assert (status, code) == (422, "topic_full")
    claim = server.ok("POST", "/v0/topics/q/claim", {"node": "w", "max": 10})
    assert claim["count"] == 2
    assert refused(server, "POST", "/v0/topics/q/claim", {"node": "w"}) == (429, "in_flight_cap_exceeded", 2)
    server.ok("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})
    assert server.ok("POST", "/v0/topics/q/claim", {"node": "w", "max": 10})["count"] == 1
    many = list(range(1, 1_002))
    status, code, _ = refused(server, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": many})
    assert (status, code) == (400, "batch_too_large")


def test_fault_49_streams_sessions_and_requests_of_one_key_are_capped_and_others_go_on(serve: Serve) -> None:
    settings = {"streams_per_key_max": 2, "watch_sessions_max": 8, "requests_per_key_max": 2}
    server = serve(keys=KEYS, settings=settings)
    server.ok("PUT", "/v0/topics/red.q", {"type": "queue"}, key=RED)
    server.ok("PUT", "/v0/topics/blue.q", {"type": "queue"}, key=BLUE)
    head = f"HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {RED}\r\naccept: text/event-stream\r\n".encode()
    peers = [Bare(server) for _ in range(4)]
    try:
        for peer in peers[:2]:
            peer.send(b"GET /v0/topics/red.q/work?node=w " + head + b"\r\n")
            assert peer.head()[0] == 200
        assert refused(server, "GET", "/v0/topics/red.q/work?node=w", None, key=RED) == (429, "throttled", 2)
        with server.client() as client:
            auth = {"authorization": f"Bearer {BLUE}", "accept": "text/event-stream"}
            with client.stream("GET", "/v0/topics/blue.q/work?node=w", headers=auth) as other:
                assert other.status_code == 200
        body = b'{"wait_ms":30000}'
        for peer in peers[2:]:
            peer.send(b"POST /v0/topics/red.q/diff " + head)
            peer.send(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        until(lambda: server.call("GET", "/v0/topics/red.q", key=RED).status_code == 429, "both polls are counted")
        assert server.call("GET", "/v0/topics/blue.q", key=BLUE).status_code == 200
    finally:
        for peer in peers:
            peer.close()
    until(lambda: server.call("GET", "/v0/topics/red.q", key=RED).status_code == 200, "what was held is free again")
    for _ in range(2):
        server.ok("POST", "/v0/watch", {"topics": {"red.q": {}}}, key=RED)
    status, code, _ = refused(server, "POST", "/v0/watch", {"topics": {"red.q": {}}}, key=RED)
    assert (status, code) == (429, "throttled")
    server.ok("POST", "/v0/watch", {"topics": {"blue.q": {}}}, key=BLUE)


def test_fault_49_connections_are_capped(serve: Serve) -> None:
    server = serve(settings={"limits.connections_max": 5})
    peers: list[Bare] = []
    try:
        for _ in range(5):  # each is heard before the next comes: a silent one would give way to it
            peers.append(Bare(server))
            peers[-1].send(b"GET /v0/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert peers[-1].answer()[0] == 200
        with Bare(server) as late:
            late.send(b"GET /v0/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert late.answer()[0] == 503
    finally:
        for peer in peers:
            peer.close()
    until(lambda: _answers(server), "there is room again")


def _answers(server: Serving) -> bool:
    return server.call("GET", "/v0/health").status_code == 200
