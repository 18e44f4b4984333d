"""Ending a process whose object store has threads of its own.

A thread of the store's client hands each result over to the event loop by Python code. The loop may go on with the
result, and the program end, before that thread has returned from there; up to Python 3.13 the interpreter then ends
the thread while it unwinds through frames that are not Python's, and the process aborts (SIGABRT) after its work.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from functools import cache
from types import FrameType
from typing import Final

__all__ = ["finish_at_exit", "wait_for_foreign_threads"]

_WAIT_S_MAX: Final = 5.0
_POLL_S: Final = 0.001


@cache
def finish_at_exit() -> None:
    """Have the interpreter wait at its exit, before it is torn down, for threads that are handing a result over."""
    atexit.register(wait_for_foreign_threads, _WAIT_S_MAX)


def wait_for_foreign_threads(seconds_max: float) -> bool:
    """Wait until no thread that Python did not start hands a result over; return whether that came within the limit.

    A thread shows up for as long as it has a Python frame, also while it waits for the interpreter's lock.
    """
    until = time.monotonic() + seconds_max
    while _is_handing_over():
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)  # lets go of the interpreter's lock, which is what the thread waits for
    return True


def _is_handing_over() -> bool:
    known = {thread.ident for thread in threading.enumerate()}
    return any(_is_of_asyncio(frame) for number, frame in sys._current_frames().items() if number not in known)


def _is_of_asyncio(frame: FrameType) -> bool:
    """Whether the thread came into Python by a call of the event loop's; others that are not known do other things."""
    while frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("asyncio.")
