"""The home of a broker's data: a directory, a disk, a log, a function that opens a log, or memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from tenure.contract.names import describe_value
from tenure.errors import Invalid
from tenure.log.disk import Disk, open_directory
from tenure.log.interface import Log
from tenure.log.log import FileLog
from tenure.log.memory import MemoryLog
from tenure.settings import Settings

__all__ = ["Home", "open_home"]

Home = str | Path | Disk | FileLog | MemoryLog | Callable[[], FileLog] | None
"""A function opens its log where that may wait: for a log whose home is in a store."""


def open_home(home: Home, settings: Settings) -> tuple[Disk | None, Log]:
    """Return the log of a home, and the disk for its checkpoints where there is one."""
    if home is None:
        return None, MemoryLog(segment_bytes=settings.segment_bytes)
    if isinstance(home, (FileLog, MemoryLog)):
        return None, home
    if isinstance(home, (str, Path)):
        if not str(home) or "\0" in str(home):
            raise Invalid(f"a data directory needs a path; got {describe_value(str(home))}")
        disk: Disk = open_directory(home)
    elif callable(getattr(home, "pread", None)):
        disk = cast("Disk", home)
    elif callable(home):
        log = home()
        return log.disk, log
    else:
        raise Invalid(f"a home is a path, a disk, a log or None; got {describe_value(home)}")
    return disk, FileLog.open(disk, segment_bytes=settings.segment_bytes)
