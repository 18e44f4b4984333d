"""The archive for executors that have nothing else, as a Python without any packages takes it; without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tenure.cli.app import app
from tenure.errors import Invalid
from tenure.spark.bundle.bundle import make_bundle

IMPORTS = "import sys; sys.path.insert(0, {archive!r}); import tenure.errors, msgspec; print(msgspec.json.__file__)"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small package with a compiled module stands for all."""
    monkeypatch.setattr("tenure.spark.bundle.bundle.ROOTS", ("msgspec",))


def bare_python(archive: Path) -> subprocess.Popen[str]:
    """A Python that sees its own library and the archive."""
    command = [sys.executable, "-S", "-I", "-c", IMPORTS.format(archive=str(archive))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_python_without_packages_imports_what_is_bundled_compiled_or_not(tmp_path: Path) -> None:
    made = make_bundle(tmp_path / "b.zip")
    assert (made.distributions["msgspec"], made.bytes > 100_000) == (msgspec.__version__, True)
    out, err = bare_python(tmp_path / "b.zip").communicate(timeout=120)
    assert out.strip() == str(tmp_path / f"b.zip.{made.digest}/msgspec/json.py"), err


def test_tasks_that_begin_at_once_unpack_one_directory(tmp_path: Path) -> None:
    made = make_bundle(tmp_path / "b.zip")
    tasks = [bare_python(tmp_path / "b.zip") for _ in range(4)]
    errors = [task.communicate(timeout=120)[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0] * 4, errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.zip", f"b.zip.{made.digest}"]


def test_an_archive_for_another_python_says_so_and_what_to_do(tmp_path: Path) -> None:
    make_bundle(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as made, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for name in made.namelist():
            content = made.read(name)
            if name == "_tenure_bundle.json":
                content = json.dumps(json.loads(content) | {"python": "3.8"}).encode()
            other.writestr(name, content)
    _, err = bare_python(tmp_path / "other.zip").communicate(timeout=120)
    assert "was made for Python 3.8" in err
    assert "run `tenure spark bundle` with the Python of the executors" in err


def test_the_same_packages_make_the_same_archive_over_an_older_one(tmp_path: Path) -> None:
    make_bundle(tmp_path / "b.zip")
    before = (tmp_path / "b.zip").read_bytes()
    make_bundle(tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]


def test_what_cannot_be_bundled_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_bytes(b"something else")
    with pytest.raises(Invalid, match="is no bundle"):
        make_bundle(tmp_path / "mine.zip")
    with pytest.raises(Invalid, match="is a directory"):
        make_bundle(tmp_path)
    with pytest.raises(Invalid, match=r"must end in \.zip"):
        make_bundle(tmp_path / "b.tar")
    with pytest.raises(Invalid, match="no-such-thing is not installed here"):
        make_bundle(tmp_path / "b.zip", also=["no_such_thing"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.zip"]
    assert (tmp_path / "mine.zip").read_bytes() == b"something else"


def test_the_command_says_what_is_in_it_and_how_it_is_used(tmp_path: Path) -> None:
    out = tmp_path / "b.zip"
    done = CliRunner().invoke(app, ["spark", "bundle", str(out), "--with", "crc32c"])
    assert done.exit_code == 0, done.output
    assert f"spark-submit --py-files {out}" in done.stdout
    assert "crc32c 2." in done.stdout
    found = json.loads(CliRunner().invoke(app, ["spark", "bundle", str(out), "--json"]).stdout)
    assert sorted(found["distributions"]) == ["msgspec", "tenure"]
    refused = CliRunner().invoke(app, ["spark", "bundle", str(tmp_path / "b.tar")])
    assert refused.exit_code == 2
    missing = CliRunner().invoke(app, ["spark", "bundle", str(tmp_path / "none" / "b.zip")])
    assert (missing.exit_code, "Traceback" in missing.output) == (2, False)
