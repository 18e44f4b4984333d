"""What users install: the wheel, in an environment that has never seen this tree."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def uv(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "venv.py", "uv", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", out)
    [path] = out.glob("*.whl")
    return path


def test_wheel_holds_the_package_its_types_and_its_licence(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert "tenure/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"tenure", "tenure-0.1.0.dist-info"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_wheel_runs_in_a_clean_environment(wheel: Path, tmp_path: Path):
    home = tmp_path / "venv"
    python = home / "bin" / "python"
    uv("venv", "--python", sys.executable, home)
    # The pins are the constraints, so what was fetched for .venv serves again and nothing newer slips in.
    constraints = ROOT / "requirements" / "dev.txt"
    uv("pip", "install", "--python", python, "--constraint", constraints, f"tenure[cli] @ {wheel.as_uri()}")
    subprocess.run(
        [python, "-W", "error", "-c", "import tenure.core, tenure.log, tenure.broker"], cwd=tmp_path, check=True
    )
    answer = subprocess.run(
        [home / "bin" / "tenure", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "tour" in answer.stdout
