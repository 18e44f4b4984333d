"""The log: batches of frames in segment files, durable when it says so, whole or refused after a crash.

Start with :mod:`~tenure.log.interface` for the contract, then :mod:`~tenure.log.log` for how it is kept on a disk.
"""

from __future__ import annotations

from tenure.log.disk import Disk, PosixDisk
from tenure.log.features import Feature, FeatureSet
from tenure.log.interface import Entry, Frame, Log, Position, SegmentInfo, Sync, UnknownPosition
from tenure.log.log import FileLog
from tenure.log.memory import MemoryLog

__all__ = [
    "Disk",
    "Entry",
    "Feature",
    "FeatureSet",
    "FileLog",
    "Frame",
    "Log",
    "MemoryLog",
    "Position",
    "PosixDisk",
    "SegmentInfo",
    "Sync",
    "UnknownPosition",
]
