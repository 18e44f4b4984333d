"""Tenure: a durable work queue and ingestion buffer for Python teams. Work is handed out on leases."""

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

__all__ = [
    "Broker",
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
