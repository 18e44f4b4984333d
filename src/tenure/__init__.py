"""Tenure: a durable work queue and ingestion buffer for Python teams. Work is handed out on leases."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenure.broker.broker import Broker
from tenure.core.records import Record
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
    from tenure.client.client import AsyncClient, Client

# Names whose rooms bring packages along that the engine does without: looked for when they are first used.
_LAZY = {
    "AsyncClient": "tenure.client.client",
    "Client": "tenure.client.client",
}

__all__ = [
    "AsyncClient",
    "Broker",
    "Client",
    "Closed",
    "Conflict",
    "Corrupt",
    "Denied",
    "Indeterminate",
    "Invalid",
    "LeaseLost",
    "NotFound",
    "Overloaded",
    "Record",
    "Settings",
    "TenureError",
]


def __getattr__(name: str) -> Any:
    """A name of the table above, from its room."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
