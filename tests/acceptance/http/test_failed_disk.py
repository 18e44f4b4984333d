"""Fault 13 from outside: a server whose disk has failed says so wherever somebody looks."""

from __future__ import annotations

import shutil

from tests.kit.restartable_server import Serve, until


def test_fault_13_a_failed_disk_is_seen_in_readiness_log_metrics_answers_and_exit_code(serve: Serve) -> None:
    server = serve()
    server.ok("PUT", "/v0/topics/q", {"type": "queue", "durability": "fsync"})
    server.ok("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    assert server.ok("GET", "/v0/ready")["status"] == "ready"
    shutil.rmtree(server.home)
    lost = server.call("POST", "/v0/topics/q", {"records": [{"data": 2}]})
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "indeterminate")
    ready = server.call("GET", "/v0/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "failed")
    assert server.call("GET", "/healthz").status_code == 200, "the process answers"
    assert "tenure_log_failed 1" in server.call("GET", "/v0/metrics").text
    for path, body in (
        ("/v0/topics/q", {"records": [{"data": 3}]}),
        ("/v0/topics/q/claim", {"node": "w"}),
        ("/v0/topics/q/claim", {"node": "w", "wait_ms": 60_000}),
        ("/v0/topics/empty/claim", {"node": "w"}),
    ):
        refused = server.call("POST", path, body)
        assert refused.status_code in (404, 503), refused.text
        assert path.startswith("/v0/topics/empty") or refused.json()["error"]["code"] == "read_only"
    read = server.ok("POST", "/v0/topics/q/diff", {"from_seq": 0})
    assert [record["data"] for record in read["records"]] == [1], "what is safe can be read"
    until(lambda: "syncing failed" in server.log(), "a line in the log")
    assert server.terminate() == 1
