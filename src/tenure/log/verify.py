"""Looking at a damaged log without changing it, and saving what is whole into a new directory.

A log that is damaged is refused when it is opened, never silently cut. What to give up is the operator's decision, so
it is a command of its own, and it lists exactly what it could not save: files, byte ranges, batches, and topics where
a frame still tells.
"""

from __future__ import annotations

from pathlib import Path

from tenure.errors import Conflict
from tenure.log.disk import Disk, PosixDisk
from tenure.log.log import SEGMENT_BYTES, FileLog
from tenure.log.segment import segment_numbers
from tenure.log.survey import Problem, Report, Survey

__all__ = ["Problem", "Report", "salvage", "verify"]


def verify(directory: Disk | str | Path) -> Report:
    """Go through every byte of a log, change nothing, and list every problem. Raises Corrupt for a newer format."""
    survey = Survey(_disk(directory, create=False))
    for _ in survey.batches():
        pass
    return survey.report()


def salvage(directory: Disk | str | Path, into: Disk | str | Path, *, segment_bytes: int = SEGMENT_BYTES) -> Report:
    """Write everything that is whole into a new directory, change nothing in the old one, list what is given up.

    Batches get new numbers there, and the epochs go on above the old ones, so that no number made from them is used
    twice. Raises Conflict where the new directory already holds a log.
    """
    source, target = _disk(directory, create=False), _disk(into, create=True)
    if segment_numbers(target):
        raise Conflict("the directory to salvage into already holds a log: choose an empty one", code="not_empty")
    epoch = verify(source).epoch
    survey = Survey(source)
    log = FileLog.open(target, segment_bytes=segment_bytes, epoch=epoch)
    try:
        for _ in log.replay():
            pass
        for frames in survey.batches():
            if frames:
                log.append([(kind, topic, body) for kind, topic, _, body in frames])
                log.write()
    finally:
        log.close()
    return survey.report()


def _disk(directory: Disk | str | Path, *, create: bool) -> Disk:
    return PosixDisk(directory, create=create) if isinstance(directory, (str, Path)) else directory
