"""`tenure tail`: records as they come, over restarts and broken pipes, and the life of jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import COMMAND, Remote, Tenure, surroundings, until_connected
from tests.kit.restartable_server import Serving


def stop(child: subprocess.Popen[str]) -> str:
    """Ctrl-C; returns what it said on the side."""
    child.send_signal(signal.SIGINT)
    assert child.stderr is not None
    said = child.stderr.read()
    assert child.wait() == 130
    return said


def test_the_last_records_are_printed_one_a_line(remote: Remote, queue: str):
    remote.ok("put", queue, *range(1, 16), "--tag", "t")
    lines = remote.ok("tail", queue, "--no-follow").splitlines()
    assert [line.split()[0] for line in lines] == [str(seq) for seq in range(6, 16)]
    assert lines[-1].endswith("Z [t] 15")
    assert len(remote.ok("tail", queue, "--no-follow", "--last", 3).splitlines()) == 3
    assert len(remote.ok("tail", queue, "--no-follow", "--from", 14).splitlines()) == 2
    assert remote.ok("tail", queue, "--no-follow", "--last", 0) == ""


def test_json_lines_hold_the_whole_record_even_where_it_was_put_over_many_lines(remote: Remote, queue: str):
    remote.ok("put", queue, '{"a":\n[1e400,\n2]}', "--meta", '{"k":1}')
    text = remote.ok("tail", queue, "--no-follow", "--json")
    assert text.count("\n") == 1
    assert '"data":{"a":[1e400,2]}' in text
    found = json.loads(text)
    assert (found["seq"], found["meta"], found["tag"]) == (1, {"k": 1}, None)


def test_a_long_topic_is_read_to_its_end(remote: Remote, queue: str):
    remote.ok("put", queue, "-", "--type", "log", stdin="".join(f"{n}\n" for n in range(1, 3_001)))
    lines = remote.ok("tail", queue, "--no-follow", "--from", 1, "--json").splitlines()
    assert [json.loads(line)["data"] for line in lines] == list(range(1, 3_001))


def test_what_comes_is_printed_until_ctrl_c(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    with remote.start("tail", queue, "--json") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["data"] == 1
        remote.ok("put", queue, "2")
        assert json.loads(child.stdout.readline())["data"] == 2
        assert stop(child) == ""


def test_a_restart_of_the_server_costs_no_record_and_repeats_none(tenure: Tenure, tmp_path: Path, queue: str):
    """Fault 32, as a tail sees it."""
    serving = Serving(tmp_path / "data").start()
    try:
        remote = Remote(tenure, serving.address)
        port = serving.port
        remote.ok("put", queue, "1", "--type", "log")
        with remote.start("tail", queue, "--json", "--from", "1") as child:
            assert child.stdout is not None
            assert child.stderr is not None
            assert json.loads(child.stdout.readline())["data"] == 1
            serving.kill()
            assert "waiting for the server" in child.stderr.readline()
            serving._flags = ["--port", str(port)]
            serving.start()
            remote.ok("put", queue, "2", "3")
            assert [json.loads(child.stdout.readline())["data"] for _ in range(2)] == [2, 3]
            assert stop(child) == "tenure: the server is back\n"
    finally:
        serving.close()


def test_a_gap_is_told(remote: Remote, queue: str):
    """Loss that nobody asked for is never silent."""
    import httpx

    httpx.put(f"{remote.url}/v0/topics/{queue}", json={"type": "log", "cap_records": 2}, trust_env=False)
    remote.ok("put", queue, "1", "2", "3", "4", "--type", "log")
    assert len(remote.ok("tail", queue, "--no-follow").splitlines()) == 2, "nobody asked for what is gone"
    done = remote("tail", queue, "--no-follow", "--from", "1")
    assert "seqs 1 to 2 are gone (cap)" in done.stderr
    assert len(done.stdout.splitlines()) == 2
    first, *_ = remote.ok("tail", queue, "--no-follow", "--from", "1", "--json").splitlines()
    assert json.loads(first)["tombstone"]["gap_to"] == 2


def test_events_tell_the_life_of_a_job(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    with remote.start("tail", queue, "--events", "--json") as child, remote.start("tail", queue, "--events") as plain:
        until_connected(child)
        until_connected(plain)
        seen, words = claims_until_seen(remote, queue, child, plain)
        assert json.loads(seen)["topic"] == queue
        assert {json.loads(seen)["event"], words.split()[2]} <= {"claimed", "released"}
        remote.ok("ack", queue, 1)
        assert child.stdout is not None
        assert plain.stdout is not None
        rows = iter(lambda: json.loads(child.stdout.readline())["event"], "acked")  # type: ignore[union-attr]
        assert set(rows) <= {"claimed", "released", "extended"}
        told = iter(lambda: plain.stdout.readline().split()[2], "acked")  # type: ignore[union-attr]
        assert set(told) <= {"claimed", "released", "extended"}
        assert stop(child) == ""
        assert stop(plain) == ""


def claims_until_seen(remote: Remote, queue: str, *children: subprocess.Popen[str]) -> list[str]:
    """Claim and give back until each stream, which begins at some moment, tells of it; the job is held at the end.
    Returns the first line of each.
    """
    import select

    lines = dict[IO[str], str]()
    streams = [child.stdout for child in children if child.stdout is not None]
    for _ in range(200):
        remote.ok("claim", queue)
        for stream in select.select([stream for stream in streams if stream not in lines], [], [], 0.2)[0]:
            lines[stream] = stream.readline()
        if len(lines) == len(children):
            return [lines[stream] for stream in streams]
        remote.ok("nack", queue, 1)
    raise AssertionError("no event came")


@pytest.mark.parametrize("arguments", [("--events", "--no-follow"), ("--events", "--from", "1"), ("--from", "-1")])
def test_contradictions_are_wrong_usage(remote: Remote, queue: str, arguments: tuple[str, ...]):
    assert remote("tail", queue, *arguments).returncode == 2


@pytest.mark.parametrize("arguments", [(), ("--events",), ("--no-follow",)])
def test_an_unknown_topic_is_exit_code_1(remote: Remote, queue: str, arguments: tuple[str, ...]):
    done = remote("tail", queue, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_a_reader_that_leaves_is_no_failure_to_complain_about(remote: Remote, queue: str):
    """`| head -1`, also while it follows."""
    remote.ok("put", queue, "-", "--type", "log", stdin="".join(f"{n}\n" for n in range(5_000)))
    for flags in ("--json --from 1", "--no-follow --from 1"):
        done = subprocess.run(
            ["sh", "-c", f"{COMMAND} tail {queue} {flags} | head -1"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=surroundings(TENURE_URL=remote.url),
        )
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_output_into_a_full_disk_is_one_line(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full, remote.start("tail", queue, "--no-follow", stdout=full) as child:
        assert child.stderr is not None
        said = child.stderr.read()
        assert child.wait() != 0
    assert "Traceback" not in said
    assert "No space left" in said
