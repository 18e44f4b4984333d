"""The traceback of a handler's error as its author expects it: from their own code on, without the worker's frames."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final

__all__ = ["exc_info_of", "users_traceback"]

_HERE: Final = os.path.dirname(os.path.dirname(__file__))
_AROUND: Final = frozenset(
    os.path.join(_HERE, *name.split("/"))
    for name in (
        "processes/child.py",
        "processes/children.py",
        "processes/executors.py",
        "runtime/handler.py",
        "runtime/delivery.py",
        "runtime/time_limit.py",
        "hooks.py",
        "middleware.py",
    )
)
"""The modules between the worker and a handler. Other frames of ours stay: a put that fails in a handler is news."""


def exc_info_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what logging takes as ``exc_info``; causes and contexts come along with the error itself."""
    return type(error), error, users_traceback(error.__traceback__)


def users_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that the worker puts around a handler."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename not in _AROUND:
            kept.append(traceback)
        traceback = traceback.tb_next
    following: TracebackType | None = None
    for frame in reversed(kept):
        following = TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return following
