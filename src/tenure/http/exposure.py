"""Files of a server that other users of the machine can reach, reported at start and never changed by us."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from tenure.http.settings import ServerSettings

__all__ = ["exposed"]

_SECRET: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP
"""Others may not read a secret; a group may, because that is how a file of root's is given to a service."""
_PRIVATE: Final = stat.S_IRWXG | stat.S_IRWXO


def exposed(settings: ServerSettings) -> list[str]:
    """Return a warning for each file or directory that is there already and open to others, with the cure."""
    places = (
        ("the data directory", settings.data, _PRIVATE, "700"),
        ("the keys file", settings.keys_file, _SECRET, "600"),
        ("the TLS key", settings.tls_key, _SECRET, "600"),
    )
    return [
        f"other users of this machine can reach {what} {path} (mode {mode:03o}): chmod {cure} it"
        for what, path, mask, cure in places
        if path and (mode := _mode(path)) & mask
    ]


def _mode(path: str) -> int:
    """The permissions of what the path leads to; 0 where it leads to nothing, which whoever opens it reports."""
    try:
        return stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return 0
