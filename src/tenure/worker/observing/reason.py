"""The reason of a failed job in one line: the error's type, its message, and the place in the user's code."""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType, TracebackType
from typing import Final

__all__ = ["REASON_BYTES_MAX", "bounded", "exc_info_of", "place_of", "reason_of", "users_traceback"]

REASON_BYTES_MAX: Final = 1_024
"""The longest reason that a broker takes with a nack."""
_CUT: Final = "…"
_HERE: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
# A virtual environment may lie within the user's own directory, so libraries are recognized by their install paths.
_LIBRARIES: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def bounded(text: str, bytes_max: int = REASON_BYTES_MAX) -> str:
    """Return ``text`` cut to ``bytes_max`` bytes of UTF-8, whole characters only; what has no UTF-8 form is escaped."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= bytes_max:
        return raw.decode()
    return raw[: bytes_max - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def reason_of(error: BaseException) -> str:
    """Return ``ValueError: no such address (mail.py:17 in send)``, at most 1 KiB; what is cut is the message."""
    place = _place(error.__traceback__)
    head = type(error).__name__
    message = _message_of(error)
    line = f"{head}: {message}" if message else head
    return bounded(line, REASON_BYTES_MAX - len(place.encode("utf-8", "backslashreplace"))) + bounded(place)


def _message_of(error: BaseException) -> str:
    """Return ``str(error)``; a placeholder where that fails, because it must not end the worker."""
    try:
        return str(error)
    except Exception:
        return "<no message: its __str__ failed>"


def _place(traceback: TracebackType | None) -> str:
    """Format the innermost frame in the user's code, or else the innermost outside of Tenure."""
    users = outside = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            outside = f" ({_line(code, traceback.tb_lineno)})"
            if not code.co_filename.startswith(_LIBRARIES):
                users = outside
        traceback = traceback.tb_next
    return users or outside


def place_of(frame: FrameType | None) -> str:
    """Return ``mail.py:17 in send``: where a stack stands in the user's code; empty where it does not stand there."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_HERE, *_LIBRARIES, "<")):
            return _line(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""


def _line(code: CodeType, line: int) -> str:
    return f"{os.path.basename(code.co_filename)[-80:]}:{line} in {code.co_name[:80]}"


_WORKER: Final = os.path.dirname(os.path.dirname(__file__))
_AROUND: Final = frozenset(
    os.path.join(_WORKER, *name.split("/"))
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
"""The modules between the worker and a handler. Other frames of Tenure stay, as of a put that fails in a handler."""


def exc_info_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return the ``exc_info`` of an error for logging; its causes and contexts are included."""
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
