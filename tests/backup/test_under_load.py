"""Backups of a real server under load: what was acknowledged before is there, what was acked before stays gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenure.backup.directory import restore_directory
from tenure.backup.place import open_place
from tenure.backup.verify import verify_backup
from tenure.cli.commands.directory import replay
from tenure.client import Client
from tenure.core.state.invariants import invariants
from tenure.core.state.ranges import each
from tenure.log.disk import PosixDisk
from tests.backup.load import QUEUE, Load
from tests.kit.server import environment, serving

COMMAND = Path(sys.executable).with_name("tenure")
SMALL_SEGMENTS = ("--set", "engine.segment_bytes=2097152")


def tenure(*arguments: object) -> None:
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr


def restored(place: Path, directory: Path) -> Path:
    """Verify a backup, and restore it into a directory."""
    with open_place(place) as opened:
        assert verify_backup(opened).problems == []
        restore_directory(opened, directory)
    return directory


def live_seqs(directory: Path) -> set[int]:
    state = replay(PosixDisk(directory, create=False)).state
    invariants(state)
    topic = state.topics[QUEUE]
    return set(each(topic.live_runs(topic.floor, topic.head_seq + 1)))


@pytest.mark.parametrize("backups", [5, pytest.param(20, marks=pytest.mark.full)])
def test_every_backup_under_load_holds_what_was_acknowledged_and_nothing_that_was_acked(tmp_path: Path, backups: int):
    data = tmp_path / "data"
    with serving(data, *SMALL_SEGMENTS) as server, Load(server.url) as load:
        for number in range(backups):
            load.wait_for(load.known().put_seq + 1_000)
            before, place, copy = load.known(), tmp_path / f"backup-{number}", tmp_path / f"copy-{number}"
            tenure("backup", "--data", data, place)
            asked = set(load.asked)
            found = live_seqs(restored(place, copy))
            assert set(range(1, before.put_seq + 1)) - asked <= found, "an acknowledged job is missing"
            assert not found & before.acked, "an acked job came back"
        assert not load.failures
    tenure("verify", data)


def test_a_backup_that_is_killed_leaves_the_server_and_its_log_as_they_were(tmp_path: Path):
    data, place = tmp_path / "data", tmp_path / "backup"
    with serving(data, *SMALL_SEGMENTS) as server, Load(server.url) as load:
        load.wait_for(1_000)
        with Client(server.url) as client:
            client.produce("bulk", ["." * 100_000] * 40)
        command = [COMMAND, "backup", "--data", data, "--rate", "1", f"file://{place}"]
        child = subprocess.Popen([*map(str, command)], env=environment(), stderr=subprocess.PIPE)
        try:
            while not (place / "backup.begun").exists():
                assert child.poll() is None, child.communicate()
            child.kill()
        finally:
            child.communicate()
        assert not (place / "backup.json").exists()
        before = load.known()
        tenure("backup", "--data", data, place)
        assert not live_seqs(restored(place, tmp_path / "copy")) & before.acked
        assert not load.failures
    tenure("verify", data)


@pytest.mark.parametrize("mode", ["stopped", "killed"])
def test_a_directory_that_no_server_uses_is_backed_up_too(tmp_path: Path, mode: str):
    data = tmp_path / "data"
    with serving(data, *SMALL_SEGMENTS) as server:
        with Load(server.url) as load:
            load.wait_for(1_000)
        if mode == "killed":
            server.process.kill()
            server.wait()
        else:
            server.stop()
    tenure("backup", "--data", data, tmp_path / "backup")
    known = load.known()
    assert live_seqs(restored(tmp_path / "backup", tmp_path / "copy")) == set(range(1, known.put_seq + 1)) - known.acked
