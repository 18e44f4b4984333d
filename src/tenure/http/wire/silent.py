"""Connections that have sent nothing yet, oldest first: the ones that can be cut to make room.

A client sends its request as soon as it is connected. So where there is no room left, the connection that has been
silent for longest is the one that matters least, and opening many silent ones locks no client out.
"""

from __future__ import annotations

from itertools import count

from tenure.http.wire.connection import Connection
from tenure.http.wire.limits import WireLimits

__all__ = ["Silent"]


class Silent:
    """Every silent connection by a number that rises with its age, and the numbers of each address."""

    __slots__ = ("_by_peer", "_limits", "_numbers", "_places", "_waiting")

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._numbers = count()
        self._waiting: dict[int, Connection] = {}
        self._places: dict[Connection, tuple[int, str]] = {}
        self._by_peer: dict[str, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Connection, peer: str) -> Connection | None:
        """Add a connection; return the one to cut where there are too many now."""
        number = next(self._numbers)
        self._waiting[number] = connection
        self._places[connection] = number, peer
        own = self._by_peer.setdefault(peer, {})
        own[number] = None
        if len(own) > self._limits.silent_connections_per_peer_max:
            return self._waiting[next(iter(own))]
        return self.oldest() if len(self._waiting) > self._limits.silent_connections_max else None

    def oldest(self) -> Connection | None:
        """Return the connection that has been silent for longest, if there is one."""
        return next(iter(self._waiting.values()), None)

    def replace(self, old: Connection, new: Connection) -> None:
        """Put a connection in the place of another one on the same socket."""
        place = self._places.pop(old, None)
        if place is not None:
            self._places[new] = place
            self._waiting[place[0]] = new

    def discard(self, connection: Connection) -> None:
        """Remove a connection that has sent its head, or is gone."""
        place = self._places.pop(connection, None)
        if place is not None:
            number, peer = place
            del self._waiting[number]
            own = self._by_peer[peer]
            del own[number]
            if not own:
                del self._by_peer[peer]
