"""A progress bar on standard error, shown only on a terminal and for long work."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["Progress"]

_SHOW_AFTER_S: Final = 0.3


class Progress:
    """The progress of a long command. ``total`` None means that the total is unknown."""

    def __init__(self, what: str, *, total: int | None) -> None:
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def update(self, done: int, words: str) -> None:
        """Show ``done`` of the total, and the same in words."""
        if self._bar is None:
            if not sys.stderr.isatty() or time.monotonic() - self._started < _SHOW_AFTER_S:
                return
            self._open()
        assert self._bar is not None
        self._bar.update(self._bar.task_ids[0], completed=done, words=words)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
        self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        self._bar.add_task(self._what, total=self._total, words="")
        self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
