"""backup, backup verify and restore as a user calls them: what they print, and a clear error for every bad input."""

from __future__ import annotations

import json
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tenure
from tests.kit.small_disk import small_disk


def loaded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def backup(tenure: Tenure, data: Path, tmp_path: Path) -> Path:
    """A backup of the sound directory."""
    place = tmp_path / "backup"
    done = tenure("backup", "--data", data, place)
    assert (done.returncode, done.stderr) == (0, "")
    return place


def test_a_backup_is_taken_verified_and_restored(tenure: Tenure, data: Path, tmp_path: Path):
    place, copy = tmp_path / "backup", tmp_path / "copy"
    taken = tenure("backup", "--data", data, place)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert f"next: tenure backup verify {place}" in " ".join(taken.stdout.split())
    verified = tenure("backup", "verify", place)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "no problems found" in verified.stdout
    restored = tenure("restore", place, copy)
    assert (restored.returncode, restored.stderr) == (0, "")
    assert "3 jobs in flight were released" in restored.stdout
    found = loaded(tenure("inspect", "--data", copy, "--json").stdout)
    assert {topic["topic"]: topic["count"] for topic in found["topics"]} == {"audit": 50, "orders": 48}
    assert tenure("verify", copy).returncode == 0


def test_leases_are_kept_on_request(tenure: Tenure, backup: Path, tmp_path: Path):
    done = tenure("restore", backup, tmp_path / "copy", "--keep-leases", "--json")
    assert (loaded(done.stdout)["released"], loaded(done.stdout)["kept_leases"]) == (0, True)
    found = loaded(tenure("inspect", "--data", tmp_path / "copy", "--json").stdout)
    assert found["topics"][1]["queue"]["in_flight"] == 3


def test_json_has_the_numbers(tenure: Tenure, data: Path, tmp_path: Path):
    taken = loaded(tenure("backup", "--data", data, tmp_path / "b", "--json").stdout)
    assert (taken["segments"], taken["end"]["segment"], taken["epoch"]) == (1, 1, 1)
    verified = loaded(tenure("backup", "verify", tmp_path / "b", "--json").stdout)
    assert (verified["ok"], verified["problems"], verified["log_id"]) == (True, [], taken["log_id"])
    restored = loaded(tenure("restore", tmp_path / "b", tmp_path / "c", "--json").stdout)
    assert (restored["records"], restored["jobs"], restored["released"]) == (98, 48, 3)
    assert restored["log_id"] != taken["log_id"]


def test_a_file_url_is_a_place_too(tenure: Tenure, data: Path, tmp_path: Path):
    url = (tmp_path / "backup").as_uri()
    assert tenure("backup", "--data", data, url).returncode == 0
    assert tenure("restore", url, tmp_path / "copy").returncode == 0


def test_only_the_owner_can_read_a_backup_and_a_restored_directory(tenure: Tenure, backup: Path, tmp_path: Path):
    assert tenure("restore", backup, tmp_path / "copy").returncode == 0
    for path in [backup, *backup.rglob("*"), tmp_path / "copy", *(tmp_path / "copy").rglob("*")]:
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), path


@pytest.mark.parametrize("word", ["--help", "verify --help"])
def test_the_help_names_what_there_is(tenure: Tenure, word: str):
    done = tenure("backup", *word.split())
    assert done.returncode == 0
    assert "verify" in done.stdout


BAD = [
    (("backup", "--data", "{tmp}/nothing", "{tmp}/b"), 1, "is not a directory"),
    (("backup", "--data", "{tmp}/plain", "{tmp}/b"), 1, "holds no log"),
    (("backup", "--data", "{data}", "{tmp}/plain"), 1, "is not empty"),
    (("backup", "--data", "{data}", "{backup}"), 1, "holds a backup already"),
    (("backup", "--data", "{data}", "{data}/b"), 2, "name another place"),
    (("backup", "--data", "{data}", "{tmp}/plain/file"), 6, "not a directory"),
    (("backup", "--data", "{data}", "ftp://host/b"), 2, "no store for"),
    (("backup", "--data", "{data}", "s3://user:secret@bucket/b"), 2, "carries no secret"),
    (("backup", "--data", "{data}", ""), 2, "needs a place"),
    (("backup", "--data", "{data}", "{tmp}/b", "--rate", "-1"), 2, "rate"),
    (("backup", "verify", "{tmp}/nothing"), 1, "no finished backup"),
    (("backup", "verify", "{data}"), 1, "no finished backup"),
    (("restore", "{tmp}/nothing", "{tmp}/new"), 1, "no finished backup"),
    (("restore", "{backup}", "{data}"), 1, "not an empty directory"),
    (("restore", "{backup}", "{tmp}/plain/file"), 1, "not an empty directory"),
    (("restore", "{backup}", "{tmp}/plain/file/new"), 5, "then run it again"),
    (("restore", "gopher://x", "{tmp}/new"), 2, "no store for"),
]


def test_bad_input_is_one_line_and_changes_nothing(tenure: Tenure, data: Path, backup: Path, tmp_path: Path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    named = {"tmp": tmp_path, "data": data, "backup": backup}
    for arguments, code, words in BAD:
        done = tenure(*(each.format(**named) for each in arguments))
        said = " ".join(done.stderr.split())
        assert (done.returncode, words in said) == (code, True), (arguments, done.returncode, said)
        assert "Traceback" not in said
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before, arguments


def test_a_store_without_credentials_is_an_error_in_one_line(tenure: Tenure, data: Path):
    url = "s3://bucket/b?endpoint=http://127.0.0.1:9&region=us-east-1"
    done = tenure("backup", "--data", data, url, AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="/dev/null")
    assert done.returncode in (5, 6, 8)
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_damage_is_found_named_and_never_restored(tenure: Tenure, backup: Path, tmp_path: Path):
    [piece] = backup.rglob("*/segments/*")
    data = piece.read_bytes()
    for damaged in (data[:500] + bytes([data[500] ^ 1]) + data[501:], data[:-1], None):
        piece.unlink()
        if damaged is not None:
            piece.write_bytes(damaged)
        verified = tenure("backup", "verify", backup)
        assert verified.returncode == 1
        assert piece.name in verified.stdout
        restored = tenure("restore", backup, tmp_path / "copy")
        assert restored.returncode == 1
        assert "Use another backup" in restored.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]
        piece.write_bytes(data)


@pytest.mark.parametrize("text", ["", "{}", "not json"])
def test_a_damaged_manifest_is_refused(tenure: Tenure, backup: Path, tmp_path: Path, text: str):
    (backup / "backup.json").write_text(text)
    for arguments in (("backup", "verify", backup), ("restore", backup, tmp_path / "copy")):
        done = tenure(*arguments, "--json")
        assert (done.returncode, loaded(done.stdout)["error"]["code"]) == (1, "backup_damaged")


def test_a_damaged_log_is_not_backed_up(tenure: Tenure, damaged: Path, tmp_path: Path):
    done = tenure("backup", "--data", damaged, tmp_path / "backup")
    assert done.returncode == 1
    assert "Verify the directory, then salvage it" in done.stderr
    assert tenure("backup", "verify", tmp_path / "backup").returncode == 1


def test_a_full_disk_is_an_error_that_says_so_and_the_next_try_succeeds(tenure: Tenure, data: Path, tmp_path: Path):
    with small_disk(tmp_path / "small", size_bytes=2 << 20) as small:
        hog = small / "hog"
        with suppress(OSError):
            hog.write_bytes(bytes(2 << 20))
        done = tenure("backup", "--data", data, small / "backup")
        assert (done.returncode, "no room" in done.stderr) == (5, True), done.stderr
        hog.unlink()
        assert tenure("backup", "--data", data, small / "backup").returncode == 0
        assert tenure("backup", "verify", small / "backup").returncode == 0
