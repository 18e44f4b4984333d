"""A blocked loop is said: by which job, at which line, and for how long."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tenure.worker.observing.loop_watch import LoopWatch
from tenure.worker.runtime.job import HeldJob

JOB = HeldJob(topic="mail", seq=17, lease_id="lease_1", node="w", data=b"1")


def block(until: threading.Event) -> None:
    """Hold up the loop as a handler does that calls something slow."""
    while not until.is_set():
        time.sleep(0.001)


def said(caplog: pytest.LogCaptureFixture, part: str) -> threading.Event:
    """An event that is set once the log says so."""
    found = threading.Event()

    def look() -> None:
        while not any(part in message for message in caplog.messages):
            time.sleep(0.001)
        found.set()

    threading.Thread(target=look, daemon=True).start()
    return found


async def test_the_job_the_line_and_the_whole_time_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(lambda task: JOB, limit_ms=20, every_ms=10)
    block(said(caplog, "has blocked the event loop for"))
    again = said(caplog, "runs again")
    while not again.is_set():
        await asyncio.sleep(0.001)
    watch.close()
    first, last = caplog.messages
    assert first.startswith("job 17 of mail (test_loop_watch.py:")
    assert " in block) has blocked the event loop for" in first
    assert last.startswith("the event loop runs again: job 17 of mail (test_loop_watch.py:")


async def test_where_no_job_runs_the_line_alone_is_said(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(lambda task: None, limit_ms=20, every_ms=10)
    block(said(caplog, "has blocked the event loop for"))
    watch.close()
    assert caplog.messages[0].startswith("test_loop_watch.py:")


async def test_a_loop_that_answers_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(lambda task: JOB, limit_ms=60_000, every_ms=1)
    for _ in range(1_000):
        await asyncio.sleep(0)
    watch.close()
    assert caplog.messages == []


async def test_the_thread_ends_with_the_watch() -> None:
    watch = LoopWatch(lambda task: JOB, limit_ms=60_000, every_ms=60_000)
    names = [thread.name for thread in threading.enumerate()]
    assert "loop-watch" in names
    watch.close()
    assert "loop-watch" not in [thread.name for thread in threading.enumerate()]
