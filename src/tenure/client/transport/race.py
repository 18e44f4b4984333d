"""`Race`: which address of a host is tried when (happy eyeballs, RFC 8305): the rule, without a network and a clock.

One address of a host may swallow every packet: IPv6 that leads nowhere, a machine that is gone. So the next address is
tried a moment after the one before and beside it, and the first that connects is used. An address that refuses gives
way at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import chain, zip_longest
from socket import AddressFamily, SocketKind
from typing import Any, Final

__all__ = ["Place", "Race"]

Place = tuple[AddressFamily, SocketKind, int, str, Any]
"""An address as `socket.getaddrinfo` returns it."""
_HEAD_START_S: Final = 0.25


class Race:
    """The addresses of one host in the order of the resolver, but with the families in turn.

    Each has a head start before the next one, so short that all of them begin within ``timeout_s``. ``error`` is the
    one of the address that failed last.
    """

    def __init__(self, found: Sequence[Place], *, now_s: float, timeout_s: float) -> None:
        self._left = deque(_in_turn(found))
        self._head_start_s = min(_HEAD_START_S, timeout_s / max(len(found), 1))
        self._due_s = now_s
        self.error = OSError("the name of the host has no address")

    @property
    def due_s(self) -> float:
        """When the next address is to be tried, if none has connected by then."""
        return self._due_s if self._left else math.inf

    def next(self, now_s: float) -> Place | None:
        """Return the address to try now, beside those that are being tried; None where it is not time or none is
        left.
        """
        if now_s < self.due_s:
            return None
        self._due_s = now_s + self._head_start_s
        return self._left.popleft()

    def failed(self, error: OSError) -> None:
        """Note that an address failed: the next one is due at once."""
        self.error = error
        self._due_s = -math.inf


def _in_turn(found: Sequence[Place]) -> list[Place]:
    families = dict.fromkeys(place[0] for place in found)
    rows = zip_longest(*([place for place in found if place[0] == family] for family in families))
    return [place for place in chain.from_iterable(rows) if place is not None]
