"""What servers with a home are set to in tests, and the few calls that the tests make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.restartable_server import Serving, until

__all__ = ["home_settings", "put_queue", "texts", "verify_home", "wait_until_ready"]

TENURE = Path(sys.executable).with_name("tenure")


def home_settings(url: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a server whose log lives there; another takes over after half a second of silence."""
    return {"home": url, "chain.silence_ms": 500, "chain.hint_ms": 100, "chain.prove_ms": 200} | more


def wait_until_ready(server: Serving) -> None:
    """Wait until the server leads its home and serves: it listens before."""
    until(lambda: server.call("GET", "/v0/ready").status_code == 200, "the server is ready")


def put_queue(server: Serving, name: str, **config: Any) -> None:
    """Create a queue whose jobs are durable before they are answered, once the server is ready."""
    wait_until_ready(server)
    server.ok("PUT", f"/v0/topics/{name}", {"type": "queue", "durability": "fsync"} | config)


def texts(server: Serving, queue: str) -> list[str]:
    """Return the payloads of a queue, oldest first."""
    return [record["data"] for record in server.ok("POST", f"/v0/topics/{queue}/diff", {"from_seq": 0})["records"]]


def verify_home(url: str) -> subprocess.CompletedProcess[str]:
    """Prove every link of a home."""
    return subprocess.run([TENURE, "home", "verify", url], capture_output=True, text=True, check=False)
