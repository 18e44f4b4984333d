"""The tour runs to its end, says what it shows, and fails where something it says is not so."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.cli.conftest import Tenure

LIE = """
import sys, tenure.cli.tour.tour as tour
from tenure.cli.tour import kill as tour_kill
tour_kill.job = lambda seq: b"something else"
sys.exit(tour.run())
"""


def test_the_tour_shows_a_kill_a_recovery_and_the_life_of_a_lease(tenure: Tenure):
    started = time.monotonic()
    done = tenure("tour")
    assert (done.returncode, done.stderr) == (0, "")
    for said in ("SIGKILL", "batches replayed", "gone, and stays gone", "all there, byte for byte", "deliveries"):
        assert said in done.stdout
    for said in ("A server is lost", "still its own", "each handed out once"):
        assert said in done.stdout
    for said in ("too late", "nack", "mail.dead", "redrive", "extend", "Everything above was checked"):
        assert said in done.stdout
    # Not a measurement: it takes two seconds, and ten would mean that something hangs.
    assert time.monotonic() - started < 30


@pytest.mark.full
def test_the_tour_is_plain_text_where_there_is_no_terminal(tenure: Tenure):
    done = tenure("tour", CI="true")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


@pytest.mark.full
def test_no_color_is_honoured_on_a_terminal(tenure: Tenure):
    done = tenure("tour", NO_COLOR="1", FORCE_COLOR="1", TERM="xterm-256color")
    assert done.returncode == 0
    assert not any(f"\x1b[{code}m" in done.stdout for code in (31, 32, 33, 34, 35, 36))


def test_a_surprise_ends_the_tour_with_exit_code_1():
    done = subprocess.run([sys.executable, "-c", LIE], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the tour met a surprise: every job has the bytes that were sent" in done.stderr
    assert "Everything above was checked" not in done.stdout
    assert "Traceback" not in done.stderr
