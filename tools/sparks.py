"""Other versions of Spark beside the one of `.venv`: `python tools/sparks.py 3.5.9` prints the directory of one.

    PYTHONPATH=$(.venv/bin/python tools/sparks.py 3.5.9) .venv/bin/python …   run something on it

A version is what `requirements/spark-<version>.txt` pins, with its hashes. It is installed at the first use, below
`.venv/sparks`, so that deleting `.venv` removes it too. Several processes may ask at once: one installs, the others
wait. What is there was installed to the end, because it gets its name only then.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPARKS = ROOT / ".venv" / "sparks"
PINS = ROOT / "requirements"


def versions() -> list[str]:
    """The versions that can be had, oldest first."""
    found = [path.stem.removeprefix("spark-") for path in PINS.glob("spark-*.txt")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def directory_of(version: str) -> Path:
    """Where this pyspark is, installed if need be. Exits with a sentence where it is unknown or cannot be had."""
    if version not in versions():
        sys.exit(f"sparks: there is no {PINS.name}/spark-{version}.txt; pinned are {', '.join(versions())}")
    place = SPARKS / version
    if place.exists():
        return place
    SPARKS.mkdir(parents=True, exist_ok=True)
    with (SPARKS / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            install(version, place)
    return place


def install(version: str, place: Path) -> None:
    """Into a directory of another name first: an install that was cut short must not look like one."""
    fresh = place.with_name(f"{version}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, str(ROOT / "tools" / "venv.py"), "uv", "pip", "install", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--target", str(fresh), "-r", str(PINS / f"spark-{version}.txt")]
    if subprocess.call(command) != 0:
        sys.exit(f"sparks: uv could not install pyspark {version}; the reason stands above.")
    fresh.rename(place)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python tools/sparks.py VERSION\npinned: {', '.join(versions())}")
    print(directory_of(sys.argv[1]))
