"""Connect on an event loop: the addresses of a host in a race, then TLS. `socket_connect` is the blocking twin.

`create_connection` tries one address after the other and waits for each as long as the system does; its own race is
missing on uvloop, which workers use.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tenure.client.transport.loop_connection import LoopConnection
from tenure.client.transport.origin import Origin
from tenure.client.transport.race import Place, Race

__all__ = ["connect"]


async def connect(origin: Origin, timeout_s: float) -> LoopConnection:
    """Return a connection. Raises OSError once every address has failed, TimeoutError when the time is over."""
    loop = asyncio.get_running_loop()
    name = None if origin.tls is None else origin.host
    async with asyncio.timeout(timeout_s):
        race = Race(await _places(origin), now_s=loop.time(), timeout_s=timeout_s)
        with _Attempts(race) as attempts:
            while True:
                sock = await attempts.first()
                try:
                    made = await loop.create_connection(LoopConnection, sock=sock, ssl=origin.tls, server_hostname=name)
                    return made[1]
                except OSError as error:
                    race.failed(error)


async def _places(origin: Origin) -> Sequence[Place]:
    """Return the addresses of the host: at once where it is an address, else from a thread that asks the system."""
    loop = asyncio.get_running_loop()
    try:
        flags = socket.AI_NUMERICHOST
        return socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror:
        return await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)


async def _reach(place: Place) -> socket.socket:
    family, kind, protocol, _, address = place
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class _Attempts:
    """The sockets that are being connected. Leaving it closes those that are left."""

    def __init__(self, race: Race) -> None:
        self._race = race
        self._trying: set[asyncio.Task[socket.socket]] = set()

    async def first(self) -> socket.socket:
        """Return the next socket that is connected. Raises OSError where none will be."""
        while True:
            self._try_due()
            if not self._trying:
                raise self._race.error
            for task in await self._ready():
                self._trying.discard(task)
                try:
                    return task.result()
                except OSError as error:
                    self._race.failed(error)

    def _try_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (place := self._race.next(loop.time())) is not None:
            self._trying.add(asyncio.ensure_future(_reach(place)))

    async def _ready(self) -> set[asyncio.Task[socket.socket]]:
        """Wait until a socket is connected or has failed, or the next address is due, and return the tasks."""
        wait_s = self._race.due_s - asyncio.get_running_loop().time()
        timeout_s = None if wait_s == math.inf else max(wait_s, 0)
        done, _ = await asyncio.wait(self._trying, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._trying:
            task.cancel()
            task.add_done_callback(_close_late)


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that connected after another one was used."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
