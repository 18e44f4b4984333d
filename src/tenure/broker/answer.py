"""Answer: the reply of a command that has been run; awaiting it waits for the durability that its topic asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tenure.errors import TenureError

__all__ = ["Answer", "Durability", "Reached", "wait_future"]

T = TypeVar("T")
Reached = Callable[[TenureError | None], None]
"""Called once: with None when a batch has reached its level, with the error of the disk where it never will."""


class Durability(Protocol):
    """The durability of batches, as an answer sees it: which are written, which are synced."""

    def reached(self, batch: int, level: int) -> bool:
        """Return whether a batch has reached a level. Raises the error of the disk where it never will."""

    def abandon(self, reply: object) -> None:
        """Take back a reply whose caller went away while it awaited it."""

    def plan(self) -> None:
        """Plan the write of what was appended."""

    def when_reached(self, batch: int, level: int, call: Reached) -> None:
        """Have ``call`` called when a batch reaches a level, in the turn in which it does."""

    def wait(self, batch: int, level: int) -> asyncio.Future[None]:
        """Return a future that is done when a batch reaches a level."""


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


def wait_future(loop: asyncio.AbstractEventLoop, when_reached: Callable[[Reached], None]) -> asyncio.Future[None]:
    """Return a future that is done when what ``when_reached`` is given is called; it may be cancelled before."""
    future: asyncio.Future[None] = loop.create_future()

    def finish(error: TenureError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    when_reached(finish)
    return future
