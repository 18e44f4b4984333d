"""The environment of the peers' Python clients: `.bench/venv`, apart from the one of the project."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["HOME", "ROOT", "child_environment", "prepare"]

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".bench"
CLIENTS = Path(__file__).with_name("clients.txt")


def prepare() -> Path:
    """Install what `clients.txt` pins, unless it is there already, and return the interpreter of the environment."""
    python = HOME / "venv" / "bin" / "python"
    stamp = HOME / "venv" / ".ready"
    wanted = hashlib.sha256(CLIENTS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print("bench: installing the Python clients of the peers into .bench/venv", flush=True)
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(HOME / "venv"))
        _uv("pip", "sync", "--quiet", "--compile-bytecode", "--python", str(python), "--require-hashes", str(CLIENTS))
        _uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", str(ROOT))
        stamp.write_text(wanted)
    return python


def _uv(*arguments: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "venv.py", "uv", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit("bench: uv could not install the clients; the reason stands above. Is a registry in reach?")


def child_environment(**more: str) -> dict[str, str]:
    """Return the variables for a process of the harness, which imports itself and Tenure from this tree.

    Compiled modules may be written, as by any user: a start that compiles everything is not what is measured.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])} | more
