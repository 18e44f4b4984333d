"""Which test calls which function of the engine: the tests worth running against a mutant, the fastest first.

A pytest plugin, loaded while the map is made. It profiles calls alone, which a test hardly notices.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

# The libraries are loaded before the fork, too early for their assertions to be rewritten.
QUIET = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Recorder:
    """Collect the functions below `source` that each test calls, and the processor time it takes."""

    def __init__(self, source: str, rooms: tuple[str, ...]) -> None:
        self._prefixes = tuple(os.path.join(source, "tenure", room) + os.sep for room in rooms)
        self._source = source
        # By id, because comparing code compares all of it; the values keep the ids from being used again.
        self._names: dict[int, tuple[CodeType, str | None]] = {}
        self._called = set[str]()
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._called = set()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        started = time.process_time()
        yield
        taken = time.process_time() - started
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        self.tests[item.nodeid] = {"seconds": round(taken, 3), "calls": sorted(self._called)}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or report.failed:
            self.tests.setdefault(report.nodeid, {})["unfit"] = True

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        known = self._names.get(id(code))
        if known is None:
            known = self._names[id(code)] = (code, self._name(code))
        if known[1] is not None:
            self._called.add(known[1])

    def _name(self, code: CodeType) -> str | None:
        if not code.co_filename.startswith(self._prefixes):
            return None
        return f"{os.path.relpath(code.co_filename, self._source)} {code.co_qualname}"


def record(tests: list[str], *, source: Path, rooms: tuple[str, ...], out: Path) -> int:
    """Run the tests and write what each one calls. Runs in a process of its own."""
    recorder = Recorder(str(source), rooms)
    code = pytest.main([*QUIET, "--tb=short", *tests], plugins=[recorder])
    # A test that fails without a mutant kills nothing, and would seem to kill everything.
    fit = {name: test for name, test in recorder.tests.items() if "unfit" not in test and "calls" in test}
    out.write_text(json.dumps(fit))
    return int(code)
