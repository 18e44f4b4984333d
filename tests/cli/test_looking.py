"""`tenure topics` and `tenure inspect`: what is there, for people and for programs."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Remote, lose
from tests.kit.server import Running


def test_topics_lists_how_the_jobs_stand(remote: Remote, queue: str, server: Running):
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue", "dead_letter": f"{queue}.log"})
    remote.ok("put", queue, "1", "2", "3", "4")
    remote.ok("put", queue, "5", "--delay", "1h")
    remote.ok("claim", queue, "--max", 2)
    remote.ok("nack", queue, 1, "--dead")
    heads, _, first, second = (line for line in remote.ok("topics", queue).splitlines() if line)
    cells = [cell.strip() for cell in heads.strip("|").split("|")]
    assert cells == ["topic", "type", "records", "ready", "in flight", "delayed", "dead", "oldest", "bytes"]
    row = [cell.strip() for cell in first.strip("|").split("|")]
    assert row[:7] == [queue, "queue", "4", "2", "1", "1", "1"]
    assert row[7].endswith("s")
    assert [cell.strip() for cell in second.strip("|").split("|")][:4] == [f"{queue}.log", "log", "1", ""]


def test_topics_as_json_has_configs_and_counters(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    [topic] = remote.json("topics", queue)["topics"]
    assert (topic["topic"], topic["queue"]["ready"], topic["config"]["type"]) == (queue, 1, "queue")


def test_no_topics_is_an_answer(remote: Remote, queue: str):
    assert remote.ok("topics", queue) == "no topics\n"
    assert remote.json("topics", queue) == {"topics": []}


def test_a_row_without_a_terminal_is_one_line(remote: Remote, queue: str):
    name = (queue + "-" * 255)[:255]
    remote.ok("put", name, "1")
    assert len(remote.ok("topics", name).strip().splitlines()) == 3


def test_inspect_shows_a_queue_with_its_leases_and_jobs(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2", "3")
    remote.ok("claim", queue, "--node", "me", "--max", 2)
    remote.ok("nack", queue, 2, "--node", "me", "--reason", "busy", "--delay", "1h")
    text = remote.ok("inspect", queue)
    for part in (f"{queue} is a queue: 3 records", "| me ", "in_flight", "busy", "max_deliveries", "durability"):
        assert part in text, part
    found = remote.json("inspect", queue)
    assert found["leases"][0] | {"lease_id": "", "since": 0, "deadline": 0} == {
        "lease_id": "",
        "node": "me",
        "since": 0,
        "deadline": 0,
        "seqs": [1],
    }
    assert {state: [job["seq"] for job in jobs] for state, jobs in found["jobs"].items()} == {
        "ready": [3],
        "suspect": [],
        "in_flight": [1],
        "delayed": [2],
        "parked": [],
    }


def test_inspect_names_the_next_seq_of_a_queue_that_is_empty(remote: Remote, queue: str):
    remote.ok("queue", "create", queue)
    assert "the next is seq 1;" in remote.ok("inspect", queue)


def test_inspect_shows_one_job_with_its_deliveries(remote: Remote, queue: str):
    remote.ok("put", queue, '{"to": "ada"}', "--tag", "mail")
    remote.ok("claim", queue, "--node", "me")
    remote.ok("nack", queue, 1, "--node", "me", "--reason", "busy")
    text = remote.ok("inspect", queue, 1)
    for part in ("| me ", "busy", "nack", "mail", 'data: {"to": "ada"}'):
        assert part in text
    found = remote.json("inspect", queue, 1)
    assert (found["state"], found["deliveries"], found["data"]) == ("ready", 1, {"to": "ada"})
    assert [(each["node"], each["end"], each["reason"]) for each in found["history"]] == [("me", "nack", "busy")]


def test_inspect_shows_one_record_of_a_log(remote: Remote, queue: str):
    remote.ok("put", queue, '"a"', '"b"', "--type", "log")
    assert remote.json("inspect", queue, 2)["data"] == "b"
    assert remote.json("inspect", queue)["queue"] is None
    assert f"{queue} is a log: 2 records" in remote.ok("inspect", queue)


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_a_job_that_is_not_there_is_exit_code_1(remote: Remote, queue: str, kind: str):
    remote.ok("put", queue, "1", "--type", kind)
    done = remote("inspect", queue, 9)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "9" in done.stderr


def test_an_unknown_topic_is_exit_code_1(remote: Remote, queue: str):
    assert remote("inspect", queue).returncode == 1
    assert remote.json("inspect", queue, code=1)["error"]["code"] == "topic_not_found"


def test_a_directory_in_the_place_of_a_queue_is_told_about_data(remote: Remote):
    for arguments in (("./data",), ("/tmp/data",), (), ("q", "--data", ".")):
        done = remote("inspect", *arguments)
        assert done.returncode == 2
        assert "--data" in done.stderr


def test_control_characters_of_others_never_reach_a_terminal(remote: Remote, queue: str):
    """Fault 50, on the command line: what somebody put into a job cannot move our cursor."""
    remote.ok("put", queue, '"\x9b31m \u202e"', "--tag", "a\x1b[2Jb")
    for arguments in (("inspect", queue, 1), ("tail", queue, "--no-follow"), ("claim", queue)):
        text = remote.ok(*arguments)
        assert not any(character in text for character in "\x1b\x9b\u202e")
        assert "\\u001b[2J" in text


def test_inspect_tells_suspects_apart_and_tries_from_deliveries(remote: Remote, queue: str, server: Running):
    remote.ok("put", queue, "1", "2", "3")
    lose(server, queue, [1])
    found = remote.json("inspect", queue)
    assert found["queue"]["suspects"] == 1
    assert [(job["seq"], job["tries"], job["lost"]) for job in found["jobs"]["suspect"]] == [(1, 0, 1)]
    assert [job["seq"] for job in found["jobs"]["ready"]] == [1, 2, 3]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in remote.ok("inspect", queue).splitlines()]
    jobs = [row[:4] for row in rows if len(row) == 7 and row[1] in ("ready", "suspect")]
    assert jobs == [["2", "ready", "1", "0"], ["3", "ready", "1", "0"], ["1", "suspect", "1", "0"]]
    assert "suspects" in remote.ok("queue", "show", queue)


def test_inspect_shows_how_the_worker_of_a_job_was_lost(remote: Remote, queue: str, server: Running):
    remote.ok("put", queue, "1", "2")
    lose(server, queue, [1])
    first, second = (remote.ok("inspect", queue, seq).replace(" ", "") for seq in (1, 2))
    for part in ("|tries|0|", "|lost|1|", "|lost|exitcode137|"):
        assert part in first, part
    assert "|returned||" in second
    assert "|lost|" not in second
