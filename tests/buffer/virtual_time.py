"""Producers and consumers in virtual time: an hour of flushes takes no hour, and each has its exact time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.chain.worlds.clock import MachineClock
from tests.chain.worlds.loop import VirtualLoop

__all__ = ["in_virtual_time"]

T = TypeVar("T")


def in_virtual_time(main: Callable[[MachineClock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main``, with a clock that goes by its loop's time, and return its result."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(MachineClock(lambda: loop.now_ms)))
    finally:
        loop.end()
