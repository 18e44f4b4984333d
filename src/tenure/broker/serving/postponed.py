"""The answer of a command that is not over in its first turn of the loop: it waits for its topic, or runs in steps."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import force_setattr

from tenure.broker.answer import Answer, Reached, wait_future
from tenure.core.level import Level
from tenure.errors import TenureError

__all__ = ["Postponed"]

T = TypeVar("T")


class Postponed(Generic[T]):
    """The durability of an answer whose reply is not known yet.

    ``answer`` is what the caller awaits. Its reply is set before any wait for it ends. ``is_abandoned`` means that the
    caller went away before the command was run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        placeholder: Any = None
        self.answer: Answer[T] = Answer(placeholder, 0, Level.SYNCED, self)
        self.is_abandoned = False
        self._loop = loop
        self._given: Answer[T] | None = None
        self._error: TenureError | None = None
        self._waiters: list[Reached] = []

    def give(self, given: Answer[T]) -> None:
        """Reply as ``given`` does, after that is as durable as it asks for."""
        self._given = given
        if given.durability is None or not given.level or given.durability.reached(given.batch, given.level):
            self._end(None)
        else:
            given.durability.when_reached(given.batch, given.level, self._end)

    def refuse(self, error: TenureError) -> None:
        """Raise this error where the answer is awaited."""
        self._error = error
        self._end(error)

    def _end(self, error: TenureError | None) -> None:
        if self._given is not None:
            force_setattr(self.answer, "reply", self._given.reply)
        waiters, self._waiters = self._waiters, []
        for call in waiters:
            call(error)

    # As the answer sees it

    def reached(self, batch: int, level: int) -> bool:
        """Return whether the reply is known and durable. Raises the error of the command."""
        if self._error is not None:
            raise self._error
        given = self._given
        if given is None:
            return False
        force_setattr(self.answer, "reply", given.reply)
        return given.durability is None or not given.level or given.durability.reached(given.batch, given.level)

    def when_reached(self, batch: int, level: int, call: Reached) -> None:
        """Have ``call`` called when the reply is known and durable."""
        self._waiters.append(call)

    def wait(self, batch: int, level: int) -> asyncio.Future[None]:
        """Return a future that is done when the reply is known and durable."""
        return wait_future(self._loop, partial(self.when_reached, batch, level))

    def abandon(self, reply: object) -> None:
        """Do not run the command, because the caller went away."""
        self.is_abandoned = True

    def plan(self) -> None:
        """Plan nothing: the command plans its own write."""
