"""`tenure upgrade`: the features of a server, and of a directory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tenure import Broker, __version__
from tenure.cli.commands.upgrade import finalize_directory, find_directory
from tenure.errors import Conflict, Corrupt
from tenure.log import FileLog, PosixDisk
from tests.cli.conftest import Remote, Tenure
from tests.cli.test_directories import contents
from tests.kit.versions import NEWER, OLDER


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A data directory that the older of two versions has made."""

    async def fill() -> None:
        async with await Broker.open(FileLog.open(PosixDisk(tmp_path), segment_bytes=1 << 16, known=OLDER)) as broker:
            await broker.put_topic("q", {"type": "queue"})
            await broker.produce("q", [b"1"])

    asyncio.run(fill())
    return tmp_path


def test_a_server_shows_its_version_and_has_nothing_to_finalize(remote: Remote) -> None:
    for command in ("status", "finalize"):
        found = remote.json("upgrade", command)
        assert (found["version"], found["off"]) == (__version__, [])
        text = remote.ok("upgrade", command)
        assert f"version {__version__}" in text
        assert "nothing to finalize" in text


def test_a_directory_is_shown_while_a_broker_has_it_open_and_finalized_only_when_none_has(
    tenure: Tenure, data: Path
) -> None:
    async def look() -> None:
        async with await Broker.open(data):
            before = contents(data)
            shown = await asyncio.to_thread(tenure, "upgrade", "status", "--data", data, "--json")
            refused = await asyncio.to_thread(tenure, "upgrade", "finalize", "--data", data, "--json")
            assert contents(data) == before
        assert (shown.returncode, json.loads(shown.stdout)["version"]) == (0, __version__)
        assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (2, "locked")

    asyncio.run(look())
    done = tenure("upgrade", "finalize", "--data", data)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["status", "finalize"])
def test_a_directory_that_is_none_is_refused_in_one_line(tenure: Tenure, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "empty", tmp_path / "missing"):
        done = tenure("upgrade", command, "--data", directory)
        assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, "")
    assert contents(tmp_path) == {}


def test_the_features_of_a_directory_are_off_until_it_is_finalized(old: Path) -> None:
    before = contents(old)
    status, code = find_directory(old, known=NEWER)
    assert (status["on"], status["off"], code) == (
        [{"name": "widgets", "since": "9.1.0"}],
        [{"name": "gadgets", "since": "9.2.0"}],
        0,
    )
    assert contents(old) == before
    assert finalize_directory(old, known=NEWER)[0]["off"] == []
    assert find_directory(old, known=NEWER)[0]["off"] == []


def test_a_version_that_does_not_know_a_feature_changes_nothing(old: Path) -> None:
    finalize_directory(old, known=NEWER)
    before = contents(old)
    for command in (find_directory, finalize_directory):
        with pytest.raises(Corrupt, match="gadgets") as refused:
            command(old, known=OLDER)
        assert refused.value.code == "unknown_feature"
    assert contents(old) == before


def test_every_command_of_an_older_version_refuses_a_directory_with_an_unknown_feature(
    tenure: Tenure, old: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The real commands, for which the features of the two versions in `tests/kit` are unknown ones."""
    before = contents(old)
    into = tmp_path_factory.mktemp("into")
    for command in (
        ("serve", "--data", old, "--port", "0"),
        ("verify", old),
        ("salvage", old, into),
        ("inspect", "--data", old),
        ("export", "--data", old, "--events", f"file://{into}", "--once"),
        ("upgrade", "status", "--data", old),
        ("upgrade", "finalize", "--data", old),
    ):
        done = tenure(*command)
        assert done.returncode == 1, (command, done.stdout, done.stderr)
        assert "widgets" in done.stderr, command
        assert "needs Tenure 9.1.0" in done.stderr, command
        assert "Traceback" not in done.stderr
    assert contents(old) == before
    assert not [path for path in contents(into) if "segments" in str(path)]


def test_a_directory_in_use_is_refused_by_finalize(old: Path) -> None:
    disk = PosixDisk(old)
    disk.lock()
    with pytest.raises(Conflict):
        finalize_directory(old, known=NEWER)
