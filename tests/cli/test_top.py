"""`tenure top`: one sample for programs, and the live view on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.cli.commands.top import fitting, sparkline
from tenure.cli.commands.top_samples import Sampler
from tests.cli.conftest import COMMAND, Remote, Tenure, lose, surroundings
from tests.kit.restartable_server import Serving
from tests.kit.server import Running


class Terminal:
    """The command on a terminal of 30 lines; what it draws is gathered."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.seen = b""
        self.child = subprocess.Popen(
            [COMMAND, "top", "--interval", "100ms", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=surroundings(TENURE_URL=url, TERM="xterm-256color"),
            start_new_session=True,
        )

    def until(self, part: str) -> None:
        """Read on until that was drawn."""
        end = time.monotonic() + 60
        start = len(self.seen)
        while part.encode() not in self.seen[start:]:
            assert time.monotonic() < end, self.seen[start:].decode(errors="replace")
            if select.select([self._ours], [], [], 0.1)[0]:
                self.seen += os.read(self._ours, 65_536)
            assert self.child.poll() is None or part.encode() in self.seen[start:], "it ended by itself"

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self) -> tuple[int, bytes]:
        """Wait for its end, reading along; returns the exit code and what it said on the side."""
        while self.child.poll() is None:
            if select.select([self._ours], [], [], 0.05)[0]:
                self.seen += os.read(self._ours, 65_536)
        assert self.child.stderr is not None
        said = self.child.stderr.read()
        self.child.stderr.close()
        return self.child.returncode, said

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.end()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_one_sample_as_json_has_depths_and_rates(remote: Remote, queue: str):
    remote.ok("put", queue, "1", "2", "3")
    remote.ok("claim", queue)
    found = remote.json("top", queue, "--interval", "100ms")
    [row] = found["queues"]
    assert (row["topic"], row["ready"], row["in_flight"], row["delayed"], row["dead"]) == (queue, 2, 1, 0, 0)
    assert (row["in_rate"], row["out_rate"], row["depths"]) == (0, 0, [3, 3])
    assert row["oldest_ms"] >= 0
    assert found["restarted"] is False
    assert set(found["rates"]) == {
        "produced",
        "claimed",
        "acked",
        "nacked",
        "expired",
        "lost",
        "returned",
        "dead_lettered",
    }


def test_one_sample_as_text_is_plain(remote: Remote, queue: str):
    remote.ok("put", queue, "1")
    for flags in ((), ("--once",)):
        text = remote.ok("top", queue, "--interval", "100ms", *flags)
        assert queue in text
        assert "produced" in text
        assert "\x1b" not in text


def test_rates_follow_what_happens_between_two_samples(remote: Remote, queue: str, server: Running):
    from tenure.client.client import Client

    remote.ok("put", queue, "1")
    with Client(server.url) as client:
        sampler = Sampler(client, prefix=queue)
        [first] = sampler.take(100.0).queues
        assert (first.in_rate, first.out_rate) == (None, None)
        client.produce(queue, [2] * 20)
        client.ack(queue, node="n", lease_id=client.claim(queue, node="n", max_count=5).lease_id)
        sample = sampler.take(102.0)
    [second] = sample.queues
    assert (second.in_rate, second.out_rate) == (10.0, 2.5)
    assert (sample.rates["produced"] or 0) >= 10.0
    assert (sample.rates["acked"] or 0) >= 2.5
    assert second.depths == [1, 16]


def test_a_restart_is_seen_where_the_new_server_is_up_for_longer_than_the_old_one_was(tmp_path: Path):
    from tenure.client.client import Client

    serving = Serving(tmp_path / "data").start()
    try:
        with Client(serving.address) as client:
            sampler = Sampler(client, prefix="")
            before = sampler.take(100.0)
            assert sampler.take(100.001).restarted is False
        serving.kill()
        serving.start()
        with Client(serving.address) as client:
            sampler._client = client
            while client.health().uptime_ms <= before.uptime_ms:
                time.sleep(0.01)
            assert sampler.take(101.0).restarted is True
            assert sampler.take(102.0).restarted is False
    finally:
        serving.close()


def test_a_sparkline_is_as_high_as_its_highest_depth():
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 7, 14]) == "▁▄█"


def test_a_narrow_terminal_leaves_columns_out_and_cuts_no_number():
    row = ["a-queue-with-a-long-name", "1200000", "", "17", "0", "3", "13m 20s", "250.0", "1,250", "████████"]
    assert fitting([row], 120) == [0, 1, *range(3, 10)]
    assert fitting([row], 60) == [0, 1, 3, 5, 7, 8]
    assert fitting([row], 25) == [0, 1]
    assert fitting([], 10) == [0, 1]


def test_suspects_have_a_column_where_there_are_any():
    row = ["a-queue", "1200000", "", "17", "0", "3", "13m 20s", "250.0", "1,250", "████████"]
    suspected = [*row[:2], "8", *row[3:]]
    assert fitting([row, suspected], 120) == [*range(10)]
    assert fitting([suspected], 45) == [0, 1, 2, 3]


def test_what_was_lost_and_returned_is_counted(remote: Remote, queue: str, server: Running):
    remote.ok("put", queue, "1", "2", "3")
    lose(server, queue, [1])
    found = remote.json("top", queue, "--interval", "100ms")
    [row] = found["queues"]
    assert (row["ready"], row["suspects"]) == (3, 1)
    assert (found["totals"]["lost"] > 0, found["totals"]["returned"] > 0) == (True, True)
    text = remote.ok("top", queue, "--interval", "100ms")
    assert "suspects" in text
    assert re.search(r"  lost \d+  returned \d+", text)


def test_the_live_view_shows_what_happens_and_q_leaves_the_terminal_as_it_was(
    remote: Remote, queue: str, terminals: list[Terminal]
):
    remote.ok("put", queue, "1")
    terminal = Terminal(remote.url, queue)
    terminals.append(terminal)
    terminal.until(queue)
    terminal.until("sorted by ready")
    terminal.press(b"s")
    terminal.until("sorted by rate")
    remote.ok("put", queue, "2", "3", "4", "5", "6", "7")
    terminal.until("█")
    terminal.press(b"q")
    assert terminal.end() == (0, b"")
    assert b"\x1b[?1049l" in terminal.seen, "the other screen was left"
    assert b"\x1b[?25h" in terminal.seen, "the cursor is back"
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_ctrl_c_leaves_the_live_view_cleanly(remote: Remote, queue: str, terminals: list[Terminal]):
    remote.ok("put", queue, "1")
    terminal = Terminal(remote.url, queue)
    terminals.append(terminal)
    terminal.until(queue)
    os.kill(terminal.child.pid, signal.SIGINT)
    assert terminal.end() == (0, b"")
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_a_restart_of_the_server_is_shown_and_survived(
    tenure: Tenure, tmp_path: Path, queue: str, terminals: list[Terminal]
):
    serving = Serving(tmp_path / "data").start()
    try:
        remote = Remote(tenure, serving.address)
        remote.ok("put", queue, "1")
        terminal = Terminal(serving.address, queue)
        terminals.append(terminal)
        terminal.until(queue)
        port = serving.port
        serving.kill()
        terminal.until("the server is away")
        serving._flags = ["--port", str(port)]
        serving.start()
        terminal.until("the server restarted 1×")
        terminal.press(b"q")
        assert terminal.end() == (0, b"")
    finally:
        serving.close()


@pytest.mark.parametrize("flags", [("--sort", "colour"), ("--interval", "1ms"), ("--interval", "often")])
def test_wrong_flags_are_wrong_usage(remote: Remote, flags: tuple[str, ...]):
    assert remote("top", *flags).returncode == 2
