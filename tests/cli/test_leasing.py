"""`tenure claim`, `ack`, `nack`, `extend`: a lease from the command line."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tenure.cli.commands import settle
from tenure.cli.main import LOST, OK, UNKNOWN
from tests.cli.conftest import Remote, until_connected
from tests.kit.server import Running


def test_claim_prints_the_jobs_and_the_lease(remote: Remote, queue: str):
    remote.ok("put", queue, '{"to": "ada"}', "2", "--tag", "mail")
    text = remote.ok("claim", queue, "--max", 5, "--node", "me", "--lease", "1m")
    assert f"{queue}: 2 jobs held by me until 20" in text
    assert '| mail | {"to": "ada"} |' in text
    assert "\x1b" not in text


def test_claim_as_json_has_everything_an_ack_needs(remote: Remote, queue: str):
    remote.ok("put", queue, '{"to": "ada"}')
    found = remote.json("claim", queue, "--node", "me")
    [job] = found["jobs"]
    assert (found["node"], found["topic"], found["lease_id"]) == ("me", queue, job["lease_id"])
    assert (job["seq"], job["deliveries"], job["data"]) == (1, 1, {"to": "ada"})
    assert job["deadline"] > job["ts"]


def test_an_empty_queue_is_exit_code_4_and_no_failure(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    remote.ok("claim", queue)
    done = remote("claim", queue)
    assert (done.returncode, done.stdout, done.stderr) == (4, f"{queue}: no job is ready\n", "")
    assert remote.json("claim", queue, code=4)["jobs"] == []


def test_an_unknown_queue_is_exit_code_1(remote: Remote, queue: str):
    done = remote("claim", queue)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert remote.json("claim", queue, code=1)["error"]["code"] == "topic_not_found"


def test_claim_waits_for_a_job_to_come(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    remote.ok("claim", queue, "--lease", "1h")
    with remote.start("claim", queue, "--wait", "30s", "--json") as waiting:
        remote.ok("put", queue, "2")
        assert waiting.stdout is not None
        assert json.loads(waiting.stdout.read())["jobs"][0]["data"] == 2
        assert waiting.wait() == 0


def test_claim_gives_up_after_its_wait(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    remote.ok("claim", queue, "--lease", "1h")
    assert remote("claim", queue, "--wait", "50ms").returncode == 4


def test_ack_completes_jobs_by_seq_under_the_same_default_node(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2", "3")
    remote.ok("claim", queue, "--max", 3)
    assert remote.ok("ack", queue, 1, 2) == f"{queue}: acked 2 jobs\n"
    found = remote.json("ack", queue, 3)
    assert (found["count"], found["skipped"], found["in_flight"]) == (1, [], 0)


def test_ack_by_lease_id_takes_everything_it_holds(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2")
    lease = remote.json("claim", queue, "--max", 2)["lease_id"]
    assert remote.json("ack", queue, "--lease-id", lease)["count"] == 2


def test_a_job_that_is_not_held_any_more_is_exit_code_7(remote: Remote, queue: str):
    """Fault 40."""
    remote.ok("put", queue, "1", "2")
    remote.ok("claim", queue, "--max", 2, "--node", "me")
    for verb in (("ack", queue, 1), ("nack", queue, 1), ("extend", queue, 1, "--lease", "5s")):
        done = remote(*verb, "--node", "somebody-else")
        assert done.returncode == 7
        assert "not held any more, so left alone: 1" in done.stdout
    assert remote.json("ack", queue, 1, "--node", "else", code=7)["skipped"] == [1]
    assert remote.json("inspect", queue)["queue"]["in_flight"] == 2


def test_a_lease_under_which_nothing_is_held_any_more_is_exit_code_7(remote: Remote, queue: str):
    """Fault 40: the loop of a script acks by lease id alone, and must hear that the work was in vain."""
    remote.ok("put", queue, "1")
    lease = remote.json("claim", queue)["lease_id"]
    remote.ok("nack", queue, "--lease-id", lease)
    for verb in (("ack",), ("nack",), ("extend", "--lease", "5s")):
        done = remote(verb[0], queue, "--lease-id", lease, *verb[1:])
        assert done.returncode == 7
        assert "nothing is held under this lease any more" in done.stdout
    assert remote.json("ack", queue, "--lease-id", lease, code=7)["count"] == 0


def test_a_repeated_ack_that_finds_nothing_is_exit_code_8_because_it_may_have_been_ours():
    settled = {"skipped": [1], "count": 0, "repeated": True}
    assert (settle._code(settled), settle._code(settled | {"repeated": False})) == (UNKNOWN, LOST)
    assert settle._code(settled | {"skipped": [], "count": 1}) == OK
    assert settle._code(settled | {"deadlines": {}}) == LOST


def test_strict_changes_nothing_where_one_job_is_not_ours(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2")
    remote.ok("claim", queue, "--node", "me")
    remote.ok("claim", queue, "--node", "you")
    done = remote("ack", queue, 1, 2, "--node", "me", "--strict")
    assert (done.returncode, done.stdout) == (7, "")
    assert remote.json("inspect", queue)["queue"]["in_flight"] == 2


def test_nack_gives_back_with_a_reason_and_a_delay(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2")
    remote.ok("claim", queue, "--max", 2)
    assert remote.ok("nack", queue, 1, "--reason", "busy") == f"{queue}: nacked 1 job\n"
    assert remote.json("nack", queue, 2, "--delay", "1h")["count"] == 1
    found = remote.json("inspect", queue)
    assert (found["queue"]["ready"], found["queue"]["delayed"]) == (1, 1)
    assert found["jobs"]["ready"][0]["reason"] == "busy"


def test_nack_dead_buries_at_once(remote: Remote, queue: str, server: Running):
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue", "dead_letter": f"{queue}.dead"})
    remote.ok("put", queue, "1")
    remote.ok("claim", queue)
    remote.ok("nack", queue, 1, "--dead", "--reason", "no use")
    assert remote.json("dead", "list", queue)["letters"][0]["reason"] == "no use"


def test_extend_moves_the_deadline(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    claimed = remote.json("claim", queue, "--lease", "30s")
    found = remote.json("extend", queue, 1, "--lease", "1h")
    assert found["deadlines"]["1"] > claimed["jobs"][0]["deadline"] + 3_000_000
    assert f"{queue}: extended 1 job until 20" in remote.ok("extend", queue, "--lease-id", claimed["lease_id"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("claim", "q", "--max", "0"),
        ("claim", "q", "--wait", "5"),
        ("claim", "q", "--lease", "-1s"),
        ("ack", "q"),
        ("ack", "q", "one"),
        ("nack", "q"),
        ("extend", "q", "1"),
        ("claim", "no/such/name"),
    ],
)
def test_wrong_usage_is_exit_code_2(remote: Remote, arguments: tuple[str, ...]):
    done = remote(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_interrupted_claim_leaves_no_traceback(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    remote.ok("claim", queue, "--lease", "1h")
    with remote.start("claim", queue, "--wait", "10m", stderr=subprocess.STDOUT) as waiting:
        until_connected(waiting)
        waiting.send_signal(signal.SIGINT)
        assert waiting.stdout is not None
        assert waiting.stdout.read() == ""
        assert waiting.wait() == 130
