"""The interface of a connection to the registry of all connections."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Connection"]


class Connection(Protocol):
    """One socket, from its acceptance to its end, over any protocol."""

    def tick(self, now_s: float) -> None:
        """Check the deadlines."""

    def drain(self) -> None:
        """Finish what is in flight, end streams, take nothing new, close."""

    def abandon(self) -> None:
        """Answer pending requests at once with the error that the server stops, and close."""

    def abort(self) -> None:
        """Close without another byte."""
