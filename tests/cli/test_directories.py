"""inspect, verify and salvage on sound, damaged, strange and busy directories."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tenure import Broker
from tests.cli.conftest import Tenure


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def loaded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def test_inspect_shows_segments_topics_and_depths(tenure: Tenure, data: Path):
    before = contents(data)
    done = tenure("inspect", "--data", data, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = loaded(done.stdout)
    audit, orders = found["topics"]
    assert (audit["topic"], audit["type"], audit["count"]) == ("audit", "log", 50)
    assert (orders["count"], orders["head_seq"], orders["durability"]) == (48, 50, "fsync")
    assert orders["queue"] == {
        "ready": 45,
        "in_flight": 3,
        "leases": 1,
        "delayed": 0,
        "parked": 0,
        "dead_lettered": 0,
    }
    assert found["routers"] == [{"router": "copy", "source": "orders", "dest": "audit", "cursor": 50, "forwarded": 50}]
    assert [segment["file"] for segment in found["segments"]] == ["segments/0000000001.log"]
    assert (found["epoch"], found["torn_bytes"]) == (1, 0)
    assert contents(data) == before, "nothing was changed"


def test_inspect_speaks_to_people_too(tenure: Tenure, data: Path):
    done = tenure("inspect", "--data", data)
    assert done.returncode == 0
    assert "orders" in done.stdout
    assert "epoch 1" in done.stdout


def test_inspect_works_while_a_broker_has_the_directory_open(tenure: Tenure, data: Path):
    async def look() -> Any:
        async with await Broker.open(data) as broker:
            await broker.produce("orders", [b"1"])
            return tenure("inspect", "--data", data, "--json")

    done = asyncio.run(look())
    assert done.returncode == 0
    assert loaded(done.stdout)["topics"][1]["count"] == 49


def test_verify_finds_nothing_wrong_with_a_sound_directory(tenure: Tenure, data: Path):
    done = tenure("verify", data, "--json")
    assert done.returncode == 0
    found = loaded(done.stdout)
    assert (found["ok"], found["problems"], found["torn"]) == (True, [], None)
    assert "no problems found" in tenure("verify", data).stdout


def test_verify_names_file_range_batch_and_topic_of_the_damage(tenure: Tenure, damaged: Path):
    """Fault 7."""
    before = contents(damaged)
    done = tenure("verify", damaged, "--json")
    assert done.returncode == 1
    [problem] = loaded(done.stdout)["problems"]
    assert problem["file"] == "segments/0000000001.log"
    assert problem["topics"] == ["orders"]
    assert problem["lost_batches"] == 1
    shown = tenure("verify", damaged)
    assert shown.returncode == 1
    assert f"tenure salvage {damaged}" in "".join(shown.stdout.split("\n"))
    assert contents(damaged) == before, "nothing was changed"


def test_inspect_refuses_a_damaged_directory_in_one_line(tenure: Tenure, damaged: Path):
    done = tenure("inspect", "--data", damaged)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "0000000001.log" in done.stderr
    error = loaded(tenure("inspect", "--data", damaged, "--json").stdout)["error"]
    assert error["code"] == "corrupt"
    assert error["detail"]["file"] == "segments/0000000001.log"


def test_salvage_of_a_sound_directory_saves_every_record(tenure: Tenure, data: Path, tmp_path: Path):
    before = contents(data)
    done = tenure("salvage", data, tmp_path / "new")
    assert (done.returncode, done.stderr) == (0, "")
    assert "saved 98 records in 2 topics" in done.stdout
    assert "leases, delivery counts" in done.stdout, "what is always given up is said"
    assert contents(data) == before, "nothing was changed"
    old, new = (loaded(tenure("inspect", "--data", where, "--json").stdout) for where in (data, tmp_path / "new"))
    assert new["topics"][1].pop("queue")["ready"] == 48, "nobody holds anything any more"
    assert old["topics"][1].pop("queue")["in_flight"] == 3
    assert new["topics"] == old["topics"]
    assert [(each["router"], each["cursor"]) for each in new["routers"]] == [("copy", 50)]


def test_salvage_lists_what_it_gives_up(tenure: Tenure, damaged: Path, tmp_path: Path):
    """Fault 7."""
    before = contents(damaged)
    done = tenure("salvage", damaged, tmp_path / "new", "--json")
    assert done.returncode == 1
    found = loaded(done.stdout)
    assert [problem["lost_batches"] for problem in found["problems"]] == [1]
    assert (found["into"], found["opens"], found["ok"]) == (str(tmp_path / "new"), True, False)
    kept = {each["topic"]: (each["records"], each["lost"], each["declared"]) for each in found["topics"]}
    assert kept["orders"] == (38, [[31, 40]], True), "the ten of the damaged call"
    assert found["given_up"]
    assert contents(damaged) == before, "nothing was changed"
    shown = tenure("salvage", damaged, tmp_path / "again")
    assert shown.returncode == 1
    assert "31..40" in shown.stdout


def test_a_salvaged_directory_can_be_worked_with(tenure: Tenure, damaged: Path, tmp_path: Path):
    assert tenure("salvage", damaged, tmp_path / "new").returncode == 1

    async def work() -> tuple[list[int], int]:
        async with await Broker.open(tmp_path / "new") as broker:
            claim = await broker.claim("orders", node="worker", max_count=100)
            assert not (await broker.ack("orders", node="worker", seqs=claim.seqs)).skipped
            return claim.seqs, (await broker.produce("orders", [b"1"])).first_seq

    left, fresh = asyncio.run(work())
    assert left == [*range(3, 31), *range(41, 51)]
    assert fresh == 51
    assert tenure("verify", tmp_path / "new").returncode == 0


def test_salvage_writes_into_an_empty_directory_only(tenure: Tenure, data: Path, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("precious")
    for into in (data, tmp_path / "full", tmp_path / "full" / "file"):
        done = tenure("salvage", data, into)
        assert done.returncode == 2
        assert "is not empty" in done.stderr


def test_salvage_refuses_a_directory_in_use(tenure: Tenure, data: Path, tmp_path: Path):
    """A copy of a log that goes on would miss what comes after (fault 16)."""

    async def attempt() -> Any:
        async with await Broker.open(data):
            return tenure("salvage", data, tmp_path / "new")

    done = asyncio.run(attempt())
    assert done.returncode == 2
    assert "in use by another process" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [("inspect", "--data"), ("verify",)])
def test_a_directory_without_a_log_is_wrong_usage(tenure: Tenure, command: tuple[str, ...], tmp_path: Path):
    for where, why in ((tmp_path, "holds no log"), (tmp_path / "none", "is not a directory")):
        done = tenure(*command, where)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was created"


def test_salvage_makes_no_directory_out_of_checkpoints_alone(tenure: Tenure, data: Path, tmp_path: Path):
    """An empty directory would look like an answer."""
    for segment in (data / "segments").iterdir():
        segment.unlink()
    done = tenure("salvage", data, tmp_path / "new")
    assert done.returncode == 1
    assert "the log itself is missing" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [("inspect", "--data"), ("verify",)])
def test_checkpoints_without_segments_are_a_problem_and_not_an_empty_log(
    tenure: Tenure, command: tuple[str, ...], data: Path
):
    """Never "OK, empty"."""
    for segment in (data / "segments").iterdir():
        segment.unlink()
    done = tenure(*command, data)
    assert done.returncode == 1
    assert "the log itself is missing" in done.stderr
