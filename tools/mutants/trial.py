"""One mutant against the tests that call what it changes, in a forked process that ends with the first failure."""

from __future__ import annotations

import importlib.machinery
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn, cast

import pytest

from tools.mutants.calls import QUIET
from tools.mutants.mutate import Mutant

DATA_BYTES_MAX = 3 << 30
TEST_SECONDS_MAX = 30
"""How long one test may wait before it counts as failed; a mutant often makes one wait for ever."""


class Fate(StrEnum):
    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


class Selected:
    """Run these tests alone, in this order: a pytest plugin."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = {name: place for place, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])


def try_mutant(mutant: Mutant, tests: Sequence[str], *, seconds: float) -> Fate:
    """Return what became of the mutant; `seconds` is the processor time that the tests take without it."""
    cpu_seconds = int(20 + 4 * seconds)
    child = in_child(lambda: _run(mutant, tests, cpu_seconds=cpu_seconds))
    status = _wait(child, seconds_max=600 + 10 * seconds)
    if status is None or os.WIFSIGNALED(status):
        return Fate.TIMED_OUT
    return Fate.SURVIVED if os.WEXITSTATUS(status) == pytest.ExitCode.OK else Fate.KILLED


def in_child(work: Callable[[], int], *, output: str = os.devnull) -> int:
    """Fork, run the work with its output in a file, exit with what it returns; return the child's process id."""
    child = os.fork()
    if child:
        return child
    _apart(work, output)


def _apart(work: Callable[[], int], output: str) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = work()
    finally:
        os._exit(code)


def _run(mutant: Mutant, tests: Sequence[str], *, cpu_seconds: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    _import_changed(mutant)
    _without_shrinking()
    files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    # Plain assertions: pytest would load a package with a plugin in it, as ours is, by a loader of its own.
    options = ["-x", "--tb=no", "--assert=plain", f"--timeout={TEST_SECONDS_MAX}", "--hypothesis-profile=mutants"]
    return int(pytest.main([*QUIET, *options, *files], plugins=[Selected(tests)]))


def _import_changed(mutant: Mutant) -> None:
    """Let the import system compile this one module from the changed tree, and every other from its file."""
    assert not any(name.partition(".")[0] == "tenure" for name in sys.modules)
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType:
        if Path(self.path) == mutant.path:
            return cast(CodeType, mutant.compile())
        return cast(CodeType, original(self, name))

    loader.get_code = get_code


def _without_shrinking() -> None:
    """The same examples for every mutant; a failure is enough, and nobody reads the smallest one."""
    from hypothesis import HealthCheck, Phase, settings

    phases = (Phase.explicit, Phase.generate)
    quiet = list(HealthCheck)
    settings.register_profile(
        "mutants", derandomize=True, deadline=None, database=None, phases=phases, suppress_health_check=quiet
    )


def _wait(child: int, *, seconds_max: float) -> int | None:
    """Return the child's status, or None where it had to be killed."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
