"""A caller's share of the limits that all callers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Share"]


class Share(ABC):
    """How much one caller may use up of the limits that all callers share.

    Asked when a limit as such leaves room; each method raises Overloaded where the share does not. What was taken may
    still fail for another reason, so a share may count too much and never too little.
    """

    __slots__ = ()

    @abstractmethod
    def take_topic(self, name: str) -> None:
        """Take one topic of this name, which is about to be created."""

    @abstractmethod
    def take_router(self, name: str) -> None:
        """Take one router of this name, which is about to be created."""

    @abstractmethod
    def take_key(self, topic: str) -> None:
        """Take one idempotency key, which a topic is about to remember."""
