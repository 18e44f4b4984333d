"""`IdleConnections`: the free places of a connection pool that threads share."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from tenure.client.transport.fork import renew_in_child

__all__ = ["IdleConnections"]

T = TypeVar("T")


class IdleConnections(Generic[T]):
    """A bounded number of places, each with an idle connection or, as None, without one. The last one put is taken
    first.

    It differs from `queue.LifoQueue` in two things: `put` works in a signal handler that interrupts a thread inside it,
    because the lock may be taken twice; and in a forked process every place is free and has no connection.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self._idle: list[T | None] = [None] * self._places
        self._changed = threading.Condition(threading.RLock())

    def after_fork(self) -> None:
        """Free every place; the connections are the parent's."""
        self._begin()

    def put(self, connection: T | None) -> None:
        """Give a place back."""
        with self._changed:
            if len(self._idle) < self._places:  # fewer only in a process that was forked while this place was in use
                self._idle.append(connection)
                self._changed.notify()

    def get(self, timeout_s: float) -> T | None:
        """Take a place. Raises TimeoutError where none becomes free in time."""
        with self._changed:
            if not self._idle and not self._changed.wait_for(lambda: self._idle, timeout_s):
                raise TimeoutError
            return self._idle.pop()

    def drain(self) -> list[T]:
        """Take the connections out of the free places and return them."""
        with self._changed:
            found = [connection for connection in self._idle if connection is not None]
            self._idle = [None] * len(self._idle)
            return found
