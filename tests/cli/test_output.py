"""Where the output cannot go, and where it has little room: one clear line and a documented exit code, no traceback."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tenure.cli.screen import table
from tests.cli.conftest import COMMAND, Remote, Tenure, surroundings

LOST_ANSWER = 8

# A command of each way to print: by typer, by rich, as JSON, line by line, in a story.
PRINTING = [
    ("--version",),
    ("--help",),
    ("topics",),
    ("topics", "--json"),
    ("put", "{queue}", "1"),
    ("claim", "{queue}", "--json"),
    ("inspect", "{queue}"),
    ("tail", "{queue}", "--no-follow"),
    ("tail", "{queue}", "--no-follow", "--json"),
    ("top", "--once"),
    ("dead", "list", "{queue}"),
    ("verify", "{data}"),
    ("inspect", "--data", "{data}"),
    ("buffer", "stat", "{data}", "--json"),
    ("pipeline", "validate", "nowhere.toml", "--json"),
    ("put", "{queue}", "no json", "--json"),
    ("serve", "--data", "{data}-2", "--port", "0"),
    ("tour",),
]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[] if number % 3 == 0 else pytest.mark.full)
        for number, command in enumerate(PRINTING)
    ],
    ids=" ".join,
)
def test_a_full_disk_under_the_output_is_one_line_and_exit_code_8(
    remote: Remote, queue: str, data: Path, command: tuple[str, ...]
):
    remote.ok("put", queue, "1")
    words = [word.format(queue=queue, data=data) for word in command]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            env=surroundings(TENURE_URL=remote.url),
        )
    assert process.returncode == LOST_ANSWER
    *log, last = process.stderr.splitlines()
    assert last == (
        "tenure: the answer could not be written: No space left on device. What the command did stands: look before "
        "you repeat"
    )
    assert log == [] or command[0] == "serve"


def test_an_error_that_cannot_be_shown_is_told_by_the_exit_code(remote: Remote, queue: str):
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [COMMAND, "claim", queue], stdout=subprocess.PIPE, stderr=full, env=surroundings(TENURE_URL=remote.url)
        )
    assert (process.returncode, process.stdout) == (1, b"")


def test_closed_standard_streams_do_no_harm(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    for closed in (">&-", ">&- --json", ">&- 2>&- <&-"):
        done = subprocess.run(
            ["bash", "-c", f'"$0" topics {closed}', COMMAND],
            capture_output=True,
            text=True,
            check=False,
            env=surroundings(TENURE_URL=remote.url),
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_leaves_early_is_no_failure_to_speak_of(remote: Remote, queue: str):
    remote.ok("put", queue, "-", stdin="".join(f"{number}\n" for number in range(20_000)))
    reading = remote.start("tail", queue, "--last", "20000", "--no-follow")
    assert reading.stdout is not None
    reading.stdout.readline()
    reading.stdout.close()
    assert reading.wait(60) == 1
    assert reading.stderr is not None
    assert reading.stderr.read() == ""
    reading.stderr.close()


def test_lines_that_are_piped_in_are_put_without_a_dash(remote: Remote, queue: str):
    assert remote.ok("put", queue, stdin="1\n2\n") == f"put 2 records into {queue} (created), seqs 1 to 2\n"


def test_a_put_of_nothing_says_what_to_give(remote: Remote, queue: str, tenure: Tenure):
    done = subprocess.run(
        [COMMAND, "put", queue],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=surroundings(TENURE_URL=remote.url),
    )
    assert done.returncode == 2
    assert "give DATA, pipe lines in, or name a --file" in done.stderr
    nothing = remote("put", queue, stdin="")
    assert (nothing.returncode, nothing.stderr) == (2, "tenure: there was nothing to put: no line with a value in it\n")


def test_a_server_that_is_not_there_is_answered_with_how_to_start_one(tenure: Tenure):
    done = tenure("topics", "--timeout", "100ms", TENURE_URL="http://127.0.0.1:1")
    assert done.returncode == 5
    assert done.stderr.endswith("(start one with tenure serve, or set TENURE_URL to where it is)\n")
    assert len(done.stderr.splitlines()) == 1


def drawn(width: int, heads: tuple[str, ...], *rows: tuple[object, ...]) -> list[str]:
    """A table as a terminal of that width shows it."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    table(console, heads, rows)
    file = console.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


HEADS = ("topic", "type", "records#", "ready#", "in flight#", "bytes#")
ROW = ("a-queue-with-a-long-name", "queue", 1200, 17, "", "2.4 MiB")


def test_a_terminal_that_is_too_narrow_for_a_table_gets_a_value_a_line():
    assert drawn(40, HEADS, ROW) == [
        "topic      a-queue-with-a-long-name",
        "type       queue",
        "records    1200",
        "ready      17",
        "bytes      2.4 MiB",
    ]


def test_a_terminal_with_room_for_the_numbers_gets_a_table_whose_texts_are_folded():
    shown = drawn(64, HEADS, ROW)
    assert shown[0].split() == ["topic", "type", "records", "ready", "in", "flight", "bytes"]
    assert "1200" in shown[2]


@pytest.mark.parametrize(("unbuffered", "seen"), [("1", "so far"), ("", "")])
def test_what_a_handler_prints_is_out_at_once_where_python_is_told_not_to_buffer(unbuffered: str, seen: str):
    script = "import os; from tenure.cli.output import guard_output as g; g(); print('so far', end=''); os._exit(0)"
    environment = surroundings(PYTHONUNBUFFERED=unbuffered)
    assert subprocess.check_output([sys.executable, "-c", script], env=environment, text=True) == seen
