"""How the server itself is."""

from __future__ import annotations

import msgspec

__all__ = ["Health", "Ready"]


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str = ""
    uptime_ms: int = 0


class Ready(msgspec.Struct, frozen=True):
    """Requests are served."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0
