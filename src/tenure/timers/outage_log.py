"""`Outage`: report once per change whether Redis can be reached, at the first failed attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Outage", "Report", "log_report"]

Report: TypeAlias = Callable[[int, str], None]
"""A function that takes a level of ``logging`` and a message."""

_log: Final = logging.getLogger("tenure.timers")


def log_report(level: int, message: str) -> None:
    """Log to ``tenure.timers``."""
    _log.log(level, message)


class Outage:
    """The state of the connection to Redis, shared by all calls of one `Timers`."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._is_down = False

    def failed(self, why: str) -> None:
        """Report that an attempt found Redis unreachable, unless that is known."""
        if not self._is_down:
            self._is_down = True
            self.report(logging.ERROR, f"{why}; calls are repeated until it answers")

    def answered(self) -> None:
        """Report the end of an outage, if there was one, after an attempt was answered."""
        if self._is_down:
            self._is_down = False
            self.report(logging.INFO, "Redis answers again")
