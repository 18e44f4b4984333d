"""Tenure: a durable work queue and ingestion buffer for Python teams. Work is handed out on leases."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenure.contract.records import Record
from tenure.errors import (
    Closed,
    Conflict,
    Corrupt,
    Denied,
    Indeterminate,
    Invalid,
    LeaseLost,
    NotFound,
    Overloaded,
    TenureError,
)
from tenure.settings import Settings

if TYPE_CHECKING:
    from tenure.broker.broker import Broker
    from tenure.client.client import AsyncClient, Client
    from tenure.worker.app import App
    from tenure.worker.backoff import Exponential, Fixed
    from tenure.worker.context import Context
    from tenure.worker.middleware import Middleware
    from tenure.worker.periodic import Tick
    from tenure.worker.task import Task
    from tenure.worker.verdict import Ack, AckPolicy, Nack, Reject

# Names whose rooms take a while to enter, or bring packages along: looked for when they are first used, for every
# process of Spark's that reads a batch imports this module too.
_LAZY = {
    "AsyncClient": "tenure.client.client",
    "Broker": "tenure.broker.broker",
    "Client": "tenure.client.client",
    "Ack": "tenure.worker.verdict",
    "AckPolicy": "tenure.worker.verdict",
    "App": "tenure.worker.app",
    "Context": "tenure.worker.context",
    "Exponential": "tenure.worker.backoff",
    "Fixed": "tenure.worker.backoff",
    "Middleware": "tenure.worker.middleware",
    "Nack": "tenure.worker.verdict",
    "Reject": "tenure.worker.verdict",
    "Task": "tenure.worker.task",
    "Tick": "tenure.worker.periodic",
}

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - in groups
    # Servers and clients
    "AsyncClient",
    "Broker",
    "Client",
    "Record",
    "Settings",
    # Apps and their tasks
    "App",
    "Context",
    "Middleware",
    "Task",
    "Tick",
    # What becomes of a job
    "Ack",
    "AckPolicy",
    "Exponential",
    "Fixed",
    "Nack",
    "Reject",
    # Errors
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
]


def __getattr__(name: str) -> Any:
    """A name of the table above, from its room."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
