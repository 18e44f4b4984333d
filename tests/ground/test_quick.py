"""`make quick` has tests of every room, and none of them can start a process or listen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import LEFT_OUT, PATHS

ROOT = Path(__file__).parents[2]
# Floors that are about processes, and what is no floor.
WITHOUT = {"acceptance", "cluster", "console", "faults", "golden", "kit", "lives", "soak", "__pycache__"}


def test_quick_has_tests_of_every_folder_but_those_about_processes():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert {path.split("/")[1] for path in PATHS} == folders - WITHOUT


def test_what_quick_names_is_there():
    for name in (*PATHS, *LEFT_OUT):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        assert f"def {test}" in (ROOT / path).read_text() if test else True, name


@pytest.mark.parametrize(
    "lines", ["import subprocess; subprocess.run(['true'])", "import socket; socket.socket().bind(('127.0.0.1', 0))"]
)
def test_a_quick_test_that_starts_a_process_or_listens_fails(lines: str, tmp_path: Path):
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {lines}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.quick", "-p", "no:tenure", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "leave it out in tests/quick.py" in done.stdout
