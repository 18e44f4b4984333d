"""`AsyncLookout`: look around while answers are outstanding on an event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from tenure.client.settings import ClientSettings
from tenure.client.transport.aio import LoopWire
from tenure.client.transport.endpoints import Endpoints, Server
from tenure.client.transport.looking import Patience, given_up, look_request, note_answer, patience_for
from tenure.client.transport.wire import WireError

__all__ = ["AsyncLookout", "Watch"]


class AsyncLookout:
    """The looks of one client: at most one task, which asks for all answers that are late."""

    def __init__(self, endpoints: Endpoints[LoopWire], settings: ClientSettings) -> None:
        self._endpoints = endpoints
        self._settings = settings
        self._late: set[Watch] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, server: Server[LoopWire], *, wait_ms: int = 0, is_stream: bool = False) -> Watch:
        """Return a context manager around the wait for one answer of a server."""
        patience = patience_for(self._settings, now_s=time.monotonic(), wait_ms=wait_ms, is_stream=is_stream)
        return Watch(self, server, patience)

    def look_for(self, watch: Watch) -> None:
        """Look around for an answer that is late."""
        self._late.add(watch)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._look())

    def forget(self, watch: Watch) -> None:
        """Look no more for an answer that came; a look for it alone ends."""
        self._late.discard(watch)
        if not self._late:
            self._end()

    def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _look(self) -> None:
        while late := set(self._late):
            asked_s = time.monotonic()
            servers = {other for watch in late for other in self._endpoints.others(watch.server)}
            await asyncio.gather(*(self._ask(server, asked_s) for server in servers))
            now_s = time.monotonic()
            for watch in late & self._late:
                self._late.discard(watch)
                if self._endpoints.is_overtaken(watch.server, since_s=watch.patience.begun_s):
                    watch.give_up()
                else:
                    watch.wait_on(now_s)

    async def _ask(self, server: Server[LoopWire], asked_s: float) -> None:
        with suppress(WireError):
            response = await server.wire.send(look_request(self._settings))
            note_answer(self._endpoints, server, response, now_s=asked_s)

    def close(self) -> None:
        """End a look under way."""
        self._end()


class Watch:
    """The wait for one answer of a server. Raises WireError where another server leads a later epoch; ``sent``, which
    the caller sets, says whether the request was sent by then.
    """

    def __init__(self, lookout: AsyncLookout, server: Server[LoopWire], patience: Patience) -> None:
        self.server = server
        self.patience = patience
        self.sent = False
        self._lookout = lookout
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._schedule()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._lookout.forget(self)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise given_up(self.server, sent=self.sent) from None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.patience.pause_s, self._lookout.look_for, self)

    def wait_on(self, now_s: float) -> None:
        """Wait for the next look."""
        self.patience.looked(now_s)
        self._schedule()

    def give_up(self) -> None:
        """End the wait with an error."""
        self._limit.reschedule(asyncio.get_running_loop().time())
