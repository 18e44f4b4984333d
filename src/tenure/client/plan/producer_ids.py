"""Lanes: how a produce is made safe to repeat without a key per put.

A lane is a ``client_id`` and its rising ``client_seq``. A call takes a lane, counts it up, and gives it back; so one
call is in flight per lane, and the broker remembers one mark per lane and topic, however many puts go over it. The
lane used last is taken first: a client that never has two calls in flight has one mark.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

from tenure.client.transport.fork import renew_in_child

__all__ = ["Lane", "Lanes"]

Taker = Callable[["Lane"], bool]
"""Is given a lane; False where it does not wait for it any more."""


class Lane:
    """One producer in the eyes of the broker."""

    __slots__ = ("client_id", "client_seq", "lanes_name")

    def __init__(self, lanes_name: str, number: int) -> None:
        self.client_id = f"{lanes_name}-{number}"
        self.client_seq = 0
        self.lanes_name = lanes_name

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
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Begin with no lane and under a new name; who waits for one waits in the parent."""
        self._lock = threading.Lock()
        self._name = secrets.token_urlsafe(12)
        self._free: list[Lane] = []
        self._made = 0
        self._takers: OrderedDict[Taker, None] = OrderedDict()

    @property
    def count(self) -> int:
        """How many lanes there are: the marks that the broker keeps for this client on one topic."""
        return self._made

    def take(self, taker: Taker) -> Lane | None:
        """A free lane now; or None, and ``taker`` is given one as soon as there is."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._made < self._count_max:
                self._made += 1
                return Lane(self._name, self._made)
            self._takers[taker] = None
            return None

    def forget(self, taker: Taker) -> None:
        """Somebody waits no longer."""
        with self._lock:
            self._takers.pop(taker, None)

    def give(self, lane: Lane) -> None:
        """The call is over: the next one may have the lane."""
        with self._lock:
            if lane.lanes_name != self._name:  # taken before the fork: it is the parent's
                return
            while self._takers:
                taker, _ = self._takers.popitem(last=False)
                if taker(lane):
                    return
            self._free.append(lane)
