"""Readers of event streams that are cut off and come back with Last-Event-ID (fault 32)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import httpx

from tests.kit.restartable_server import Serve, Serving

RECORDS = 300


@contextmanager
def following(server: Serving, path: str, last_id: str | None) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a stream, by their fields."""
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    with server.client() as client, client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    for line in answer.iter_lines():
        if not line:
            if "event" in found:
                yield found
            found = {}
            continue
        name, _, value = line.partition(": ")
        found[name] = json.loads(value) if name == "data" else value


def test_fault_32_a_watch_cut_at_any_frame_goes_on_without_gap_or_repeat(serve: Serve) -> None:
    """Records keep coming in between. What the reader has taken is what it says it has, by the last id it saw."""
    server, random = serve(), Random(32)
    names = ["one", "two"]
    for name in names:
        server.ok("POST", f"/v0/topics/{name}", {"records": [{"data": n} for n in range(RECORDS)]})
    watch = server.ok("POST", "/v0/watch", {"topics": {name: {} for name in names}, "limit": 7})
    seen: dict[str, list[int]] = {name: [] for name in names}
    last_id, cuts, written = None, 0, RECORDS
    while any(len(found) < written for found in seen.values()):
        with following(server, watch["stream_url"], last_id) as events:
            for _ in range(random.randrange(1, 15)):
                event = next(events)
                last_id = event["id"]
                if event["event"] == "record":
                    seen[event["data"]["topic"]] += [record["data"] for record in event["data"]["records"]]
                elif all(len(found) == written for found in seen.values()):
                    break
        cuts += 1
        if cuts <= 10:
            for name in names:
                server.ok("POST", f"/v0/topics/{name}", {"records": [{"data": written}]})
            written += 1
    assert cuts > 5
    assert seen == {name: list(range(written)) for name in names}


def test_fault_32_an_older_id_rewinds_and_loss_in_between_is_told(serve: Serve) -> None:
    server = serve()
    server.ok("PUT", "/v0/topics/capped", {"cap_records": 10})
    server.ok("POST", "/v0/topics/capped", {"records": [{"data": n} for n in range(5)]})
    watch = server.ok("POST", "/v0/watch", {"topics": {"capped": {}}, "limit": 2})
    with following(server, watch["stream_url"], None) as events:
        first, second = next(events), next(events)
    assert [record["data"] for record in second["data"]["records"]] == [2, 3]
    with following(server, watch["stream_url"], first["id"]) as events:
        assert [record["data"] for record in next(events)["data"]["records"]] == [2, 3], "again, as asked"
    server.ok("POST", "/v0/topics/capped", {"records": [{"data": n} for n in range(5, 30)]})
    with following(server, watch["stream_url"], second["id"]) as events:
        gap, after = next(events), next(events)
    assert gap["event"] == "tombstone"
    assert (gap["data"]["gap_from"], gap["data"]["gap_to"], gap["data"]["reason"]) == (5, 20, "cap")
    assert after["data"]["records"][0]["$seq"] == 21


def test_fault_32_after_a_restart_the_id_itself_tells_where_to_go_on(serve: Serve) -> None:
    """A session does not outlive the server; its frames' ids hold every cursor, for a new one."""
    server = serve()
    server.ok("POST", "/v0/topics/t", {"records": [{"data": n} for n in range(10)]})
    watch = server.ok("POST", "/v0/watch", {"topics": {"t": {}}, "limit": 4})
    with following(server, watch["stream_url"], None) as events:
        last_id = next(events)["id"]
    server.kill()
    server.start()
    assert server.call("GET", watch["stream_url"], accept="text/event-stream").status_code == 404
    cursors = json.loads(base64.urlsafe_b64decode(last_id + "=" * (-len(last_id) % 4)))
    assert cursors == {"t": 4}
    topics = {name: {"from_seq": seq} for name, seq in cursors.items()}
    watch = server.ok("POST", "/v0/watch", {"topics": topics})
    with following(server, watch["stream_url"], last_id) as events:
        assert [record["data"] for record in next(events)["data"]["records"]] == list(range(4, 10))


def test_fault_32_lifecycle_events_go_on_behind_the_last_id(serve: Serve) -> None:
    server = serve()
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    with following(server, "/v0/topics/q/events", None) as events:
        server.ok("POST", "/v0/topics/q", {"records": [{"data": 1}]})
        first = next(events)
    assert first["event"] == "produced"
    server.ok("POST", "/v0/topics/q/claim", {"node": "w"})
    server.ok("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})
    with following(server, "/v0/topics/q/events", first["id"]) as events:
        assert [next(events)["event"] for _ in range(2)] == ["claimed", "acked"]
