"""An awaitable answer that notices when its caller goes away.

A command is run when it is called, so a claim that waits is in its line before the caller awaits it. A caller
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
    """An awaitable for one caller. Exactly one of ``_finish`` and ``_abandon`` is called for it.

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
        """Wait and return the result. Where this is cancelled, give back what is held for the caller."""

    @abstractmethod
    def _abandon(self) -> None:
        """Stop waiting and give back what is held for the caller: it will never await this."""

    def __await__(self) -> Generator[Any, Any, T]:
        self._is_taken = True
        return self._finish().__await__()

    def send(self, value: Any) -> Any:
        """Continue, as a task does with the coroutine it runs."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise where it waits; before the first step it does not wait yet, and the caller is gone."""
        if self._steps is None:
            self.close()
            raise error[0]
        return self._steps.throw(*error)

    def close(self) -> None:
        """Stop, because the caller is gone."""
        if self._steps is not None:
            self._steps.close()
        elif not self._is_taken:
            self._is_taken = True
            self._abandon()

    def __del__(self) -> None:
        # Any thread may drop it, in the middle of anything: the broker gives back in a turn of its own.
        if not self._is_taken:
            self._is_taken = True
            with suppress(RuntimeError):  # the loop is closed, and with it the broker
                self._loop.call_soon_threadsafe(self._abandon)
