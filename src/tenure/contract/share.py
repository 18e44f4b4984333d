"""`Share`: the quota of one caller within limits that all callers share."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Share"]


class Share(ABC):
    """The quota of one caller within limits that all callers share.

    A decision calls it after the limit itself leaves room; each method raises Overloaded where the quota does not. The
    command may still fail for another reason, so a share may count too much and never too little.
    """

    __slots__ = ()

    @abstractmethod
    def take_topic(self, name: str) -> None:
        """Count a topic that is about to be created."""

    @abstractmethod
    def take_router(self, name: str) -> None:
        """Count a router that is about to be created."""

    @abstractmethod
    def take_key(self, topic: str) -> None:
        """Count one more idempotency key that a topic is about to remember."""
