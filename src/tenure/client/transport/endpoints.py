"""`Endpoints`: the servers of one client, which of them is asked first, and where another one says that the leader is.

Servers that share a log's home have one leader. The others refuse what only the leader may answer, with status 421 and
the leader's address; nothing happened then, so the request goes there at once. Three rules:

- The server that last answered is asked first. One that failed, or refused without a better address, gives way to the
  next one in the caller's order.
- An address that a server named is used as if the caller had listed it, unless that would weaken the caller's choice:
  never http in place of https, and a key goes there only with ``follow_with_key``. Whoever can write into the home, or
  mistype an ``--advertise``, could else collect the keys of every client.
- A server is given up for another one only where that one itself, asked after the request was sent, says that it leads
  a later epoch than any in which the first is known to have led, and than any that was named with a leader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from tenure.address import ENDPOINTS_MAX, Address, parse_address
from tenure.client.settings import ClientSettings
from tenure.client.transport.fork import renew_in_child
from tenure.client.transport.wire import Response, WireError
from tenure.errors import Invalid

__all__ = ["REDIRECTS_MAX", "Endpoints", "Server"]

W = TypeVar("W")
REDIRECTS_MAX: Final = 3
"""How often in a row one attempt is repeated at a leader that was named."""
_NOT_LEADER: Final = 421
_AWAY: Final = frozenset({_NOT_LEADER, 502, 503, 504})
_NEVER_LED: Final = -1


class _Detail(msgspec.Struct):
    leader: str = ""
    epoch: int = 0


class _Error(msgspec.Struct):
    detail: _Detail


class _Refusal(msgspec.Struct):
    error: _Error


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


class Server(Generic[W]):
    """One server: its address, the wire to it, and the last epoch in which it is known to have led."""

    __slots__ = ("address", "led_epoch", "wire")

    def __init__(self, address: Address, wire: W) -> None:
        self.address = address
        self.wire = wire
        self.led_epoch = _NEVER_LED


class Endpoints(Generic[W]):
    """The servers of one client; ``connect`` makes the wire to one, with the key that may be sent to it.

    Any thread may call any method.
    """

    def __init__(
        self,
        addresses: tuple[Address, ...],
        *,
        key: str | None,
        settings: ClientSettings,
        connect: Callable[[Address], W],
    ) -> None:
        self._may_follow = key is None or settings.follow_with_key
        self._connect = connect
        self._servers = tuple(Server(address, connect(address)) for address in addresses)
        self._first = self._servers[0]
        self._epoch = _NEVER_LED
        self._leader: tuple[Server[W], float] | None = None
        self._closed = False
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Make a lock of our own; a signal handler may take it a second time."""
        self._lock = threading.RLock()

    @property
    def servers(self) -> tuple[Server[W], ...]:
        """The servers in the caller's order, then those that were named, in the order in which they were."""
        return self._servers

    @property
    def first(self) -> Server[W]:
        """The server that the next request goes to."""
        return self._first

    def has_several(self) -> bool:
        """Return whether there is another server to turn to."""
        return len(self._servers) > 1

    def others(self, server: Server[W]) -> list[Server[W]]:
        """Return every other server."""
        return [other for other in self._servers if other is not server]

    def failed(self, server: Server[W]) -> None:
        """Note that a server was not reached, or cannot serve: the next one is asked first."""
        if self._first is server:
            servers = self._servers
            self._first = servers[(servers.index(server) + 1) % len(servers)]

    def note_error(self, server: Server[W], error: WireError) -> None:
        """Note an error of the wire: its server gives way, unless the client itself was in the way."""
        if not error.is_own:
            self.failed(server)

    def judge(self, server: Server[W], response: Response) -> Server[W] | None:
        """Note what a response says about its server; return the one to repeat the request at, where it names one."""
        if response.status not in _AWAY:
            self._first = server
            return None
        leader = self._named(response.body) if response.status == _NOT_LEADER else None
        if leader is None or leader is server:
            self.failed(server)
            return None
        self._first = leader
        return leader

    def _named(self, body: bytes) -> Server[W] | None:
        """Return the leader that a refusal names, if it may be asked."""
        try:
            named = _decode_refusal(body).error.detail
            address = parse_address(named.leader)
        except (msgspec.DecodeError, Invalid):
            return None
        with self._lock:
            self._epoch = max(self._epoch, named.epoch)
            known = next((server for server in self._servers if server.address == address), None)
            if known is None and self._may_learn(address):
                known = Server(address, self._connect(address))
                self._servers = (*self._servers, known)
        return known

    def _may_learn(self, address: Address) -> bool:
        weaker = self._servers[0].address.scheme == "https" and address.scheme != "https"
        return self._may_follow and not self._closed and not weaker and len(self._servers) < ENDPOINTS_MAX

    def close(self) -> tuple[Server[W], ...]:
        """Learn no more servers, and return those whose wires are to be closed."""
        with self._lock:
            self._closed = True
            return self._servers

    def note_leader(self, server: Server[W], epoch: int, now_s: float) -> None:
        """Note that a server said of itself that it leads an epoch."""
        with self._lock:
            server.led_epoch = max(server.led_epoch, epoch)
            if epoch >= self._epoch:
                self._epoch = epoch
                self._leader = (server, now_s)

    def is_overtaken(self, server: Server[W], *, since_s: float) -> bool:
        """Return whether another server said after ``since_s`` that it leads a later epoch; it is then asked first."""
        with self._lock:
            if self._leader is None or self._leader[1] < since_s:
                return False
            leader = self._leader[0]
            if leader.led_epoch <= max(server.led_epoch, self._epoch - 1):
                return False
            self._first = leader
            return True
