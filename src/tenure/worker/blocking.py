"""Helpers of blocking calls in the worker: refuse to block an event loop, and run a coroutine that never waits.

`docs/design/worker.md` explains why other blocking callers have a loop in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tenure.errors import Invalid

__all__ = ["check_no_loop", "run_now"]

T = TypeVar("T")


def check_no_loop(face: str, *, instead: str) -> None:
    """Raise Invalid where an event loop runs in this thread; ``instead`` is the call to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Invalid(f"{face} would stop the event loop that runs here: await {instead} instead")


def run_now(work: Coroutine[Any, Any, T], *, refusal: str) -> T:
    """Return the result of a coroutine that waits for nothing. Raises Invalid with ``refusal`` where it does wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise Invalid(refusal)
