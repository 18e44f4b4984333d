"""`Member`: one `tenure serve` of several that share a home, at an address that outlives its processes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any, Final

import httpx

from tests.kit.ports import free_port
from tests.kit.restartable_server import Serving
from tests.kit.store_proxy import StoreProxy

__all__ = ["Member"]

_VIEW_S: Final = 2.0
"""How long a view of the cluster may take before the member counts as stuck."""


class Member(Serving):
    """A server with a fixed address and a directory of its own; ``proxy`` is its network to the store, if any."""

    def __init__(self, data: Path, home: str, *, settings: dict[str, Any], proxy: StoreProxy | None = None) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.proxy = proxy
        self.is_stopped = False
        self.is_down = True
        super().__init__(data, listen_port=port, settings=settings | {"home": home, "advertise": self.url})

    @property
    def is_running(self) -> bool:
        """Whether its process lives and is not stopped."""
        return not self.is_stopped and self._process is not None and self._process.poll() is None

    def view(self) -> dict[str, Any]:
        """Return what it reports of the cluster; nothing where it does not answer."""
        if not self.is_running:
            return {}
        try:
            with httpx.Client(trust_env=False, verify=False, timeout=_VIEW_S) as client:
                answer = client.get(f"{self.url}/v0/cluster")
        except httpx.TransportError:
            return {}
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    def up(self) -> None:
        """Start its next process; the store may be away, so it is not waited for until it serves."""
        self.spawn().wait_until_it_listens()
        self.is_down = False

    def down(self) -> None:
        """kill -9."""
        self.is_down = True
        self.kill()

    def down_in_order(self) -> int:
        """SIGTERM; return the exit code."""
        self.is_down = True
        return self.terminate()

    def burn(self) -> None:
        """Remove its directory."""
        shutil.rmtree(self.home)

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)
        self.is_stopped = False
