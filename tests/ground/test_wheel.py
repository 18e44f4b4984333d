"""What users install: the wheel, in an environment that has never seen this tree."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uv(*arguments: str | Path) -> None:
    run(sys.executable, ROOT / "tools" / "venv.py", "uv", *arguments)


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
    run(python, "-W", "error", "-c", "import tenure.core, tenure.log, tenure.broker", cwd=tmp_path)
    assert "tour" in run(home / "bin" / "tenure", "--help", cwd=tmp_path)
