"""Whether Redis can be reached, reported once per change: at the first failed attempt, not after the last repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Outage", "Report", "log_report"]

Report: TypeAlias = Callable[[int, str], None]
"""Take a level of ``logging`` and a message."""

_log: Final = logging.getLogger("tenure.timers")


def log_report(level: int, message: str) -> None:
    """Log to ``tenure.timers``."""
    _log.log(level, message)


class Outage:
    """What all calls of one `Timers` know together about the way to Redis."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._is_down = False

    def failed(self, why: str) -> None:
        """An attempt found Redis unreachable: report it, unless it is known."""
        if not self._is_down:
            self._is_down = True
            self.report(logging.ERROR, f"{why}; calls are repeated until it answers")

    def answered(self) -> None:
        """An attempt was answered: report that an outage has ended, if there was one."""
        if self._is_down:
            self._is_down = False
            self.report(logging.INFO, "Redis answers again")
