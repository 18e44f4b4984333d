"""`Lookout`: look around while answers are outstanding in threads.

The thread that waits asks by itself: a client has no thread of its own, so that nothing of it is lost in a fork and
nothing has to be ended. An answer that comes while it asks ends the question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tenure.client.settings import ClientSettings
from tenure.client.transport.blocking import SocketWire
from tenure.client.transport.endpoints import Endpoints, Server
from tenure.client.transport.fork import renew_in_child
from tenure.client.transport.looking import Patience, given_up, look_request, note_answer, patience_for
from tenure.client.transport.wire import WireError

__all__ = ["Lookout"]

_YIELD_S = 0.02


class Lookout:
    """The looks of one client. One thread asks at a time, and what it finds is known to all."""

    def __init__(self, endpoints: Endpoints[SocketWire], settings: ClientSettings) -> None:
        self._endpoints = endpoints
        self._settings = settings
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """The thread that asks is the parent's."""
        self._asking = threading.Lock()

    def wait_for(self, server: Server[SocketWire], *, wait_ms: int = 0, is_stream: bool = False) -> _Looking:
        """Return the wait for one answer of a server."""
        patience = patience_for(self._settings, now_s=time.monotonic(), wait_ms=wait_ms, is_stream=is_stream)
        return _Looking(self, server, patience)

    def is_overtaken(self, server: Server[SocketWire], *, since_s: float, ready: Callable[[], bool]) -> bool:
        """Ask the others, unless another thread does, and return whether one of them leads a later epoch."""
        if self._asking.acquire(blocking=False):
            try:
                for other in self._endpoints.others(server):
                    if ready():
                        return False
                    self._ask(other, ready)
            finally:
                self._asking.release()
        return self._endpoints.is_overtaken(server, since_s=since_s)

    def _ask(self, server: Server[SocketWire], ready: Callable[[], bool]) -> None:
        asked_s = time.monotonic()
        with suppress(WireError):
            response = server.wire.send(look_request(self._settings), _Yielding(ready))
            note_answer(self._endpoints, server, response, now_s=asked_s)


class _Looking:
    """The wait for one answer: looks around now and then, and gives up where another server leads."""

    def __init__(self, lookout: Lookout, server: Server[SocketWire], patience: Patience) -> None:
        self._lookout = lookout
        self._server = server
        self._patience = patience
        self.pause_s = patience.pause_s

    def look(self, ready: Callable[[], bool], *, sent: bool) -> None:
        patience = self._patience
        if self._lookout.is_overtaken(self._server, since_s=patience.begun_s, ready=ready):
            raise given_up(self._server, sent=sent)
        patience.looked(time.monotonic())
        self.pause_s = patience.pause_s


class _Yielding:
    """The wait of a question, which ends once the answer for whose sake it is asked begins to come."""

    pause_s = _YIELD_S

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready

    def look(self, ready: Callable[[], bool], *, sent: bool) -> None:
        if self._ready():
            raise WireError("the answer came meanwhile", sent=sent)
