"""Locks, names and connections that a forked process must not share with its parent.

Only the thread that forks lives on in the child. A lock that another thread held stays locked there for ever, a lane or
a node that both use makes two clients look like one, and a socket that both hold mixes their answers and keeps a stream
open that the parent has closed. So everything of that kind is registered here and begins again in the child, before
any code of the caller runs there and without waiting for anything.
"""

from __future__ import annotations

import os
import socket
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "close_in_child", "renew_in_child"]


class Forkable(Protocol):
    """An object that begins again in a forked process."""

    def after_fork(self) -> None:
        """Make fresh locks and names, and forget what the parent has under way. Must not wait."""


_forkables: WeakSet[Forkable] = WeakSet()
_sockets: WeakSet[socket.socket] = WeakSet()


def renew_in_child(forkable: Forkable) -> None:
    """Have ``after_fork`` called in every process that is forked off, for as long as the object lives."""
    _forkables.add(forkable)


def close_in_child(sock: socket.socket) -> None:
    """Close the child's copy of a socket; the parent's connection is not touched."""
    _sockets.add(sock)


def _begin_in_child() -> None:
    for sock in list(_sockets):
        fd = sock.detach()
        if fd >= 0:
            os.close(fd)
    _sockets.clear()
    for forkable in list(_forkables):
        forkable.after_fork()


if hasattr(os, "register_at_fork"):  # where processes can be forked at all
    os.register_at_fork(after_in_child=_begin_in_child)
