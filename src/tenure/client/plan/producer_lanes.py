"""Producer lanes: client ids with rising numbers, which make a produce safe to retry without a key per put.

A lane is a ``client_id`` and its rising ``client_seq``. A call takes a lane, advances it, and gives it back. So one
call is in flight per lane, and the broker remembers one mark per lane and topic, however many puts go over it. The
lane used last is taken first: a client that never has two calls in flight has one mark.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

from tenure.client.transport.fork import renew_in_child

__all__ = ["ProducerLane", "ProducerLanes"]

Taker = Callable[["ProducerLane"], bool]
"""Takes a lane for a waiting call; returns False where the call waits no longer."""


class ProducerLane:
    """One ``client_id``, which the broker sees as one producer, and the ``client_seq`` of its last call."""

    __slots__ = ("client_id", "client_seq", "lanes_name")

    def __init__(self, lanes_name: str, number: int) -> None:
        self.client_id = f"{lanes_name}-{number}"
        self.client_seq = 0
        self.lanes_name = lanes_name

    def advance(self) -> int:
        """Count up and return the number of the next call."""
        self.client_seq += 1
        return self.client_seq


class ProducerLanes:
    """A pool of at most ``count_max`` lanes. A forked process starts with lanes of its own: a shared one would make two
    producers look like one.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start with no lane and a new name; calls that wait for one wait in the parent."""
        self._lock = threading.Lock()
        self._name = secrets.token_urlsafe(12)
        self._free: list[ProducerLane] = []
        self._made = 0
        self._takers: OrderedDict[Taker, None] = OrderedDict()

    @property
    def count(self) -> int:
        """The number of lanes, and so of the marks that the broker keeps for this client on one topic."""
        return self._made

    def take(self, taker: Taker | None = None) -> ProducerLane | None:
        """Return a free lane; or None, and pass one to ``taker`` as soon as there is."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._made < self._count_max:
                self._made += 1
                return ProducerLane(self._name, self._made)
            if taker is not None:
                self._takers[taker] = None
            return None

    def forget(self, taker: Taker) -> None:
        """Drop a taker whose call waits no longer."""
        with self._lock:
            self._takers.pop(taker, None)

    def give(self, lane: ProducerLane) -> None:
        """Return a lane to the pool, or to the call that has waited longest."""
        with self._lock:
            if lane.lanes_name != self._name:  # taken before a fork: the parent owns it
                return
            while self._takers:
                taker, _ = self._takers.popitem(last=False)
                if taker(lane):
                    return
            self._free.append(lane)
