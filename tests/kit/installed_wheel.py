"""The package as a user gets it: a wheel, installed into a fresh environment, once for all test processes.

The pins are the constraints, so what was fetched for `.venv` serves again: files are linked from the cache of uv, and
nothing is asked of a package index where the cache has everything.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["EXTRAS", "ROOT", "build_wheel", "clean_environment", "install", "shared", "uv"]

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "dev.txt"
# Every extra that a page tells its reader to install.
EXTRAS = ("metrics", "otel", "buffer", "delta", "redis", "faststream", "spark", "postgres")
# What a reader of the pages about frameworks has already.
FRAMEWORKS = ("django", "fastapi", "flask", "sentry-sdk", "httpx", "pytest")


def uv(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the uv of `.venv`."""
    command = [sys.executable, ROOT / "tools" / "venv.py", "uv", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done


def build_wheel(out: Path) -> Path:
    """Build the wheel from this tree."""
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", out)
    [path] = out.glob("*.whl")
    return path


def install(home: Path, *requirements: str, dry_run: bool = False) -> None:
    """Install into the environment at ``home``, from the cache where it can be."""
    command: list[str | Path] = ["pip", "install", "--quiet", "--constraint", PINS, *requirements]
    command += ["--python", home / "bin" / "python", *(["--dry-run"] if dry_run else [])]
    if uv(*command, "--offline", check=False).returncode != 0:
        uv(*command)


def shared(place: Path) -> Path:
    """The environment with the wheel and the extras in it; made by the first process that asks."""
    home = place / "installed"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "installed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            wheel = build_wheel(place / "dist")
            uv("venv", "--clear", "--python", sys.executable, home)
            install(home, f"tenure[{','.join(EXTRAS)}] @ {wheel.as_uri()}", *FRAMEWORKS)
            (home / "ready").touch()
    return home


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of somebody who has just activated the environment, and knows nothing of this tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTHON", "VIRTUAL"))}
    return kept | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"} | more
