"""Requests whose answer nobody read, sent again to the same server or to the next one on its directory."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.kit.restartable_server import PATIENCE_S, Serve, Serving

RECORDS = [{"data": 1}, {"data": 2}]
# By scene: where the request goes and what it says. The jobs of those that need some are there, and ack's and nack's
# first one is claimed.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "key": ("", {"records": RECORDS, "idempotency_key": "k"}),
    "mark": ("", {"records": RECORDS, "client_id": "c", "client_seq": 7}),
    "ack": ("/ack", {"node": "w", "seqs": [1]}),
    "nack": ("/nack", {"node": "w", "seqs": [1]}),
    "claim": ("/claim", {"node": "w", "max": 5, "claim_id": "c-1"}),
}


def send(server: Serving, path: str, body: dict[str, Any]) -> socket.socket:
    """Send a request on a bare connection."""
    peer, content = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S), json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    peer.sendall(f"{head}content-length: {len(content)}\r\n\r\n{content}".encode())
    return peer


def send_deaf(server: Serving, path: str, body: dict[str, Any]) -> None:
    """Send a request, wait until its answer begins (so it was carried out), and read no more of it."""
    with send(server, path, body) as peer:
        assert peer.recv(1) == b"H"


class Again:
    """Sends a scene's request again."""

    def __init__(self, server: Serving, path: str) -> None:
        self.server = server
        self.path = path

    def __call__(self, scene: str) -> httpx.Response:
        action, body = REQUESTS[scene]
        return self.server.call("POST", f"{self.path}-{scene}{action}", body)


def lose_answers(server: Serving, name: str) -> None:
    for scene, (action, body) in REQUESTS.items():
        path = f"/v0/topics/{name}-{scene}"
        server.ok("PUT", path, {"type": "queue", "durability": "fsync"})
        if action:
            server.ok("POST", path, {"records": RECORDS})
        if scene in ("ack", "nack"):
            server.ok("POST", f"{path}/claim", {"node": "w"})
        send_deaf(server, path + action, body)


@pytest.fixture(scope="module")
def survivor(serve_all: Serve) -> Serving:
    """A server that was killed after some answers were lost, and lost some more when it was back."""
    server = serve_all()
    lose_answers(server, "restarted")
    server.kill()
    server.start()
    lose_answers(server, "running")
    return server


@pytest.fixture(params=["running", "restarted"])
def again(request: pytest.FixtureRequest, survivor: Serving) -> Again:
    return Again(survivor, f"/v0/topics/{request.param}")


def test_fault_26_a_key_sent_again_gives_the_same_seqs(survivor: Serving, again: Again) -> None:
    for _ in range(2):
        answer = again("key").json()
        assert (answer["seqs"], answer["deduped"]) == ([1, 2], True)
    assert survivor.ok("GET", f"{again.path}-key")["count"] == 2


def test_fault_26_a_mark_sent_again_tells_what_it_gave(survivor: Serving, again: Again) -> None:
    answer = again("mark")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "idempotency_conflict")
    assert error["detail"]["last_client_seq"] == 7
    assert error["detail"]["first_seq"] == 1
    assert survivor.ok("GET", f"{again.path}-mark")["count"] == 2
    following = REQUESTS["mark"][1] | {"client_seq": 8}
    assert survivor.ok("POST", f"{again.path}-mark", following)["seqs"] == [3, 4]


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_fault_27_an_ack_or_nack_sent_again_skips_and_changes_nothing(again: Again, verb: str) -> None:
    for _ in range(2):
        answer = again(verb).json()
        assert (answer[f"{verb}ed"], answer["skipped"], answer["in_flight"]) == (0, [1], 0)
        assert answer["ready"] == (1 if verb == "ack" else 2)


def test_fault_28_a_claim_is_answered_again_by_its_id(survivor: Serving, again: Again) -> None:
    first = again("claim").json()
    assert [(job["$seq"], job["deliveries"]) for job in first["claimed"]] == [(1, 1), (2, 1)], "no delivery is burnt"
    assert again("claim").json()["claimed"] == first["claimed"]
    settled = survivor.ok("POST", f"{again.path}-claim/ack", {"node": "w", "lease_id": first["lease_id"]})
    assert settled["acked"] == 2


def test_fault_28_without_an_id_the_jobs_are_back_when_the_lease_ends(serve: Serve) -> None:
    server = serve(test_clock=True)
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    server.ok("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    send_deaf(server, "/v0/topics/q/claim", {"node": "w"})
    assert server.ok("POST", "/v0/topics/q/claim", {"node": "w"})["claimed"] == []
    server.advance(30_001)
    (job,) = server.ok("POST", "/v0/topics/q/claim", {"node": "w"})["claimed"]
    assert job["deliveries"] == 2


def test_fault_30_a_produce_cut_by_a_kill_is_there_whole_or_not_at_all(server: Serving) -> None:
    """Killed at whatever point it has come to: each append is one batch or nothing, and one that was answered is there.

    httpx tells of a kill as an error, from which nothing follows.
    """
    server.ok("PUT", "/v0/topics/q", {"durability": "fsync"})
    for number in range(3):
        with server.client() as client:
            client.get("/v0/health")
            peer = send(server, "/v0/topics/q", {"records": [{"data": number}] * 100})
            server.kill()
            with pytest.raises(httpx.TransportError):
                client.post("/v0/topics/q", json={"records": [{"data": "never"}]})
        answered = b""
        with peer, suppress(ConnectionError):
            answered = peer.recv(1)
        server.start()
        found = [record["data"] for record in server.ok("POST", "/v0/topics/q/diff", {"limit": 1000})["records"]]
        assert found.count(number) in ((100,) if answered else (0, 100))
        assert "never" not in found
