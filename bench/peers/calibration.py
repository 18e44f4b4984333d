"""The bare cost beside each cell: a write with its sync, and an echo over loopback, of the same bytes."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

from bench.peers.scale import PAYLOAD_BYTES

__all__ = ["Calibration"]

_FILE_BYTES = 64 << 20


class Calibration:
    """A preallocated file and an echo server in a process of its own. Close it."""

    def __init__(self, home: Path) -> None:
        self._file = os.open(home / "calibration", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._file, 0, _FILE_BYTES)
        os.fsync(self._file)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._echo = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._echo.start()
        self._socket = socket.create_connection(("127.0.0.1", ours.recv()))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def syncs_per_s(self, batch: int, seconds: float) -> float:
        """Return how often per second ``batch`` payloads are written and synced."""
        data = b"x" * (PAYLOAD_BYTES * batch)
        at = count = 0
        started = time.perf_counter()
        while time.perf_counter() < started + seconds:
            os.pwrite(self._file, data, at)
            os.fdatasync(self._file)
            at = (at + len(data)) % (_FILE_BYTES - len(data))
            count += 1
        return count / (time.perf_counter() - started)

    def echoes_per_s(self, batch: int, seconds: float) -> float:
        """Return how often per second ``batch`` payloads go to another process and back."""
        data = b"x" * (PAYLOAD_BYTES * batch)
        space = bytearray(len(data))
        count = 0
        started = time.perf_counter()
        while time.perf_counter() < started + seconds:
            self._socket.sendall(data)
            _fill(self._socket, space)
            count += 1
        return count / (time.perf_counter() - started)

    def close(self) -> None:
        """End the echo server and close the file."""
        self._socket.close()
        self._echo.join(10)
        os.close(self._file)


def _fill(source: socket.socket, space: bytearray) -> None:
    view = memoryview(space)
    while view:
        got = source.recv_into(view)
        if not got:
            raise ConnectionError("the echo server closed the connection")
        view = view[got:]


def _serve(ready: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        caller, _ = listener.accept()
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with caller:
        while data := caller.recv(1 << 20):
            caller.sendall(data)
