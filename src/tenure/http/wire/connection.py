"""A connection as those see it that look after all of them."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Connection"]


class Connection(Protocol):
    """One socket, from its acceptance to its end, whatever is spoken on it."""

    def tick(self, now_s: float) -> None:
        """Look at your deadlines."""

    def drain(self) -> None:
        """Finish what is in flight, end streams, take nothing new, close."""

    def abandon(self) -> None:
        """Answer at once what is still waiting, that the server stops, and close."""

    def abort(self) -> None:
        """Close without another byte."""
