"""Servers from Debian's packages: the machine's own, else fetched and unpacked under `.bench/`, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.peers.environment import HOME
from bench.peers.peer import Missing

__all__ = ["library_path", "program", "unpacked"]

_FETCH_S = 300


def program(name: str, *packages: str) -> Path:
    """Return the program of that name: from the path, else from the packages. Raises Missing."""
    if found := shutil.which(name):
        return Path(found)
    root = unpacked(*packages)
    for place in ("usr/bin", "usr/sbin"):
        if (root / place / name).is_file():
            return root / place / name
    raise Missing(f"{name} is in none of {', '.join(packages)}")


def unpacked(*packages: str) -> Path:
    """Return a directory with the content of the packages. Raises Missing where they cannot be fetched."""
    root = HOME / "debian" / packages[0]
    ready = root / ".ready"
    if ready.exists() and ready.read_text() == " ".join(packages):
        return root
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Missing(f"install {packages[0]}: it is not on the path, and this machine has no apt-get and dpkg")
    shutil.rmtree(root, ignore_errors=True)
    fetched = root / "packages"
    fetched.mkdir(parents=True)
    print(f"bench: fetching {', '.join(packages)}", flush=True)
    _run(["apt-get", "download", "-qq", *packages], fetched)
    for package in sorted(fetched.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)], fetched)
    ready.write_text(" ".join(packages))
    return root


def _run(command: list[str], where: Path) -> None:
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {_FETCH_S} s") from None
    if done.returncode:
        raise Missing(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-200:]}")


def library_path(started: Path) -> dict[str, str]:
    """Return the variables that let a program of an unpacked package find the libraries unpacked beside it."""
    if HOME not in started.parents:
        return {}
    root = HOME / "debian" / started.relative_to(HOME / "debian").parts[0]
    folders = {str(path.parent) for path in (root / "usr" / "lib").rglob("*.so.*")}
    return {"LD_LIBRARY_PATH": os.pathsep.join(sorted(folders))}
