"""Test tools, public: a simulated disk that crashes, a manual clock, a broker in memory, a tester for apps, and a
checker that reports lost, duplicated and undone work from the history of clients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.testing.app import AppTester, DeadLetter, QueuedJob
    from tenure.testing.blocking import BlockingAppTester
    from tenure.testing.checker import check_history
    from tenure.testing.clock import ManualClock
    from tenure.testing.context import HandlerContext, ManualTiming, make_context
    from tenure.testing.fake_timers import FakeTimers
    from tenure.testing.history import History
    from tenure.testing.report import HistoryReport
    from tenure.testing.server import memory_broker, running_server
    from tenure.testing.simdisk import SimDisk
    from tenure.testing.simstore import Hold, SimClient, SimStore
    from tenure.testing.wire import AppWire, LossyWire, ThreadWire

__all__ = [
    "AppTester",
    "AppWire",
    "BlockingAppTester",
    "DeadLetter",
    "FakeTimers",
    "HandlerContext",
    "History",
    "HistoryReport",
    "Hold",
    "LossyWire",
    "ManualClock",
    "ManualTiming",
    "QueuedJob",
    "SimClient",
    "SimDisk",
    "SimStore",
    "ThreadWire",
    "check_history",
    "make_context",
    "memory_broker",
    "running_server",
]

_MODULES = {
    "AppTester": "app",
    "AppWire": "wire",
    "BlockingAppTester": "blocking",
    "DeadLetter": "app",
    "FakeTimers": "fake_timers",
    "HandlerContext": "context",
    "History": "history",
    "HistoryReport": "report",
    "Hold": "simstore",
    "LossyWire": "wire",
    "ManualClock": "clock",
    "ManualTiming": "context",
    "QueuedJob": "app",
    "SimClient": "simclient",
    "SimDisk": "simdisk",
    "SimStore": "simstore",
    "ThreadWire": "wire",
    "check_history": "checker",
    "make_context": "context",
    "memory_broker": "server",
    "running_server": "server",
}
"""The module of each name, loaded at first use: a test of the engine alone loads no client, worker or server."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"tenure.testing.{_MODULES[name]}")
    value = globals()[name] = getattr(module, name)
    return value
