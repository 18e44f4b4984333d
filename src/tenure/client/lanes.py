"""Lanes: how a produce is made safe to repeat without a key per put.

A lane is a ``client_id`` and its rising ``client_seq``. A call takes a lane, counts it up, and gives it back; so one
call is in flight per lane, and the broker remembers one mark per lane and topic, however many puts go over it. The
lane used last is taken first: a client that never has two calls in flight has one mark.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Lane", "Lanes"]

Taker = Callable[["Lane"], bool]
"""Is given a lane; False where it does not wait for it any more."""


class Lane:
    """One producer in the eyes of the broker."""

    __slots__ = ("client_id", "client_seq", "pid")

    def __init__(self, client_id: str, pid: int) -> None:
        self.client_id = client_id
        self.client_seq = 0
        self.pid = pid

    def advance(self) -> int:
        """The number of the next call."""
        self.client_seq += 1
        return self.client_seq


class Lanes:
    """At most ``count_max`` lanes. A process that was forked off starts with lanes of its own: a shared one would
    make two producers look like one.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._name = secrets.token_urlsafe(12)
        self._free: list[Lane] = []
        self._made = 0
        self._takers: deque[Taker] = deque()

    @property
    def count(self) -> int:
        """How many lanes there are: the marks that the broker keeps for this client on one topic."""
        return self._made

    def take(self, taker: Taker) -> Lane | None:
        """A free lane now; or None, and ``taker`` is given one as soon as there is."""
        with self._lock:
            if os.getpid() != self._pid:
                self._begin()
            if self._free:
                return self._free.pop()
            if self._made < self._count_max:
                self._made += 1
                return Lane(f"{self._name}-{self._made}", self._pid)
            self._takers.append(taker)
            return None

    def forget(self, taker: Taker) -> None:
        """Somebody waits no longer."""
        with self._lock:
            if taker in self._takers:
                self._takers.remove(taker)

    def give(self, lane: Lane) -> None:
        """The call is over: the next one may have the lane."""
        with self._lock:
            if lane.pid != self._pid:
                return
            while self._takers:
                if self._takers.popleft()(lane):
                    return
            self._free.append(lane)
