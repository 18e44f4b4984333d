"""`LoopPool`: the connections of a wire on an event loop; `SocketPool` is its twin for threads."""

from __future__ import annotations

import asyncio
from collections import deque

from tenure.client.transport.loop_connection import LoopConnection
from tenure.client.transport.wire import all_in_use, client_closed

__all__ = ["LoopPool"]


class LoopPool:
    """A bounded number of connections: those in use, those that are being made, and the idle ones. ``setting`` names
    the limit. After `close` none of them is open, and none is taken.
    """

    def __init__(self, connections_max: int, *, setting: str) -> None:
        self._setting = setting
        self._closed = False
        self._free = connections_max
        self._idle: list[LoopConnection] = []
        self._used: set[LoopConnection] = set()
        self._waiting: deque[asyncio.Future[LoopConnection | None]] = deque()

    def take_idle(self, idle_s: float) -> LoopConnection | None:
        """Return the connection that was used last and is still good, if there is one."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now_s - connection.used_s < idle_s:
                self._used.add(connection)
                return connection
            connection.abort()
            self._free += 1
        return None

    async def take_place(self, timeout_s: float) -> LoopConnection | None:
        """Wait for a connection that another request gives back, or, as None, for a place to make one.

        Raises WireError where none comes in time, and where the pool is closed meanwhile.
        """
        if self._free:
            self._free -= 1
            return None
        coming: asyncio.Future[LoopConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(coming)
        try:
            async with asyncio.timeout(timeout_s):
                return await coming
        except BaseException as error:
            if coming in self._waiting:
                self._waiting.remove(coming)
            elif coming.done() and not coming.cancelled() and coming.exception() is None:
                self._pass_on(coming.result())  # it came with the cancellation: the next one gets it
            if isinstance(error, TimeoutError):
                raise all_in_use(self._setting) from None
            raise

    def use(self, connection: LoopConnection) -> None:
        """Count a connection that was made for a place. Raises WireError where the pool was closed meanwhile."""
        self._used.add(connection)
        if self._closed:
            self.drop(connection)
            raise client_closed()

    def put(self, connection: LoopConnection) -> None:
        """Give a connection back after its response came whole."""
        if not connection.reusable():
            self.drop(connection)
            return
        self._used.discard(connection)
        self._pass_on(connection)

    def drop(self, connection: LoopConnection) -> None:
        """Close a connection and free its place; a second time does nothing."""
        connection.abort()
        if connection in self._used:
            self._used.discard(connection)
            self._pass_on(None)

    def free_place(self) -> None:
        """Give back a place for which no connection was made."""
        self._pass_on(None)

    def _pass_on(self, connection: LoopConnection | None) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                if connection is not None:
                    self._used.add(connection)
                waiting.set_result(connection)
                return
        if connection is None:
            self._free += 1
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        """Close every connection, also those in use, and refuse whoever waits for one."""
        self._closed = True
        for connection in [*self._idle, *self._used]:
            connection.abort()
        self._free += len(self._idle)
        self._idle.clear()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(client_closed())
        await asyncio.sleep(0)  # the loop then lets go of the sockets
