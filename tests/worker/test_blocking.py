"""Blocking faces refuse a running loop, and run coroutines that never wait without one."""

from __future__ import annotations

import asyncio

import pytest

from tenure.errors import Invalid
from tenure.worker.blocking import check_no_loop, run_now


def test_code_without_a_loop_may_block():
    check_no_loop("task.blocking", instead="task.put(…)")


async def test_code_on_a_loop_is_told_what_to_await():
    with pytest.raises(Invalid, match=r"^task.blocking would stop .*: await task.put\(…\) instead$"):
        check_no_loop("task.blocking", instead="task.put(…)")


def test_coroutine_that_waits_for_nothing_is_run_without_a_loop():
    async def double(number: int) -> int:
        return 2 * number

    assert run_now(double(21), refusal="it waited") == 42


def test_coroutine_that_waits_is_refused_and_closed():
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append("closed")

    with pytest.raises(Invalid, match="it waited"):
        run_now(wait(), refusal="it waited")
    assert ended == ["closed"]
