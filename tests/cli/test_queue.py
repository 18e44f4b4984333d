"""`tenure queue`: create, set, show, purge, delete."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from tenure.cli.commands.queue_options import FIELDS
from tenure.contract.config import DEFAULTS, as_dict
from tests.cli.conftest import COMMAND, Remote, surroundings
from tests.kit.server import Running


def test_every_field_of_a_config_has_an_option() -> None:
    assert {field.field for field in FIELDS} == set(as_dict(DEFAULTS)) - {"type", "durable"}
    assert {field.part for field in FIELDS if field.field == "retry_backoff"} == {
        "min_ms",
        "max_ms",
        "factor",
        "jitter",
    }


def test_create_makes_a_careful_queue_and_takes_every_option(remote: Remote, queue: str) -> None:
    found = remote.json("queue", "create", queue)
    config = found["config"]
    assert (found["type"], found["created"], config["durability"]) == ("queue", True, "fsync")
    assert (config["max_deliveries"], config["dead_letter"]) == (5, f"{queue}.dead")
    options = {
        "--lease": "45s",
        "--max-deliveries": 9,
        "--dead-letter": "graves",
        "--dlq-strategy": "block",
        "--durability": "disk",
        "--ttl": "2h",
        "--cap-records": 10,
        "--cap-bytes": 4096,
        "--discard": "reject",
        "--priority": -5,
        "--idempotency-window": "1m30s",
        "--claim-jitter": "250ms",
        "--max-ack-holes": 3,
        "--max-in-flight": 7,
        "--backoff-min": "1s",
        "--backoff-max": "1m",
        "--backoff-factor": 1.5,
    }
    flags = ("--no-auto-priority", "--no-auto-create", "--no-dedupe-node", "--leases-durable", "--no-backoff-jitter")
    words = [word for pair in options.items() for word in pair]
    assert remote.json("queue", "create", f"{queue}.2", *words, *flags)["config"] == {
        "type": "queue",
        "ttl_ms": 7_200_000,
        "cap_records": 10,
        "cap_bytes": 4096,
        "discard": "reject",
        "durability": "disk",
        "durable": False,
        "priority": -5,
        "auto_priority": False,
        "auto_create": False,
        "idempotency_window_ms": 90_000,
        "dedupe_node": False,
        "lease_ms": 45_000,
        "claim_jitter_ms": 250,
        "max_deliveries": 9,
        "dead_letter": "graves",
        "leases_durable": True,
        "max_ack_holes": 3,
        "max_in_flight": 7,
        "dlq_strategy": "block",
        "retry_backoff": {"min_ms": 1_000, "max_ms": 60_000, "factor": 1.5, "jitter": False},
    }


def test_create_leaves_a_queue_that_is_there_as_it_is(remote: Remote, queue: str) -> None:
    remote.ok("queue", "create", queue, "--lease", "45s")
    done = remote("queue", "create", queue)
    assert (done.returncode, done.stdout) == (1, "")
    assert "tenure queue set" in done.stderr
    assert remote.json("queue", "show", queue)["config"]["lease_ms"] == 45_000


def test_create_without_a_dead_letter(remote: Remote, queue: str) -> None:
    config = remote.json("queue", "create", queue, "--unset", "dead_letter", "--unset", "max_deliveries")["config"]
    assert (config["dead_letter"], config["max_deliveries"]) == (None, 0)


def test_create_turns_a_log_that_a_put_made_by_mistake_into_a_queue(
    remote: Remote, queue: str, server: Running
) -> None:
    with server.client() as client:
        client.post(f"/v0/topics/{queue}", json={"records": [{"data": 1}]})
    assert remote.json("queue", "create", queue)["type"] == "queue"
    assert [job["data"] for job in remote.json("claim", queue)["jobs"]] == [1]


def test_set_changes_what_it_names_and_nothing_else(remote: Remote, queue: str) -> None:
    before = remote.json("queue", "create", queue, "--lease", "45s", "--backoff-min", "1s")["config"]
    after = remote.json("queue", "set", queue, "--max-deliveries", 8, "--backoff-max", "2s", "--unset", "dead_letter")
    backoff = before["retry_backoff"] | {"max_ms": 2_000}
    assert after["config"] == before | {"max_deliveries": 8, "retry_backoff": backoff, "dead_letter": None}
    text = remote.ok("queue", "set", queue, "--unset", "lease_ms")
    assert text.startswith(f"changed {queue}\n")
    assert "| lease_ms " in text
    assert remote.json("queue", "show", queue)["config"]["lease_ms"] == 30_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say what to change"),
        (("--unset", "leese"), "a field of the config"),
        (("--unset", "lease_ms", "--lease", "1s"), "set and unset"),
        (("--lease", "soon"), "no duration"),
        (("--priority", "1001"), "1000"),
        (("--durability", "raid"), "one of"),
        (("--dead-letter", "a b"), "dead_letter"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage_and_changes_nothing(
    remote: Remote, queue: str, options: tuple[str, ...], words: str
) -> None:
    before = remote.json("queue", "create", queue)["config"]
    done = remote("queue", "set", queue, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())
    assert remote.json("queue", "show", queue)["config"] == before


def test_a_queue_that_is_not_there_is_exit_code_1(remote: Remote, queue: str) -> None:
    for verb in (("set", queue, "--lease", "1s"), ("show", queue), ("purge", queue, "-y"), ("delete", queue, "-y")):
        assert remote("queue", *verb).returncode == 1
        assert remote.json("queue", *verb, code=1)["error"]["code"] == "topic_not_found"


def test_show_counts_the_dead_as_they_lie_now(remote: Remote, queue: str, server: Running) -> None:
    remote.ok("queue", "create", queue)
    remote.ok("put", queue, "1", "2", "3")
    with server.client() as client:
        client.post(f"/v0/topics/{queue}/claim", json={"node": "n", "max": 2})
        client.post(f"/v0/topics/{queue}/nack", json={"node": "n", "seqs": [1, 2], "dead": True, "reason": "bad"})
    remote.ok("dead", "redrive", queue, "1")
    counts = remote.json("queue", "show", queue)["queue"]
    assert (counts["ready"], counts["dead"], counts["dead_lettered"]) == (2, 1, 2)
    text = remote.ok("queue", "show", queue)
    assert f"{queue} is a queue: 2 records" in text
    assert "| ready | suspects | in flight | delayed | parked | dead |" in text
    assert "|     2 |        0 |         0 |       0 |      0 |    1 |" in text
    [row] = remote.json("topics", f"{queue}")["topics"][:1]
    assert row["queue"]["dead"] == 1
    assert remote.json("top", queue, "--interval", "100ms")["queues"][0]["dead"] == 1
    assert "|    1 |" in remote.ok("topics", queue)


def test_purge_says_how_many_went_and_keeps_the_queue(remote: Remote, queue: str) -> None:
    remote.ok("queue", "create", queue, "--lease", "45s")
    remote.ok("put", queue, "1", "2", "3")
    remote.ok("claim", queue)
    assert remote.ok("queue", "purge", queue, "--yes") == f"{queue}: purged 3 records\n"
    found = remote.json("queue", "show", queue)
    assert (found["count"], found["queue"]["in_flight"], found["config"]["lease_ms"]) == (0, 0, 45_000)
    assert remote.json("queue", "purge", queue)["count"] == 0, "nothing to ask about"


def test_delete_takes_the_queue_and_its_routers(remote: Remote, queue: str, server: Running) -> None:
    remote.ok("queue", "create", queue)
    remote.ok("put", queue, "1")
    with server.client() as client:
        client.put(f"/v0/routers/{queue}.r", json={"source": queue, "dest": f"{queue}.copy"})
    assert remote("queue", "delete", queue, "--if-empty", "--yes").returncode == 1
    assert remote.ok("queue", "delete", queue, "--yes") == f"deleted {queue} with 1 record, and 1 router: {queue}.r\n"
    assert remote("queue", "show", queue).returncode == 1


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_without_a_terminal_nothing_is_deleted_unasked(remote: Remote, queue: str, verb: str) -> None:
    remote.ok("queue", "create", queue)
    remote.ok("put", queue, "1")
    done = remote("queue", verb, queue)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert remote.json("queue", "show", queue)["count"] == 1


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"n\n", 2)])
def test_at_a_terminal_purge_asks_first(remote: Remote, queue: str, answer: bytes, left: int) -> None:
    remote.ok("queue", "create", queue)
    remote.ok("put", queue, "1", "2")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [COMMAND, "queue", "purge", queue],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(TENURE_URL=remote.url),
    )
    try:
        os.close(theirs)
        os.write(ours, answer)
        _, asked = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert f"Delete 2 jobs of {queue} for good?".encode() in asked
    assert remote.json("queue", "show", queue)["count"] == left
