"""A Chromium of the machine: found in the usual places, else installed from Debian's packages where we may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["NoBrowser", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_INSTALL_S = 900
_COMMANDS = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "chromium"))
_HINT = "the console is tested in a Chromium: install one (Debian: chromium), or name it in TENURE_TEST_CHROMIUM"


class NoBrowser(Exception):
    """There is no Chromium here; the message says what to do."""


def chromium() -> str:
    """Where a Chromium is. Raises NoBrowser where there is none and none can be installed."""
    found = _look()
    if found is None and _may_install():
        with (Path(tempfile.gettempdir()) / "tenure-chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # only one of the test processes installs it
            if _look() is None:
                _install()
        found = _look()
    if found is None:
        raise NoBrowser(_HINT)
    return found


def _look() -> str | None:
    named = os.environ.get("TENURE_TEST_CHROMIUM")
    if named:
        if not Path(named).is_file():
            raise NoBrowser(f"TENURE_TEST_CHROMIUM names {named}, and there is no such file")
        return named
    on_path = (path for name in _NAMES if (path := shutil.which(name)))
    return next(on_path, None) or next((place for place in _PLACES if Path(place).is_file()), None)


def _may_install() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install() -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in _COMMANDS:
        words = " ".join(command)
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoBrowser(f"{words} took more than {_INSTALL_S} s\n{_HINT}") from None
        if done.returncode:
            raise NoBrowser(f"{words} failed: {done.stderr[-500:]}\n{_HINT}")
