"""No server, a wrong key, no key, a server that never answers: one line, and an exit code of its own."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.cli import main, remote
from tenure.errors import Closed, Conflict, Corrupt, Denied, Indeterminate, Invalid, LeaseLost, NotFound, Overloaded
from tests.cli.conftest import Remote, Tenure
from tests.kit.doc_blocks import ROOT
from tests.kit.server import Running, serving

EVERY = [
    ("put", "q", "1"),
    ("claim", "q"),
    ("ack", "q", "1"),
    ("nack", "q", "1"),
    ("extend", "q", "1", "--lease", "1s"),
    ("topics",),
    ("inspect", "q"),
    ("inspect", "q", "1"),
    ("tail", "q"),
    ("tail", "q", "--events"),
    ("dead", "list", "q"),
    ("dead", "show", "q", "1"),
    ("dead", "redrive", "q"),
    ("dead", "drop", "q", "--yes"),
    ("top",),
]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two keys: one may do everything, one may read."""
    with serving(tmp_path_factory.mktemp("keyed") / "data", TENURE_API_KEYS="whole,reader:read") as running:
        yield running


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """An address where nobody listens: the port is ours, bound and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_no_server_is_exit_code_5_and_one_line(tenure: Tenure, nobody: str, command: tuple[str, ...]):
    done = tenure(*command, "--timeout", "100ms", TENURE_URL=nobody)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1), done.stderr
    assert done.stderr.startswith("tenure: ")
    told = tenure(*command, "--timeout", "100ms", "--json", "--url", nobody)
    assert (told.returncode, told.stderr) == (5, "")
    assert json.loads(told.stdout)["error"]["code"] == "unreachable"


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_a_wrong_key_is_exit_code_6(tenure: Tenure, keyed: Running, command: tuple[str, ...]):
    done = tenure(*command, TENURE_URL=keyed.url, TENURE_KEY="wrong-and-secret")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (6, "", 1), done.stderr
    assert "the key in TENURE_KEY is not known there" in done.stderr
    assert "wrong-and-secret" not in done.stderr


def test_no_key_says_how_to_give_one(tenure: Tenure, keyed: Running):
    done = tenure("topics", "--json", TENURE_URL=keyed.url)
    assert done.returncode == 6
    assert "set TENURE_KEY, or name a --key-file" in json.loads(done.stdout)["error"]["message"]


def test_a_key_that_may_only_read_is_told_so(tenure: Tenure, keyed: Running):
    assert tenure("topics", TENURE_URL=keyed.url, TENURE_KEY="reader").returncode == 0
    done = tenure("put", "q", "1", TENURE_URL=keyed.url, TENURE_KEY="reader")
    assert done.returncode == 6
    assert "write" in done.stderr


def test_a_key_comes_from_a_file(tenure: Tenure, keyed: Running, tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("whole\n")
    assert tenure("put", "q", "1", "--key-file", file, TENURE_URL=keyed.url, TENURE_KEY="wrong").returncode == 0
    for text, part in (("", "must hold one key"), ("two keys", "must hold one key"), ("schlüssel", "not ASCII")):
        file.write_text(text)
        done = tenure("topics", "--key-file", file, TENURE_URL=keyed.url)
        assert done.returncode == 2
        assert part in done.stderr
    assert tenure("topics", "--key-file", tmp_path / "none", TENURE_URL=keyed.url).returncode == 2


def test_a_key_is_never_an_argument(tenure: Tenure):
    assert tenure("topics", "--key", "whole").returncode == 2


def test_a_key_that_cannot_be_sent_is_refused(tenure: Tenure, keyed: Running):
    for key in ("schl\u00fcssel", "two\nlines"):
        done = tenure("topics", TENURE_URL=keyed.url, TENURE_KEY=key)
        assert done.returncode in (2, 6)
        assert done.stderr.count("\n") == 1


def test_a_server_that_never_answers_is_given_up(tenure: Tenure):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert tenure("topics", "--timeout", "200ms", "--url", url).returncode in (5, 8)
        done = tenure("dead", "redrive", "q", "--timeout", "200ms", "--url", url)
        assert done.returncode in (5, 8)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_wrong_usage(tenure: Tenure, url: str):
    done = tenure("topics", "--url", url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


def test_an_answer_that_is_not_ours_is_told(tenure: Tenure):
    page = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
    page += "print(s.server_port, flush=True); s.serve_forever()"
    with subprocess.Popen(
        [sys.executable, "-c", page], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as other:
        assert other.stdout is not None
        done = tenure("topics", "--url", f"http://127.0.0.1:{other.stdout.readline().strip()}")
        other.kill()
    assert done.returncode not in (0, 3)
    assert "Traceback" not in done.stderr


def test_every_error_has_its_exit_code():
    wanted = {
        Invalid: main.USAGE,
        NotFound: main.PROBLEM,
        Conflict: main.PROBLEM,
        Corrupt: main.PROBLEM,
        Denied: main.DENIED,
        LeaseLost: main.LOST,
        Overloaded: main.LATER,
        Closed: main.LATER,
        Indeterminate: main.UNKNOWN,
    }
    for kind, code in wanted.items():
        assert remote.exit_code(kind("x")) == code
    assert remote.exit_code(OSError("x")) == main.USAGE


def test_the_exit_codes_are_one_table_in_the_code_and_in_the_documentation():
    names = ("OK", "PROBLEM", "USAGE", "FAILED", "EMPTY", "LATER", "DENIED", "LOST", "UNKNOWN")
    codes = {str(getattr(main, name)) for name in names} | {"130"}
    assert len(codes) == len(names) + 1
    in_code = set(re.findall(r"^    (\d+) ", main.__doc__ or "", re.MULTILINE))
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    in_page = set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))
    assert in_code == in_page == codes


def test_a_command_against_a_running_server_needs_no_terminal(remote: Remote, queue: str):
    assert "\x1b" not in remote.ok("put", queue, "1") + remote.ok("topics", queue) + remote.ok("inspect", queue)
