"""`tenure dead`: letters by the name of their queue or of their topic, and jobs parked in place."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, Remote, surroundings
from tests.kit.doc_blocks import ROOT, blocks
from tests.kit.server import Running


def bury(remote: Remote, server: Running, queue: str, count: int = 3, **config: Any) -> None:
    """Put jobs into a queue and bury them all; job n has the tag t<n> and the reason "reason <n>"."""
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue", **config})
        for number in range(1, count + 1):
            client.post(f"/v0/topics/{queue}", json={"records": [{"data": {"n": number}, "tag": f"t{number}"}]})
            [job] = client.post(f"/v0/topics/{queue}/claim", json={"node": "n"}).json()["claimed"]
            body = {"node": "n", "seqs": [job["$seq"]], "dead": True, "reason": f"reason {number}"}
            assert client.post(f"/v0/topics/{queue}/nack", json=body).json()["nacked"] == 1


def letters(remote: Remote, name: str, *options: object) -> list[int]:
    return [letter["seq"] for letter in remote.json("dead", "list", name, *options)["letters"]]


def test_list_goes_by_the_queue_or_by_the_topic(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    for name in (queue, f"{queue}.dead"):
        found = remote.json("dead", "list", name)
        assert (found["topic"], found["parked"], found["more"]) == (f"{queue}.dead", False, False)
        assert found["letters"][0] | {"ts": 0} == {
            "seq": 1,
            "source": queue,
            "source_seq": 1,
            "deliveries": 1,
            "reason": "reason 1",
            "parked": False,
            "ts": 0,
            "tag": "t1",
        }
        text = remote.ok("dead", "list", name)
        assert "reason 2" in text
        assert "| t3 " in text


def test_queues_that_share_a_topic_see_their_own_letters(remote: Remote, queue: str, server: Running):
    for name in ("a", "b"):
        bury(remote, server, f"{queue}.{name}", 2, dead_letter=f"{queue}.dead")
    assert letters(remote, f"{queue}.b") == [3, 4]
    assert letters(remote, f"{queue}.dead") == [1, 2, 3, 4]
    assert remote.json("dead", "redrive", f"{queue}.b")["count"] == 2
    assert letters(remote, f"{queue}.dead") == [1, 2]


def test_nothing_dead_is_an_answer(remote: Remote, queue: str, server: Running):
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue", "dead_letter": f"{queue}.dead"})
    assert remote.ok("dead", "list", queue) == f"{queue}.dead: no dead letters\n"
    assert letters(remote, queue) == []
    for verb in (("redrive",), ("drop", "--yes")):
        done = remote("dead", *verb, queue)
        assert (done.returncode, done.stdout) == (4, f"{queue}.dead: nothing to do\n")


def test_an_unknown_queue_is_exit_code_1(remote: Remote, queue: str):
    for verb in (("list", queue), ("show", queue, 1), ("redrive", queue), ("drop", queue, "--yes")):
        assert remote("dead", *verb).returncode == 1
        assert remote.json("dead", *verb, code=1)["error"]["code"] == "topic_not_found"


def test_a_list_that_is_cut_says_so(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    assert remote.json("dead", "list", queue, "--limit", 2)["more"] is True
    assert "these are the first 2" in remote.ok("dead", "list", queue, "--limit", 2)


def test_show_gives_one_letter_whole(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    found = remote.json("dead", "show", queue, 2)
    assert (found["data"], found["source"], found["reason"]) == ({"n": 2}, queue, "reason 2")
    assert found["meta"]["$dead_letter_src_seq"] == 2
    assert 'data: {"n":2}' in remote.ok("dead", "show", queue, 2)
    assert remote("dead", "show", queue, 9).returncode == 1


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ((), [1, 2, 3]),
        ((2,), [2]),
        (("--match", "t3"), [3]),
        (("--match", "t*"), [1, 2, 3]),
        (("--reason-like", "son 1"), [1]),
        (("--limit", 2), [1, 2]),
        (("--match", "t*", "--reason-like", "2", 2, 3), [2]),
    ],
)
def test_redrive_moves_what_is_meant(
    remote: Remote, queue: str, server: Running, options: tuple[object, ...], moved: list[int]
):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    assert remote.json("dead", "redrive", queue, *options)["count"] == len(moved)
    back = remote.json("claim", queue, "--max", 9)["jobs"]
    assert [job["data"]["n"] for job in back] == moved
    assert [job["deliveries"] for job in back] == [1] * len(moved)


def test_redriven_jobs_are_no_dead_letters_any_more(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    assert remote.ok("dead", "redrive", queue) == f"{queue}.dead: redriven 3 dead letters to {queue}\n"
    assert letters(remote, queue) == []
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue"})
    assert letters(remote, queue) == [], "they carry their past, but they are at work"


def test_a_redrive_names_its_destinations_before_it_goes(remote: Remote, queue: str, server: Running):
    for name, jobs in (("a", 1), ("b", 2)):
        bury(remote, server, f"{queue}.{name}", jobs, dead_letter=f"{queue}.dead")
    a, b, dead = f"{queue}.a", f"{queue}.b", f"{queue}.dead"
    would = remote.json("dead", "redrive", dead, "--dry-run")
    assert (would["count"], would["destinations"]) == (3, {a: 1, b: 2})
    said = f"{dead}: would redrive 3 dead letters: 1 to {a}, 2 to {b}\n"
    assert remote.ok("dead", "redrive", dead, "--dry-run") == said
    assert letters(remote, dead) == [1, 2, 3], "a dry run moves nothing"
    assert "to elsewhere" in remote.ok("dead", "redrive", dead, "--to", "elsewhere", "--dry-run")
    done = remote("dead", "redrive", dead)
    assert done.stderr == f"to {a}: 1 dead letter\nto {b}: 2 dead letters\n"
    assert done.stdout == f"{dead}: redriven 3 dead letters: 1 to {a}, 2 to {b}\n"


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", [1, 2]), (b"y\n", [])])
def test_on_a_terminal_a_redrive_to_several_queues_asks(
    remote: Remote, queue: str, server: Running, answer: bytes, left: list[int]
):
    for name in ("a", "b"):
        bury(remote, server, f"{queue}.{name}", 1, dead_letter=f"{queue}.dead")
    code, _, said = on_a_terminal(remote, answer, "redrive", f"{queue}.dead")
    assert f"to {queue}.a: 1 dead letter\nto {queue}.b: 1 dead letter\nRedrive them?".encode() in said
    assert code == (1 if left else 0)
    assert letters(remote, f"{queue}.dead") == left


def on_a_terminal(remote: Remote, answer: bytes, *arguments: str) -> tuple[int, bytes, bytes]:
    """Answer what `tenure dead` asks; returns its exit code, what it printed and what it said on the side."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [COMMAND, "dead", *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(TENURE_URL=remote.url),
    )
    os.close(theirs)
    os.write(ours, answer)
    out, said = child.communicate(timeout=60)
    os.close(ours)
    return child.returncode, out, said


def test_redrive_takes_more_than_one_page(remote: Remote, queue: str, server: Running):
    with server.client() as client:
        client.put(f"/v0/topics/{queue}", json={"type": "queue", "dead_letter": f"{queue}.dead"})
        for _ in range(3):
            client.post(f"/v0/topics/{queue}", json={"records": [{"data": 1}] * 1_000})
            jobs = client.post(f"/v0/topics/{queue}/claim", json={"node": "n", "max": 1_000}).json()["claimed"]
            body = {"node": "n", "seqs": [job["$seq"] for job in jobs], "dead": True}
            client.post(f"/v0/topics/{queue}/nack", json=body)
    assert remote.json("dead", "redrive", queue, "--limit", 2_500)["count"] == 2_500
    assert remote.json("inspect", queue)["queue"]["ready"] == 2_500
    assert len(letters(remote, queue, "--limit", 1_000)) == 500


def test_redrive_can_go_elsewhere(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    remote.ok("put", f"{queue}.other", "0")
    assert remote.json("dead", "redrive", queue, "--to", f"{queue}.other")["count"] == 3
    assert remote.json("inspect", f"{queue}.other")["count"] == 4
    assert remote("dead", "redrive", queue, "--to", f"{queue}.none").returncode in (1, 4)


def test_a_target_that_fills_up_is_told_with_what_was_done(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    with server.client() as client:
        config = {"type": "queue", "cap_records": 2, "discard": "reject"}
        client.put(f"/v0/topics/{queue}.small", json=config)
    done = remote("dead", "redrive", queue, "--to", f"{queue}.small")
    assert done.returncode == 5
    assert "2 letters done before that" in done.stderr
    assert letters(remote, queue) == [3]


@pytest.mark.parametrize("strategy", ["block", "block_and_dlq"])
def test_parked_jobs_are_listed_and_put_back_in_place(remote: Remote, queue: str, server: Running, strategy: str):
    bury(remote, server, queue, dead_letter=f"{queue}.dead", dlq_strategy=strategy)
    flag = () if strategy == "block" else ("--parked",)
    found = remote.json("dead", "list", queue, *flag)
    assert (found["parked"], [each["seq"] for each in found["letters"]]) == (True, [1, 2, 3])
    assert found["letters"][1]["reason"] == "reason 2"
    assert remote.json("dead", "show", queue, 2, *flag)["data"] == {"n": 2}
    assert "reason 3" in remote.ok("dead", "list", queue, *flag)
    assert remote.json("dead", "redrive", queue, "--match", "t2", *flag)["count"] == 1
    assert remote.json("inspect", queue)["queue"]["ready"] == 1
    assert remote.json("dead", "drop", queue, 3, "--yes", *flag)["count"] == 1
    assert letters(remote, queue, *flag) == [1]


def test_drop_deletes_for_good(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    assert remote.json("dead", "drop", queue, "--yes", "--reason-like", "reason 2")["count"] == 1
    assert letters(remote, queue) == [1, 3]
    assert remote.ok("dead", "drop", queue, "-y") == f"{queue}.dead: dropped 2 dead letters\n"
    assert letters(remote, queue) == []


def test_drop_asks_first_and_does_nothing_where_nobody_can_answer(remote: Remote, queue: str, server: Running):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    done = remote("dead", "drop", queue)
    assert (done.returncode, done.stdout) == (2, "")
    assert "this would delete 3 dead letters" in done.stderr
    assert letters(remote, queue) == [1, 2, 3]


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", [1, 2, 3]), (b"y\n", [])])
def test_drop_asks_on_a_terminal(remote: Remote, queue: str, server: Running, answer: bytes, left: list[int]):
    bury(remote, server, queue, dead_letter=f"{queue}.dead")
    code, out, said = on_a_terminal(remote, answer, "drop", queue)
    assert b"Delete 3 dead letters of" in said
    assert code == (1 if left else 0)
    assert (b"dropped 3" in out) is not bool(left)
    assert letters(remote, queue) == left


def test_the_how_to_shows_what_the_command_prints(remote: Remote, queue: str, server: Running):
    """The console block of docs/how-to/handle-dead-letters.md, run on its own example; only names and times differ."""
    [page] = blocks(ROOT / "docs" / "how-to" / "handle-dead-letters.md", "console")
    parts = (part.partition("\n") for part in page.removeprefix("$ tenure ").split("\n$ tenure "))
    shown = {command.partition("  #")[0].strip(): output.splitlines() for command, _, output in parts}
    with server.client() as client:
        config = {"type": "queue", "max_deliveries": 2, "dead_letter": f"{queue}.dead"}
        client.put(f"/v0/topics/{queue}", json=config)
    remote.ok("put", queue, '"a.png"', '"b.txt"')
    remote.ok("claim", queue, "--max", 2)
    remote.ok("ack", queue, 1)
    remote.ok("nack", queue, 2, "--dead", "--reason", "not an image")
    for command, lines in shown.items():
        done = remote(*(queue if word == "images" else word for word in shlex.split(command)))
        assert done.returncode == (4 if "drop" in command else 0), done.stderr
        if lines:
            text = re.sub(r"20\d\d-\S+ \S+Z", "2026-01-31 12:00:00.000Z", done.stdout.replace(queue, "images"))
            assert [squeezed(line) for line in text.splitlines()] == [squeezed(line) for line in lines]


def squeezed(line: str) -> str:
    """Without what only pads a column: names of another length make it wider."""
    return re.sub(r"-+", "-", re.sub(r" +", " ", line))
