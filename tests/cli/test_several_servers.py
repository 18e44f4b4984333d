"""Commands with several servers in their URL: they find the leader, and go on when another one leads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Remote, Tenure
from tests.kit.members import Member, members
from tests.kit.server import Running

Pair = tuple[Member, Member]


@pytest.fixture
def pair(server: Running) -> Iterator[Pair]:
    """Two members before one real server; the first leads."""
    with members(2, behind=server) as (first, second):
        second.follows(first.leads(1))
        yield first, second


@pytest.fixture
def both(tenure: Tenure, pair: Pair) -> Remote:
    """The command, with the follower named first."""
    first, second = pair
    return Remote(tenure, f"{second.url},{first.url}")


def test_every_command_finds_the_leader(both: Remote, pair: Pair, queue: str):
    both.ok("put", queue, "1", "2")
    assert len(both.json("claim", queue, "--max", 2)["jobs"]) == 2
    assert len(both.ok("tail", queue, "--no-follow").splitlines()) == 2
    both.ok("ack", queue, "1", "2")
    assert both.json("topics", queue)
    assert both.json("top", queue, "--interval", "100ms")
    assert len(pair[1].asked) >= 5, "each command began with the follower"


@pytest.mark.full
@pytest.mark.parametrize("command", [("put", "1"), ("claim",)], ids=["put", "claim"])
def test_a_command_waits_while_nobody_leads(
    both: Remote, remote: Remote, pair: Pair, queue: str, command: tuple[str, ...]
):
    first, second = pair
    remote.ok("put", queue, "1")
    first.kill()
    with both.start(command[0], queue, *command[1:], "--timeout", "60s") as child:
        _until_asked(second, 20, child)
        second.leads(2)
        assert child.wait(60) == 0


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_tail_goes_on_at_the_new_leader(both: Remote, remote: Remote, pair: Pair, queue: str, ending: str):
    first, second = pair
    remote.ok("put", queue, "1")
    with both.start("tail", queue, "--json", "--events") as child:
        assert child.stdout is not None
        _until_asked(first, 2, child)
        while not _events(child, remote, queue):
            pass
        getattr(first, ending)()
        second.leads(2)
        asked = len(second.asked)
        _until_asked(second, asked + 1, child)
        assert _events(child, remote, queue)
        child.terminate()
        child.wait(60)


def _events(child: subprocess.Popen[str], remote: Remote, queue: str) -> bool:
    """Put a job, and return whether the next line is about it or another one."""
    remote.ok("put", queue, "2")
    assert child.stdout is not None
    return bool(json.loads(child.stdout.readline())["topic"] == queue)


def _until_asked(member: Member, count: int, child: subprocess.Popen[str]) -> None:
    """Wait until so many requests have come to a member."""
    for _ in range(6_000):
        if len(member.asked) >= count:
            return
        assert child.poll() is None, "it ended by itself"
        member._thread.join(0.01)
    raise AssertionError(f"only {len(member.asked)} of {count} requests came")


@pytest.mark.parametrize("command", [("topics",), ("put", "q", "1"), ("top",)], ids=" ".join)
def test_a_bad_list_is_exit_code_2_and_one_line(tenure: Tenure, command: tuple[str, ...]):
    done = tenure(*command, TENURE_URL="http://127.0.0.1:1,")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "TENURE_URL: url must be URLs with one comma between two of them" in done.stderr


def test_no_server_of_several_is_exit_code_5(tenure: Tenure):
    done = tenure("topics", "--timeout", "300ms", TENURE_URL="http://127.0.0.1:1,http://127.0.0.1:2")
    assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
