"""How long the failures of some calls may take: a bound by time in the place of a number of attempts."""

from __future__ import annotations

from typing import Protocol

__all__ = ["RetryTime"]


class RetryTime(Protocol):
    """The time that calls which failed may be repeated for; the calls of one piece of work share one."""

    @property
    def is_over(self) -> bool:
        """Return whether a call that failed is not repeated any more."""
        ...

    def failed(self, took_s: float) -> None:
        """Note an attempt that the store did not answer, and how long it took."""
        ...

    def waited(self, wait_s: float) -> None:
        """Note a wait before a repeat."""
        ...

    def answered(self) -> None:
        """Note that the store answered, be it with a refusal."""
        ...
