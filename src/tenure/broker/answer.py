"""An answer: the command has been carried out when you hold it, and awaiting it waits for the durability it asks for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from tenure.broker.committer import Committer
from tenure.broker.outcome import Level, Outcome

__all__ = ["Answer"]

T = TypeVar("T")


class Answer(Generic[T]):
    """What a command answers. ``await`` it; a thousand of them can be collected first and cost one write together."""

    __slots__ = ("_committer", "_finish", "_outcome")

    def __init__(self, committer: Committer, outcome: Outcome[T], finish: Callable[[T], T] | None = None) -> None:
        self._committer = committer
        self._outcome = outcome
        self._finish = finish

    @property
    def durable(self) -> bool:
        """Whether the reply may be given without waiting."""
        _, batch, level = self._outcome
        return level == Level.NOW or self._committer.reached(batch, level)

    def __await__(self) -> Generator[Any, None, T]:
        reply, batch, level = self._outcome
        if level and not self._committer.reached(batch, level):
            yield from self._committer.wait(batch, level)
        return reply if self._finish is None else self._finish(reply)
