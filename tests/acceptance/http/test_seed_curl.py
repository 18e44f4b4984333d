"""The examples of the queue page as they stand, typed into a shell with curl; and the same calls by httpx."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.restartable_server import PATIENCE_S, Serve, Serving, until

CREATE = """curl -X PUT $TOPICS/v0/topics/transcode \\
-H 'content-type: application/json' \\
-d '{ "type": "queue", "durable": true, "discard": "reject",
"lease_ms": 30000, "claim_jitter_ms": 0,
"max_deliveries": 5, "dead_letter": "transcode.dlq" }'"""
PRODUCE = """curl -X POST $TOPICS/v0/topics/transcode \\
-H 'content-type: application/json' \\
-d '{ "records": [ { "data": { "type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p" },
"tag": "clip-8800" } ] }'"""
WORK = """curl -N "$TOPICS/v0/topics/transcode/work?node=api-fra-1&max=8" \\
-H 'accept: text/event-stream'"""
LOOK = "curl $TOPICS/v0/topics/transcode"
CLAIM = '{ "node": "api-fra-1", "max": 16, "lease_ms": 30000 }'
ACK = '{ "node": "api-fra-1", "seqs": [480101, 480104], "lease_ids": ["lease_1a2b", "lease_3c4d"] }'
NACK = '{ "node": "api-fra-1", "seqs": [480104], "delay_ms": 0, "lease_ids": ["lease_3c4d"] }'
EXTEND = '{ "node": "api-fra-1", "seqs": [480101], "lease_ms": 30000, "lease_ids": ["lease_1a2b"] }'
DATA = {"type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p"}

Ask = Callable[[str], tuple[int, Any]]


def post(verb: str, body: str) -> str:
    """A body of the page as a call."""
    return f"curl -X POST $TOPICS/v0/topics/transcode/{verb} -H 'content-type: application/json' -d '{body}'"


def with_real_jobs(body: str, jobs: list[dict[str, Any]]) -> str:
    """The page's body about jobs that are there: its seqs and lease ids replaced in order, the rest as it stands."""
    given = json.loads(body)
    count = len(given["seqs"])
    given["seqs"] = [job["$seq"] for job in jobs[:count]]
    given["lease_ids"] = [job["lease_id"] for job in jobs[:count]]
    return json.dumps(given)


class Shell:
    """Runs a command line as it stands; a .curlrc has curl be quiet and tell the status behind the body."""

    def __init__(self, directory: Path, address: str) -> None:
        (directory / ".curlrc").write_text('silent\nshow-error\nnoproxy = "*"\nwrite-out = "\\n%{http_code}"\n')
        self.environment = {**os.environ, "CURL_HOME": str(directory), "TOPICS": address}

    def __call__(self, line: str) -> tuple[int, Any]:
        done = subprocess.run(
            ["sh", "-c", line], env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)


class ByHttpx:
    """Does what the command line asks for without curl."""

    def __init__(self, address: str) -> None:
        self.address = address

    def read(self, line: str) -> tuple[str, str, dict[str, str], str | None]:
        words = iter(shlex.split(line.replace("\\\n", " ").replace("$TOPICS", self.address))[1:])
        method, url, headers, body = "GET", "", {}, None
        for word in words:
            match word:
                case "-X":
                    method = next(words)
                case "-H":
                    name, _, value = next(words).partition(": ")
                    headers[name] = value
                case "-d":
                    body = next(words).replace("\n", "")
                case "-N":
                    pass
                case _:
                    url = word
        return method, url, headers, body

    def __call__(self, line: str) -> tuple[int, Any]:
        method, url, headers, body = self.read(line)
        with httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_S) as client:
            answer = client.request(method, url, headers=headers, content=body)
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def only(serve_all: Serve) -> Serving:
    return serve_all()


@pytest.fixture
def server(only: Serving) -> Serving:
    """One server for all examples; each begins without its topics."""
    for name in ("transcode", "transcode.dlq"):
        only.ok("DELETE", f"/v0/topics/{name}")
    return only


@pytest.fixture(params=["curl", "httpx"])
def ask(request: pytest.FixtureRequest, server: Serving, tmp_path: Path) -> Ask:
    """A way to send the page's examples."""
    if request.param == "httpx":
        return ByHttpx(server.address)
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return Shell(tmp_path, server.address)


@pytest.fixture
def jobs(ask: Ask) -> list[dict[str, Any]]:
    """Two jobs of the page, claimed by its worker."""
    assert ask(CREATE)[0] == 201
    for _ in range(2):
        assert ask(PRODUCE)[0] == 200
    status, claim = ask(post("claim", CLAIM))
    assert status == 200
    found: list[dict[str, Any]] = claim["claimed"]
    return found


def test_the_queue_is_created_as_the_page_says(ask: Ask) -> None:
    status, made = ask(CREATE)
    assert (status, made["created"], made["topic"]) == (201, True, "transcode")
    expected = {
        "type": "queue",
        "durable": True,
        "durability": "fsync",
        "discard": "reject",
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 5,
        "dead_letter": "transcode.dlq",
        "leases_durable": False,
    }
    assert {name: made["config"][name] for name in expected} == expected
    status, again = ask(CREATE)
    assert (status, again["created"]) == (200, False)


def test_a_job_is_produced_as_the_page_says(ask: Ask) -> None:
    ask(CREATE)
    status, made = ask(PRODUCE)
    assert status == 200
    assert (made["first_seq"], made["last_seq"], made["seqs"], made["deduped"]) == (1, 1, [1], False)
    assert made["performance"]["server_total_ms"] >= made["performance"]["fsync_ms"] > 0


def test_a_claim_answers_every_field_of_the_page(ask: Ask) -> None:
    ask(CREATE)
    ask(PRODUCE)
    ask(PRODUCE)
    before_ms = int(time.time() * 1000)
    status, claim = ask(post("claim", CLAIM))
    after_ms = int(time.time() * 1000)
    assert status == 200
    assert set(claim) >= {"topic", "claimed", "count", "ready", "performance"}
    assert (claim["topic"], claim["count"], claim["ready"]) == ("transcode", 2, 0)
    assert set(claim["performance"]) >= {"server_total_ms", "throttle_wait_ms"}
    assert [job["$seq"] for job in claim["claimed"]] == [1, 2]
    for job in claim["claimed"]:
        assert set(job) == {"$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data"}
        assert (job["data"], job["$tag"], job["deliveries"]) == (DATA, "clip-8800", 1)
        assert job["lease_id"].startswith("lease_")
        int(job["lease_id"].removeprefix("lease_"), 16)
        assert before_ms + 30_000 - 2 <= job["deadline"] <= after_ms + 30_000 + 2
        assert before_ms - PATIENCE_S * 1000 <= job["$ts"] <= after_ms + 2


def test_an_ack_of_jobs_that_were_never_there_skips_them(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    """The page's own body, to the letter: its seqs are nobody's here."""
    status, answer = ask(post("ack", ACK))
    assert status == 200
    assert {name: answer[name] for name in ("topic", "acked", "skipped", "ready", "in_flight")} == {
        "topic": "transcode",
        "acked": 0,
        "skipped": [480101, 480104],
        "ready": 0,
        "in_flight": 2,
    }
    assert ask(post("nack", NACK))[1]["skipped"] == [480104]
    assert ask(post("extend", EXTEND))[1]["skipped"] == [480101]


def test_an_ack_is_the_delete_and_may_be_repeated(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    line = post("ack", with_real_jobs(ACK, jobs))
    status, answer = ask(line)
    assert status == 200
    assert {name: answer[name] for name in ("topic", "acked", "skipped", "ready", "in_flight")} == {
        "topic": "transcode",
        "acked": 2,
        "skipped": [],
        "ready": 0,
        "in_flight": 0,
    }
    assert answer["performance"]["fsync_ms"] > 0, "the delete of a durable queue is synced first"
    assert ask(LOOK)[1]["count"] == 0
    status, again = ask(line)
    assert (status, again["acked"], again["skipped"]) == (200, 0, [1, 2])


def test_a_nack_gives_the_job_back_at_once(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    status, answer = ask(post("nack", with_real_jobs(NACK, jobs)))
    assert status == 200
    assert {name: answer[name] for name in ("topic", "nacked", "skipped", "ready", "in_flight")} == {
        "topic": "transcode",
        "nacked": 1,
        "skipped": [],
        "ready": 1,
        "in_flight": 1,
    }
    assert "server_total_ms" in answer["performance"]
    again = ask(post("claim", CLAIM))[1]["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(1, 2)]
    assert again[0]["lease_id"] != jobs[0]["lease_id"]


def test_an_extend_sets_the_deadline_from_now(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    before_ms = int(time.time() * 1000)
    status, answer = ask(post("extend", with_real_jobs(EXTEND, jobs)))
    assert status == 200
    assert (answer["topic"], answer["extended"], answer["skipped"]) == ("transcode", 1, [])
    assert set(answer["deadlines"]) == {"1"}
    assert answer["deadlines"]["1"] >= max(jobs[0]["deadline"], before_ms + 30_000 - 2)
    assert "server_total_ms" in answer["performance"]


def test_the_topic_shows_its_queue(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    ask(PRODUCE)
    status, seen = ask(LOOK)
    assert status == 200
    assert (seen["topic"], seen["type"]) == ("transcode", "queue")
    assert (seen["head_seq"], seen["earliest_seq"], seen["count"]) == (3, 1, 3)
    assert (seen["config"]["type"], seen["config"]["lease_ms"]) == ("queue", 30_000)
    counters = {name: seen["queue"][name] for name in ("ready", "in_flight", "dead_lettered")}
    assert counters == {"ready": 1, "in_flight": 2, "dead_lettered": 0}
    assert "server_total_ms" in seen["performance"]


def test_a_log_is_no_queue_and_what_is_not_there_is_not_made(ask: Ask) -> None:
    for line in (post("claim", CLAIM), post("ack", ACK), post("nack", NACK), post("extend", EXTEND)):
        status, answer = ask(line)
        assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    assert ask(PRODUCE)[0] == 201  # a plain append makes a log
    for line in (post("claim", CLAIM), post("ack", ACK), post("nack", NACK), post("extend", EXTEND)):
        status, answer = ask(line)
        assert (status, answer["error"]["code"]) == (409, "not_a_queue")
    status, answer = ask(CREATE)
    assert (status, answer["type"]) == (200, "queue"), "nobody had set its type"
    status, answer = ask(CREATE.replace('"type": "queue"', '"type": "log"'))
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")


def test_a_job_that_fails_five_times_is_a_dead_letter(ask: Ask, jobs: list[dict[str, Any]]) -> None:
    ask(post("ack", json.dumps({"node": "api-fra-1", "seqs": [2]})))
    nack = post("nack", json.dumps({"node": "api-fra-1", "seqs": [1]}))
    for deliveries in range(2, 6):
        ask(nack)
        assert ask(post("claim", CLAIM))[1]["claimed"][0]["deliveries"] == deliveries
    ask(nack)
    assert ask(post("claim", CLAIM))[1]["claimed"] == []
    assert ask(LOOK)[1]["queue"]["dead_lettered"] == 1
    read = "curl -X POST $TOPICS/v0/topics/transcode.dlq/diff -H 'content-type: application/json' "
    letter = ask(read + "-d '{\"include_tags\": true}'")[1]["records"][0]
    assert (letter["data"], letter["$tag"]) == (DATA, "clip-8800")
    assert {name: letter["meta"][name] for name in letter["meta"] if name != "$dead_letter_reason"} == {
        "$dead_letter_from": "transcode",
        "$dead_letter_deliveries": 5,
        "$dead_letter_src_seq": 1,
    }


# Push


@contextmanager
def streaming(client: str, server: Serving, directory: Path) -> Iterator[Iterator[str]]:
    """The lines of the page's work stream, by curl or by httpx."""
    if client == "httpx":
        method, url, headers, _ = ByHttpx(server.address).read(WORK)
        with (
            httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_S) as caller,
            caller.stream(method, url, headers=headers) as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
            yield answer.iter_lines()
        return
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shell = Shell(directory, server.address)
    process = subprocess.Popen(
        ["sh", "-c", f"exec {WORK}"], env=shell.environment, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    try:
        yield (line.rstrip("\n") for line in process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def frames(lines: Iterator[str]) -> Iterator[list[str]]:
    """Lines up to each empty one."""
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []


@pytest.mark.parametrize("client", ["curl", "httpx"])
def test_work_pushes_jobs_refills_after_an_ack_and_gives_back_when_it_ends(
    client: str, server: Serving, tmp_path: Path
) -> None:
    ask = ByHttpx(server.address)
    ask(CREATE)
    for _ in range(10):
        ask(PRODUCE)
    with streaming(client, server, tmp_path) as lines:
        blocks = frames(lines)
        assert next(blocks) == ["retry: 2000"]
        assert next(blocks) == [": hb"]
        for seq in range(1, 9):
            event_id, event, data = next(blocks)
            assert (event_id, event) == (f"id: {seq}", "event: job")
            job = json.loads(data.removeprefix("data: "))
            assert set(job) == {"topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data"}
            assert (job["topic"], job["$seq"], job["data"]) == ("transcode", seq, DATA)
        counters = server.queue("transcode")
        assert (counters["in_flight"], counters["ready"]) == (8, 2), "eight is its depth"
        ask(post("ack", json.dumps({"node": "api-fra-1", "seqs": [1, 2]})))
        assert [next(blocks)[0] for _ in range(2)] == ["id: 9", "id: 10"]
    until(lambda: server.queue("transcode")["ready"] == 8, "the worker hung up: its jobs are claimable at once")
    again = ask(post("claim", CLAIM))[1]["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(seq, 2) for seq in range(3, 11)]


def test_work_makes_no_queue(ask: Ask) -> None:
    status, answer = ask(WORK)
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    ask(PRODUCE)
    status, answer = ask(WORK)
    assert (status, answer["error"]["code"]) == (409, "not_a_queue")
