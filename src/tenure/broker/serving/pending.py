"""An answer that has to wait, and that notices when nobody waits for it any more.

A command is carried out when it is called, so a claim that waits stands in its line before anybody awaits it. A caller
may go away at any time after that. While it awaits, it is cancelled, and `Pending` sees the CancelledError. Before its
first step there are two more ways, and a plain awaitable would see neither: a task that is cancelled then throws into
the object it was made of without ever calling ``__await__``, which is why `Pending` is a coroutine by itself; and an
object that is dropped only has its ``__del__`` called.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")


class Pending(Coroutine[Any, Any, T]):
    """Something to await, once. Exactly one of ``_finish`` and ``_abandon`` is called for it.

    What stays registered with the broker must not refer to this object, or it would never be dropped. A subclass calls
    ``__init__`` here last: one that is refused before has nothing to abandon.
    """

    _is_taken = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_taken = False
        self._steps: Generator[Any, Any, T] | None = None

    @abstractmethod
    async def _finish(self) -> T:
        """Wait, and return what was waited for. What is held for the caller is given back here where it is
        cancelled.
        """

    @abstractmethod
    def _abandon(self) -> None:
        """Nobody will await this: stop waiting, and give back what was held for the caller."""

    def __await__(self) -> Generator[Any, Any, T]:
        self._is_taken = True
        return self._finish().__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a task does with the coroutine it runs."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise where it waits; before the first step nobody waits, and the caller is gone."""
        if self._steps is None:
            self.close()
            raise error[0]
        return self._steps.throw(*error)

    def close(self) -> None:
        """Stop: the caller is gone."""
        if self._steps is not None:
            self._steps.close()
        elif not self._is_taken:
            self._is_taken = True
            self._abandon()

    def __del__(self) -> None:
        # Whichever thread drops it, and in the middle of whatever: the broker is told in a turn of its own.
        if not self._is_taken:
            self._is_taken = True
            with suppress(RuntimeError):  # the loop is closed, and with it the broker
                self._loop.call_soon_threadsafe(self._abandon)
