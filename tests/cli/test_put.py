"""`tenure put`: arguments, lines, files, pipes, and how far it got where something stood in the way."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tenure.cli.commands.put_input import from_lines, open_lines
from tests.cli.conftest import COMMAND, Remote, surroundings
from tests.kit.server import Running


def test_json_values_are_put_byte_for_byte(remote: Remote, queue: str):
    text = remote.ok("put", queue, '{"a": 1e400, "a":2}', "null", '"é"')
    assert text == f"put 3 records into {queue} (created), seqs 1 to 3\n"
    done = remote("claim", queue, "--max", 10, "--json")
    assert '"a": 1e400' in done.stdout
    assert [job["data"] for job in json.loads(done.stdout)["jobs"]][1:] == [None, "é"]


def test_what_was_put_is_told_as_json(remote: Remote, queue: str):
    found = remote.json("put", queue, "1", "2")
    assert found == {
        "topic": queue,
        "count": 2,
        "first_seq": 1,
        "last_seq": 2,
        "created": True,
        "deduped": False,
    }
    assert remote.json("put", queue, "3")["created"] is False


def test_text_needs_no_quotes(remote: Remote, queue: str):
    remote.ok("put", queue, "--text", "hello world", "1")
    assert [job["data"] for job in remote.json("claim", queue, "--max", 2)["jobs"]] == ["hello world", "1"]


def test_tag_meta_and_delay_go_with_every_record(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "--tag", "eu", "--meta", '{"k": "v"}')
    remote.ok("put", queue, "2", "--delay", "1h")
    [job] = remote.json("claim", queue, "--max", 5)["jobs"]
    assert (job["seq"], job["tag"], job["meta"]) == (1, "eu", {"k": "v"})
    counts = remote.json("inspect", queue)["queue"]
    assert (counts["delayed"], counts["in_flight"]) == (1, 1)


def test_the_same_data_with_the_same_idempotency_key_is_put_once(remote: Remote, queue: str):
    first = remote.json("put", queue, "1", "2", "--idempotency-key", "k")
    again = remote.json("put", queue, "1", "2", "--idempotency-key", "k")
    assert (first["deduped"], again["deduped"]) == (False, True)
    assert [again[name] for name in ("count", "first_seq", "last_seq")] == [2, 1, 2]
    assert remote.json("inspect", queue)["count"] == 2
    done = remote("put", queue, "-", "--idempotency-key", "k", stdin="1\n")
    assert done.returncode == 2
    assert "one request, one key" in " ".join(done.stderr.replace("│", " ").split())


def test_a_unique_job_is_made_once_while_it_lives(remote: Remote, queue: str):
    assert remote.json("put", queue, "1", "--unique", "k")["deduped"] is False
    assert remote.json("put", queue, "1", "--unique", "k") | {"created": None} == {
        "topic": queue,
        "count": 1,
        "first_seq": 1,
        "last_seq": 1,
        "created": None,
        "deduped": True,
    }
    assert remote.ok("put", queue, "1", "--unique", "k") == f"{queue}: this key is there already, seq 1\n"


def test_lines_of_a_pipe_are_put_in_batches(remote: Remote, queue: str, server: Running):
    lines = "".join(f'{{"n":{n}}}\n' for n in range(12_345))
    assert f"put 12,345 records into {queue}" in remote.ok("put", queue, "-", stdin=lines)
    with server.client() as client:
        info = client.get(f"/v0/topics/{queue}").json()
        assert (info["count"], info["head_seq"]) == (12_345, 12_345)
        last = client.post(f"/v0/topics/{queue}/diff", json={"from_seq": 12_344}).json()["records"]
    assert last[0]["data"] == {"n": 12_344}


def test_blank_lines_and_carriage_returns_are_passed_over(remote: Remote, queue: str):
    remote.ok("put", queue, "-", stdin="1\r\n\n  \n2")
    assert [job["data"] for job in remote.json("claim", queue, "--max", 9)["jobs"]] == [1, 2]


def test_a_file_is_read_line_by_line(remote: Remote, queue: str, tmp_path: Path):
    source = tmp_path / "jobs.txt"
    source.write_text("one\n\nthree")
    remote.ok("put", queue, "--file", source, "--text")
    assert [job["data"] for job in remote.json("claim", queue, "--max", 9)["jobs"]] == ["one", "", "three"]


def test_a_line_is_put_soon_where_the_pipe_stays_open(remote: Remote, queue: str, server: Running):
    with remote.start("put", queue, "-", stdin=subprocess.PIPE) as child, server.client() as client:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("1\n")
        child.stdin.flush()
        client.put(f"/v0/topics/{queue}", json={"type": "queue"})
        body = {"node": "n", "wait_ms": 30_000}
        assert client.post(f"/v0/topics/{queue}/claim", json=body).json()["count"] == 1
        child.stdin.write("2\n")
        child.stdin.close()
        assert "put 2 records" in child.stdout.read()


def test_bad_json_names_its_place_and_puts_nothing_of_it(remote: Remote, queue: str):
    done = remote("put", queue, "1", "{bad")
    assert (done.returncode, done.stdout) == (2, "")
    assert "argument 2 is not JSON" in done.stderr
    assert "--text" in done.stderr
    assert remote("inspect", queue).returncode == 1, "the queue was not even made"


def test_a_bad_line_tells_where_to_go_on(remote: Remote, queue: str):
    lines = "".join("1\n" for _ in range(1_500)) + "oops\n2\n"
    done = remote("put", queue, "-", stdin=lines)
    assert done.returncode == 2
    assert "line 1,501 is not JSON" in done.stderr
    assert "1,500 records went in before: go on from line 1,501" in done.stderr
    assert remote.json("inspect", queue)["count"] == 1_500
    error = json.loads(remote("put", queue, "-", "--json", stdin=lines).stdout)["error"]
    assert error["detail"] == {"put": 1_500, "reached": 1_500}


@pytest.mark.parametrize("line", [b"\xff\xfe", b'"\xff"'])
def test_what_is_not_utf_8_is_refused(remote: Remote, queue: str, tmp_path: Path, line: bytes):
    source = tmp_path / "bad"
    source.write_bytes(line)
    done = remote("put", queue, "--file", source)
    assert done.returncode == 2
    assert "line 1 is not UTF-8" in done.stderr


@pytest.mark.parametrize("text", [False, True])
def test_a_byte_order_mark_and_the_line_ends_of_windows_are_no_part_of_a_value(tmp_path: Path, text: bool):
    source = tmp_path / "saved-by-an-editor"
    source.write_bytes(b"\xef\xbb\xbf1\r\n2\r\n")
    descriptor, _ = open_lines(source)
    values = [value for batch in from_lines(descriptor, text=text) for value in batch.values]
    assert values == ([b'"1"', b'"2"'] if text else [b"1", b"2"])


def test_an_endless_line_is_refused_before_it_fills_the_memory(remote: Remote, queue: str):
    done = remote("put", queue, "--file", "/dev/zero", "--text")
    assert done.returncode == 2
    assert "line 1 is longer than 16,777,216 bytes" in done.stderr


def test_nothing_to_put_is_wrong_usage(remote: Remote, queue: str):
    done = remote("put", queue, "-", stdin="\n\n")
    assert done.returncode == 2
    assert "nothing to put" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("1", "--file", "x"),
        ("-", "1"),
        ("1", "2", "--unique", "k"),
        ("1", "--type", "bag"),
        ("1", "--meta", "[]"),
        ("1", "--delay", "soon"),
        ("--file", "/nowhere/at/all"),
    ],
)
def test_contradicting_arguments_are_wrong_usage(remote: Remote, queue: str, arguments: tuple[str, ...]):
    done = remote("put", queue, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_no_create_leaves_an_unknown_queue_alone(remote: Remote, queue: str):
    done = remote("put", queue, "1", "--no-create")
    assert done.returncode == 1
    assert done.stderr.startswith("tenure: ")
    assert remote.json("put", queue, "1", "--no-create", code=1)["error"]["code"] == "topic_not_found"


def test_a_log_can_be_made_instead(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "--type", "log")
    assert remote.json("inspect", queue)["type"] == "log"


def test_an_interrupted_put_says_how_far_it_got(remote: Remote, queue: str, server: Running):
    with remote.start("put", queue, "-", stdin=subprocess.PIPE) as child, server.client() as client:
        assert child.stdin is not None
        assert child.stderr is not None
        client.put(f"/v0/topics/{queue}", json={"type": "queue"})
        for line in ("1\n", "2\n"):  # once the second is there, the first was answered
            child.stdin.write(line)
            child.stdin.flush()
            assert client.post(f"/v0/topics/{queue}/claim", json={"node": "n", "wait_ms": 30_000}).json()["count"] == 1
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
        assert child.wait() == 130
    assert re.fullmatch(r"tenure: interrupted: (1 record|2 records) went in for sure, up to line [12]\n", said)


def test_a_progress_bar_is_drawn_on_a_terminal_only(remote: Remote, queue: str, tmp_path: Path):
    source = tmp_path / "many"
    source.write_text("".join(f"{n}\n" for n in range(200_000)))
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [COMMAND, "put", queue, "--file", source],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=surroundings(TENURE_URL=remote.url, TERM="xterm"),
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    assert child.stdout is not None
    text = child.stdout.read().decode()
    child.stdout.close()
    assert child.wait() == 0
    assert "200,000 records" in text
    assert "\x1b" not in text
    assert b"records" in seen


def test_a_directory_in_place_of_a_file_is_named(remote: Remote, queue: str, tmp_path: Path):
    done = remote("put", queue, "--file", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"tenure: {tmp_path}: Is a directory\n")
