"""An answer: the command has been carried out when you hold it; awaiting it waits for the durability it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

__all__ = ["Answer", "Durability"]

T = TypeVar("T")


class Durability(Protocol):
    """Knows how far batches have come."""

    def reached(self, batch: int, level: int) -> bool:
        """Whether a batch has come as far as an answer asks. Raises what went wrong where it never will."""

    def abandon(self, reply: object) -> None:
        """A caller went away while it awaited this reply."""

    def plan(self) -> None:
        """Something was appended: see that it is written."""

    def wait(self, batch: int, level: int) -> asyncio.Future[None]:
        """A future for a batch that has not come that far yet."""


class Answer(msgspec.Struct, Generic[T], frozen=True, eq=False, gc=False):
    """A reply that may be given once ``batch`` has reached ``level``.

    ``await`` it for the reply. A thousand answers can be collected first; they cost one write together. An engine
    without a broker around it has no durability: there the reply is simply read.
    """

    reply: T
    batch: int
    level: int
    durability: Durability | None = None

    def __await__(self) -> Generator[Any, None, T]:
        durability, level = self.durability, self.level
        if level and durability is not None and not durability.reached(self.batch, level):
            try:
                yield from durability.wait(self.batch, level)
            except (asyncio.CancelledError, GeneratorExit):
                durability.abandon(self.reply)
                raise
        return self.reply
