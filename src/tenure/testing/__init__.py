"""What Tenure tests itself with, for your tests too: a disk that crashes, a clock in your hand, a broker in memory,
your app against it, and a checker that reads what your clients saw and says what was lost, doubled or undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.testing.checker import HistoryReport, check_history
from tenure.testing.clock import ManualClock
from tenure.testing.history import History
from tenure.testing.memory import memory_broker
from tenure.testing.simdisk import SimDisk
from tenure.testing.timing import ManualTiming

if TYPE_CHECKING:
    from tenure.testing.app import AppTester, DeadLetter, QueuedJob

__all__ = [
    "AppTester",
    "DeadLetter",
    "History",
    "HistoryReport",
    "ManualClock",
    "ManualTiming",
    "QueuedJob",
    "SimDisk",
    "check_history",
    "memory_broker",
]


def __getattr__(name: str) -> Any:
    """Those who test the engine alone do not load the clients and the worker runtime."""
    if name not in ("AppTester", "DeadLetter", "QueuedJob"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tenure.testing import app

    value = globals()[name] = getattr(app, name)
    return value
