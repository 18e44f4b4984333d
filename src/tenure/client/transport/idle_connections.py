"""`IdleConnections`: the free places of a connection pool."""

from __future__ import annotations

import queue
import threading
from typing import Any

from tenure.client.transport.fork import renew_in_child

__all__ = ["IdleConnections"]


class IdleConnections:
    """The queue that urllib3 keeps idle connections in; None is a place without one. The last one put is taken first.

    It differs from `queue.LifoQueue` in two things: `put` works in a signal handler that interrupts a thread inside it,
    because the lock may be taken twice; and in a forked process every place is free and has no connection.
    """

    def __init__(self, maxsize: int) -> None:
        self._count_max = maxsize
        self._begin([])
        renew_in_child(self)

    def _begin(self, idle: list[Any]) -> None:
        self._idle = idle
        self._changed = threading.Condition(threading.RLock())

    def after_fork(self) -> None:
        """Free every place; the connections are the parent's."""
        self._begin([None] * self._count_max)

    def put(self, connection: Any, block: bool = True) -> None:
        """Give a place back. Raises `queue.Full` where there are as many as there can be."""
        with self._changed:
            if len(self._idle) >= self._count_max:
                raise queue.Full
            self._idle.append(connection)
            self._changed.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take a place. Raises `queue.Empty` where none becomes free in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._idle, timeout if block else 0):
                raise queue.Empty
            return self._idle.pop()

    def qsize(self) -> int:
        """The number of free places."""
        return len(self._idle)
