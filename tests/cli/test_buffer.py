"""`tenure buffer`: what people and scripts see of a buffer, from the real command."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenure.buffer import Consumer
from tenure.cli.buffer.buffer import buffer
from tests.cli.conftest import COMMAND, Tenure, surroundings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "buffer"


def asked(tenure: Tenure, *arguments: object, code: int = 0) -> dict[str, Any]:
    """The document that a buffer command prints."""
    done = tenure("buffer", *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_lines_go_in_and_come_out_again(tenure: Tenure, home: Path) -> None:
    done = tenure("buffer", "produce", home, stdin="one\ntwo\r\n\nfour")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 entries (10 B) durable in 1 batch, 1 blank line skipped\n"
    assert tenure("buffer", "tail", home).stdout == "one\ntwo\nfour\n"
    rows = [json.loads(line) for line in tenure("buffer", "tail", home, "--json").stdout.splitlines()]
    assert rows[1] == {"seq": 0, "index": 1, "entry": "two"}


@pytest.mark.parametrize("command", ["stat", "tail", "produce", "verify"])
def test_without_the_extra_every_command_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("tenure.buffer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = CliRunner().invoke(buffer, [command, "/nowhere"])
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
    assert "pip install 'tenure[buffer]'" in capsys.readouterr().err + done.output


def test_gc_keeps_what_the_buffer_retains_and_says_for_whom(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="x\n")
    asyncio.run(read_all(home))
    assert asked(tenure, "set", home, "--retain-for", "7d") == {"retain_for_ms": 7 * 86_400_000, "before_ms": 0}
    kept = asked(tenure, "gc", home, "--grace", "0")
    assert (kept["trimmed"], kept["objects"], kept["kept"][0]["why"]) == (0, 0, "retention")
    assert "kept: 1 batch for the retention" in tenure("buffer", "gc", home).stdout
    assert "retention: 7d 0h\nkept: 1 batch for the retention\n" in tenure("buffer", "stat", home).stdout
    assert tenure("buffer", "set", home, "--retain-for", "0").stdout == "retention: none (it was 7d 0h)\n"
    gone = asked(tenure, "gc", home, "--grace", "0")
    assert (gone["trimmed"], gone["objects"], gone["kept"]) == (1, 1, [])


def test_a_retention_that_is_none_is_wrong_usage_and_changes_nothing(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="x\n")
    for wrong in ([], ["--retain-for", "long"], ["--retain-for", "-1h"], ["--retain-for", "40000d"]):
        done = tenure("buffer", "set", home, *wrong)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert asked(tenure, "stat", home)["retain_for_ms"] == 0


def test_groups_are_listed_with_what_they_pin_and_dropped(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="x\n")
    assert asked(tenure, "groups", home) == {"groups": []}
    assert "no group yet" in tenure("buffer", "groups", home).stdout
    assert "kept: 1 batch for whoever comes" in tenure("buffer", "gc", home).stdout
    asyncio.run(read_all(home))
    asyncio.run(started(home, "audit"))
    found = {each["group"]: each for each in asked(tenure, "groups", home)["groups"]}
    assert {name: each["pinned_batches"] for name, each in found.items()} == {"audit": 1, "default": 0}
    assert "kept: 1 batch for group audit, idle for" in tenure("buffer", "gc", home).stdout
    listed = tenure("buffer", "groups", home).stdout
    assert "pins alone" in listed
    assert "audit" in listed
    missing = tenure("buffer", "drop-group", home, "adit")
    assert (missing.returncode, "it has audit, default" in missing.stderr) == (1, True)
    assert asked(tenure, "drop-group", home, "audit") == {"dropped": "audit"}
    assert asked(tenure, "gc", home, "--grace", "0")["objects"] == 1


async def started(home: Path, group: str) -> None:
    async with Consumer(home.as_uri(), group=group, collect=False):
        pass


async def read_all(home: Path) -> None:
    async with Consumer(home.as_uri(), collect=False) as consumer:
        while (batch := await consumer.next_batch()) is not None:
            await consumer.ack(batch.seq)


def test_files_go_in_line_by_line_or_whole(tenure: Tenure, home: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"\xff\x00")
    files = (tmp_path / "a", tmp_path / "b")
    assert asked(tenure, "produce", home, *files, "--format", "lines")["entries"] == 3
    assert asked(tenure, "produce", home, *files, "--whole")["entries"] == 2
    lines = tenure("buffer", "tail", home, "--from", "0", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row.get("entry") for row in rows] == ["1", "2", None, "1\n2\n", None]
    assert rows[-1]["entry_base64"] == "/wA="
    assert tenure("buffer", "produce", home, "--whole").returncode == 2
    assert tenure("buffer", "produce", home, tmp_path / "none").returncode == 2


def test_a_tail_that_follows_prints_what_comes(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="first\n")
    following = subprocess.Popen(
        [COMMAND, "buffer", "tail", str(home), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings(),
    )
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        tenure("buffer", "produce", home, stdin="second\n")
        assert following.stdout.readline() == "second\n"
    finally:
        following.terminate()
        following.communicate(timeout=30)


def test_stat_tells_size_cost_and_lag(tenure: Tenure, home: Path) -> None:
    for _ in range(3):
        tenure("buffer", "produce", home, stdin="x\n")
    found = asked(tenure, "stat", home)
    assert (found["batches"], found["entries_total"], found["next_seq"]) == (3, 3, 3)
    assert found["requests_per_gb"] == (found["writes_total"] + found["reads_total"]) / (found["bytes_total"] / 1e9)
    assert found["conflicts_total"] == 0
    assert found["objects_per_hour"] > 0
    assert (found["groups"], found["kept"][0]["why"]) == ([], "no_group")
    asyncio.run(started(home, "orders"))
    found = asked(tenure, "stat", home)
    assert found["groups"] == [found["groups"][0] | {"group": "orders", "lag_batches": 3, "last_acked": None}]
    text = tenure("buffer", "stat", home).stdout
    assert "3 batches held, sequences 0 to 2" in text
    assert "requests per GB" in text


def test_the_manifest_is_dumped_as_json(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="x\n")
    found = json.loads(tenure("buffer", "manifest", home).stdout)
    assert found["next_seq"] == 1
    assert found["tail"][0]["seq"] == 0


def test_gc_says_what_would_go_and_then_lets_it_go(tenure: Tenure, home: Path) -> None:
    tenure("buffer", "produce", home, stdin="x\n")
    tenure("buffer", "produce", home, stdin="y\n")
    asyncio.run(ack(home, through=0))
    found = asked(tenure, "gc", "--dry-run", home)
    assert (found["dry_run"], found["trimmed"]) == (True, 1)
    assert asked(tenure, "stat", home)["first_seq"] == 0
    assert "would go" in tenure("buffer", "gc", "--dry-run", home).stdout
    assert asked(tenure, "gc", home)["trimmed"] == 1
    assert asked(tenure, "stat", home)["first_seq"] == 1


async def ack(home: Path, *, through: int) -> None:
    async with Consumer(home.as_uri(), collect=False) as consumer:
        await consumer.next_descriptors(100)
        await consumer.ack_through(through)


def test_verify_finds_damage_and_strangers_and_quarantine_gets_past_it(tenure: Tenure, home: Path) -> None:
    for text in ("a\n", "b\n", "c\n"):
        tenure("buffer", "produce", home, stdin=text)
    assert asked(tenure, "verify", home) == {"findings": [], "harmful": 0}
    (home / "data" / "notes.txt").write_text("mine")
    found = asked(tenure, "verify", home)
    assert [each["kind"] for each in found["findings"]] == ["foreign"]
    first = sorted((home / "data").glob("*.parquet"))[0]
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    found = asked(tenure, "verify", home, code=1)
    assert {(each["kind"], each["seq"]) for each in found["findings"]} == {("foreign", None), ("damaged", 0)}
    assert asked(tenure, "verify", "--no-data", home)["harmful"] == 0, "its size is right"
    assert "damaged" in tenure("buffer", "verify", home).stdout

    asyncio.run(started(home, "default"))
    later = asked(tenure, "quarantine", home, 1, "--reason", "for a job of Spark")
    assert (later["quarantined"], later["passed"]) == (1, False)
    next_one = asked(tenure, "quarantine", home, 0, "--reason", "a flipped bit")
    assert (next_one["quarantined"], next_one["passed"]) == (0, True)
    [group] = asked(tenure, "stat", home)["groups"]
    assert (group["last_acked"], group["skipped"]) == (0, 1)
    assert not asked(tenure, "quarantine", home, 0, "--reason", "again")["passed"], "the group is past it"


@pytest.mark.parametrize("command", [["stat"], ["manifest"], ["tail"], ["gc"], ["verify"], ["groups"]])
def test_where_there_is_no_buffer_that_is_said(tenure: Tenure, tmp_path: Path, command: list[str]) -> None:
    done = tenure("buffer", *command, tmp_path / "none")
    assert done.returncode == 1
    assert "no buffer" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_address_that_is_none_is_wrong_usage(tenure: Tenure) -> None:
    done = tenure("buffer", "stat", "ftp://somewhere/else")
    assert done.returncode == 2
    assert "use file://" in done.stderr
