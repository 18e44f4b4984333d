"""The servers of one run: each is started once, shared by the peers that use it, and stopped at the end."""

from __future__ import annotations

import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers.peer import Missing, Service
from bench.peers.registry import Peer
from bench.peers.results import PeerFacts

__all__ = ["Fleet", "client_version"]


class Fleet:
    """Servers by the peers that need them, each in a directory of its own that is removed at the end."""

    def __init__(self) -> None:
        self._homes: list[tempfile.TemporaryDirectory[str]] = []
        self._services: dict[str, Service] = {}
        self._missing: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._services.values():
            service.stop()
        for home in self._homes:
            home.cleanup()

    def service(self, peer: Peer) -> Service:
        """Return the running server of a peer. Raises Missing, each time with the reason of the first."""
        key = peer.service_key
        if key in self._missing:
            raise Missing(self._missing[key])
        if key not in self._services:
            try:
                self._services[key] = self._start(peer)
            except (Missing, RuntimeError, ImportError, OSError) as error:
                self._missing[key] = f"{error}"
                raise Missing(self._missing[key]) from error
        return self._services[key]

    def _start(self, peer: Peer) -> Service:
        home = tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True)
        Path(home.name).chmod(0o755)  # a server may run as another user
        self._homes.append(home)
        service: Service = peer.load("service")(Path(home.name))
        service.start()
        return service

    def facts(self, peer: Peer) -> PeerFacts:
        """Return what the page says of a peer. Raises Missing."""
        service = self.service(peer)
        queue = peer.load("queue")
        return PeerFacts(
            title=peer.title,
            version=service.version(),
            client=client_version(queue.client),
            settings=service.settings(),
            notes=queue.notes,
            syncs=queue.syncs,
            leases=queue.leases,
        )


def client_version(package: str) -> str:
    """Return a package of the environment with its version; its name alone where it has none."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:  # this tree's own, or none
        return package
