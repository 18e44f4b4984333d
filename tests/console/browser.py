"""A Chromium of the machine: found in the usual places, else installed from Debian's packages where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_INSTALL_S = 600
_HINT = "the console is tested in a Chromium: install one (Debian: chromium), or name it in TENURE_TEST_CHROMIUM"


def chromium() -> str:
    """Where a Chromium is. Fails the test with what to do where there is none and none can be installed."""
    found = _look()
    if found is None and _may_install():
        _install()
        found = _look()
    if found is None:
        pytest.fail(_HINT)
    return found


def _look() -> str | None:
    named = os.environ.get("TENURE_TEST_CHROMIUM")
    if named:
        return named
    on_path = (path for name in _NAMES if (path := shutil.which(name)))
    return next(on_path, None) or next((place for place in _PLACES if Path(place).is_file()), None)


def _may_install() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install() -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        if done.returncode:
            pytest.fail(f"{' '.join(command)} failed: {done.stderr[-500:]}\n{_HINT}")
