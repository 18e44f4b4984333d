"""`Entry`: what comes before a process takes jobs from a server: the hello, the wait after a death, and the board."""

from __future__ import annotations

import asyncio

from tenure.worker.backends.open import OpenBackend
from tenure.worker.processes.board import Places
from tenure.worker.runtime.hello import Hello
from tenure.worker.runtime.timing import Timing, end

__all__ = ["Entry"]


class Entry:
    """The entry of this process at one server. It begins at once; ``hello`` is None for Redis, which takes none.
    ``hold_ms`` is the back-off after the death of the process before this one, counted from the hello.
    """

    def __init__(self, server: OpenBackend, hello: Hello | None, timing: Timing, *, hold_ms: int) -> None:
        self.server = server
        self._hello = hello
        self._timing = timing
        self._hold_ms = hold_ms
        self._entering = asyncio.create_task(self._enter())
        self._places: dict[str, Places] | None = None

    async def _enter(self) -> None:
        if self._hello is not None:
            await self._hello.say()
        if self._hold_ms:
            await self._timing.sleep_ms(self._hold_ms)

    async def places(self, queue: str) -> Places | None:
        """Return once jobs may be taken, with the places of a queue on the board; None where it is on none."""
        await asyncio.shield(self._entering)
        if self._places is None:
            self._places = {} if self._hello is None else self._hello.take_board()
        return self._places.get(queue)

    def leave(self) -> None:
        """Note that this process ended well: all that it held was settled or given back."""
        if self._hello is not None and self._places is not None:
            self._hello.leave()

    async def close(self) -> None:
        """Stop where the entry has not come to its end."""
        await end(self._entering)
