"""Small scripts that Spark starts in place of Java and of Python, each stored once in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from tenure.errors import Invalid

__all__ = ["store_script"]


def store_script(place: str, script: str) -> Path:
    """Return the directory that contains the script at ``place``, and make it if absent.

    Another script is another directory, so that no process finds its script changed. Raises Invalid where there is no
    place for it.
    """
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    for cache in (_user_cache(), Path(tempfile.gettempdir()) / f"tenure-{os.getuid()}"):
        home = cache / "scripts" / name
        try:
            _write(home / place, script)
            if _is_safe(home / place):
                return home
        except OSError:
            continue
    raise Invalid(
        "neither the user's cache nor the temporary directory can hold a script: set XDG_CACHE_HOME to a directory "
        "that can be written, and that programs may be started from"
    )


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path("~/.cache").expanduser()) / "tenure"


def _is_safe(path: Path) -> bool:
    """Return whether it may be started here, and no other user can have replaced it."""
    mine = all(held.stat().st_uid == os.getuid() for held in (path, *path.parents[:3]))
    return mine and os.access(path, os.X_OK)


def _write(path: Path, script: str) -> None:
    """Write the script whole, as processes may start side by side."""
    try:
        if path.read_text() == script and os.access(path, os.X_OK):
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with open(handle, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o700)
    os.replace(temporary, path)
