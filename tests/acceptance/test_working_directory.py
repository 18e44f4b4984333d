"""The working directory of a server holds no code of its: its child processes do not look for modules there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tenure.python_child import module_command, module_environment
from tests.kit.server import serving

_SMALL = ("--set", "engine.checkpoint_bytes=1000000", "--set", "engine.segment_bytes=1048576")
_SHADOWED = ("resource", "queue", "calendar", "ssl")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose modules are named as those of the standard library; the file that they write."""
    folder, ran = tmp_path / "cwd", tmp_path / "ran"
    folder.mkdir()
    for name in _SHADOWED:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__)\nraise SystemExit(7)\n")
    monkeypatch.chdir(folder)
    return ran


def test_checkpoints_and_the_exporter_run_no_module_of_the_working_directory(tmp_path: Path, ran: Path):
    with serving(tmp_path / "data", "--events", (tmp_path / "events").as_uri(), *_SMALL) as server:
        with server.client() as client:
            client.put("/v0/topics/q", json={"durability": "disk"})
            while not list((tmp_path / "data" / "checkpoints").glob("*.checkpoint")):
                client.post("/v0/topics/q", json={"records": [{"data": "x" * 100_000}]}).raise_for_status()
                assert not ran.exists()
        assert server.stop() == 0
        assert not [line for line in server.lines if "the exporter has ended" in line]
    assert list((tmp_path / "events").iterdir())
    assert not ran.exists()


def test_a_child_looks_where_its_parent_does(ran: Path, monkeypatch: pytest.MonkeyPatch):
    command = module_command("calendar", "2026")
    assert b"2026" in subprocess.run(command, env=module_environment(), check=True, capture_output=True).stdout
    assert not ran.exists()
    monkeypatch.syspath_prepend(os.getcwd())
    assert subprocess.run(command, env=module_environment(), check=False, capture_output=True).returncode == 7
