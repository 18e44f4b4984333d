"""A peer: a server that the harness starts, and one way of using it as a queue through a Python client."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Protocol

__all__ = ["Missing", "Queue", "Service", "threads_rate"]


class Missing(Exception):
    """A peer that cannot be had on this machine; the message is the reason that the table gives."""


class Service(Protocol):
    """A server on a free port of loopback, with everything it writes in ``home``. It may be started again there."""

    port: int

    def __init__(self, home: Path) -> None:
        """Find the programs. Raises Missing."""

    def start(self) -> None:
        """Start the server and return when it accepts connections."""

    def stop(self) -> None:
        """Stop it cleanly, by its process id."""

    def pids(self) -> list[int]:
        """Return the processes to count for its memory; their children are counted with them."""

    def version(self) -> str:
        """Return the name and version of the server."""

    def settings(self) -> str:
        """Return the settings that make it durable and fast, as a user would write them."""


class Queue(ABC):
    """One connection to one queue, which is created where it is not there yet."""

    client: ClassVar[str]
    """The Python package it goes through."""
    leases: ClassVar[bool] = True
    """Whether work that a dead worker held comes back by itself."""
    syncs: ClassVar[str]
    """Syncs of the server for one put, and for one claim and ack, one by one, as `strace -c` counts them."""
    notes: ClassVar[str] = ""
    """How each call is made, where the reader would ask."""

    @abstractmethod
    def __init__(self, port: int, name: str) -> None: ...

    @abstractmethod
    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        """Put ``batch`` jobs durably, ``calls`` times one after the other."""

    @abstractmethod
    def claim_ack(self, *, batch: int, calls: int) -> int:
        """Claim up to ``batch`` jobs and ack them, ``calls`` times; return how many jobs were acked."""

    @abstractmethod
    def receive(self) -> Iterator[bytes]:
        """Yield jobs as they come, one at a time; each is acked when the next is asked for. Does not end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        """Return the jobs per second of that many producers, one job a call, each on a connection of its own."""
        queues = [cls(port, name) for _ in range(connections)]
        try:
            return threads_rate([lambda q=queue: q.produce(payload, batch=1, calls=1) for queue in queues], seconds)  # type: ignore[misc]
        finally:
            for queue in queues:
                queue.close()


def threads_rate(calls: list[Callable[[], object]], seconds: float) -> float:
    """Return how many calls per second a thread for each of them makes."""
    counts = [0] * len(calls)
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            calls[number]()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)
