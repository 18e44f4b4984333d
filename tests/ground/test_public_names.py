"""What users may import is a promise: a name joins or leaves these lists on purpose, never by accident."""

from __future__ import annotations

import importlib

import pytest

# The public modules and what each offers. Adding a module here pins it.
PUBLIC = {
    "tenure": [
        "Ack",
        "AckPolicy",
        "App",
        "AsyncClient",
        "Broker",
        "Client",
        "Closed",
        "Conflict",
        "Context",
        "Corrupt",
        "Denied",
        "Exponential",
        "Fixed",
        "Indeterminate",
        "Invalid",
        "LeaseLost",
        "Middleware",
        "Nack",
        "NotFound",
        "Overloaded",
        "Record",
        "Reject",
        "Settings",
        "Task",
        "TenureError",
        "Tick",
    ],
    "tenure.errors": [
        "Closed",
        "Conflict",
        "Corrupt",
        "Denied",
        "Indeterminate",
        "Invalid",
        "LeaseLost",
        "NotFound",
        "Overloaded",
        "TenureError",
    ],
    "tenure.client": [
        "Acker",
        "AsyncClient",
        "AsyncFeed",
        "AsyncLease",
        "AsyncProducer",
        "AsyncQueue",
        "AsyncWire",
        "CaughtUp",
        "Claimed",
        "Client",
        "ClientSettings",
        "Diff",
        "Extended",
        "Feed",
        "Gap",
        "HeldJob",
        "Job",
        "JobInfo",
        "Lease",
        "Lifecycle",
        "Produced",
        "Producer",
        "Queue",
        "ReadRecord",
        "Records",
        "Request",
        "Response",
        "Settled",
        "Tombstone",
        "TopicDeleted",
        "TopicInfo",
        "WatchEvent",
        "Wire",
        "WireError",
    ],
    "tenure.clock": ["Clock", "OffsetClock", "SystemClock"],
    "tenure.testing": [
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
    ],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_the_pinned_ones(module: str):
    assert sorted(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there(module: str):
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
