"""`SocketPool`: the connections of a blocking wire, which threads share; `LoopPool` is its twin on a loop."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from tenure.client.transport.fork import renew_in_child
from tenure.client.transport.wire import all_in_use, client_closed

__all__ = ["SocketPool"]


class Closable(Protocol):
    """What a pool asks of a connection: `close` is its user's, and `interrupt` may be called by any thread."""

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class SocketPool(Generic[C]):
    """A bounded number of places, each with an idle connection or, as None, without one. The last one put is taken
    first. ``setting`` names the limit. After `close` every connection is closed as soon as it is not in use.

    It works in a signal handler that interrupts a thread inside it: the lock may be taken twice, and whether the pool
    is closed is asked after a connection was added, never before. In a forked process every place is free and has no
    connection.
    """

    def __init__(self, places: int, *, setting: str) -> None:
        self._places = places
        self._setting = setting
        self._closed = False
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._idle: list[C | None] = [None] * self._places
        self._used: set[C] = set()
        self._changed = threading.Condition(threading.RLock())

    def after_fork(self) -> None:
        """Free every place; the connections are the parent's."""
        self._begin()

    def get(self, timeout_s: float) -> C | None:
        """Take a place. Raises WireError where none becomes free in time, and where the pool is closed meanwhile."""
        with self._changed:
            if not self._idle and not self._closed:
                self._changed.wait_for(lambda: self._idle or self._closed, timeout_s)
            if self._closed:
                raise client_closed()
            if not self._idle:
                raise all_in_use(self._setting)
            connection = self._idle.pop()
        if connection is not None:
            self.use(connection)
        return connection

    def use(self, connection: C) -> None:
        """Count a connection as in use. Raises WireError where the pool was closed meanwhile."""
        with self._changed:
            self._used.add(connection)
            if not self._closed:
                return
        self.drop(connection)
        raise client_closed()

    def put(self, connection: C) -> None:
        """Give a connection back after its response came whole."""
        with self._changed:
            self._used.discard(connection)
            self._add(connection)
            if self._closed:
                self._close_idle()

    def forget(self, connection: C) -> None:
        """Close a connection and keep its place, for another one."""
        with self._changed:
            self._used.discard(connection)
        connection.close()

    def drop(self, connection: C) -> None:
        """Close a connection and free its place."""
        self.forget(connection)
        self.free_place()

    def free_place(self) -> None:
        """Give back a place for which no connection was made, or whose connection is closed."""
        with self._changed:
            self._add(None)

    def _add(self, connection: C | None) -> None:
        if len(self._idle) < self._places:  # fewer only in a process that was forked while this place was in use
            self._idle.append(connection)
            self._changed.notify()

    def _close_idle(self) -> None:
        for number, connection in enumerate(self._idle):
            if connection is not None:
                self._idle[number] = None
                connection.close()

    def close(self) -> None:
        """Close every idle connection, end those in use, and refuse whoever waits for one."""
        with self._changed:
            self._closed = True
            self._close_idle()
            for connection in list(self._used):  # none of them is closed before it has left the set
                connection.interrupt()
            self._changed.notify_all()
