"""Verify a log that may be damaged, without changing it.

A damaged log is refused when it is opened, never silently cut. What to give up is the operator's decision; this lists
what there is to decide: files, byte ranges, batches, and topics where a frame still names them. Salvage, which knows
what frames mean, saves the rest: :mod:`tenure.broker.salvage.rebuild`.
"""

from __future__ import annotations

from pathlib import Path

from tenure.log.damage.defects import Problem, Report
from tenure.log.damage.survey import Survey
from tenure.log.disk import Disk, PosixDisk

__all__ = ["Problem", "Report", "verify"]


def verify(directory: Disk | str | Path) -> Report:
    """Read every byte of a log, change nothing, and list every problem. Raises Corrupt for a newer format."""
    disk = PosixDisk(directory, create=False) if isinstance(directory, (str, Path)) else directory
    survey = Survey(disk)
    for _ in survey.batches():
        pass
    return survey.report()
