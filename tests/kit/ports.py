"""Ports for servers that are killed and started again at the same address."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom

__all__ = ["free_port", "free_ports"]

_random = SystemRandom()  # not that of a seed, which other test processes have too


def free_port() -> int:
    """Return a port that nothing has, below those that the system gives out by itself.

    While its server is down, no other server gets it, to whom clients of the first would speak.
    """
    while True:
        port = _random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def free_ports(count: int) -> list[int]:
    """Return so many different ones."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
