"""The log of a file table: one writer wins each number, a mark survives compaction, and a late driver adds nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
from pathlib import Path

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Corrupt, Indeterminate, Invalid, Overloaded
from tenure.spark.sinks.files import log as file_log
from tenure.spark.sinks.files.lines import Line, Mark, decode, encode, file_line
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.stage import Stage
from tenure.spark.sinks.files.table import FileTable, files
from tenure.spark.sinks.places import Place
from tenure.testing.simstore import Fault, SimStore
from tests.kit.buffers import QUICK

TABLE = "file:///table"


def log(store: SimStore) -> FileLog:
    return FileLog(store, TABLE, settings=QUICK)


def commit(low: int, high: int, *, buffer: str = "B") -> Commit:
    return Commit(buffer, "files", low, high, 1)


def line(name: str) -> Line:
    return file_line(f"{TABLE}/{name}", size_bytes=1, modified_ms=2)


async def committed(store: SimStore, what: Commit, *names: str, attempt: str = "a") -> None:
    """Commit as a table does: after a state that the range follows."""
    table = FileTable("/table")
    await table._commit(log(store), what, attempt, [line(name) for name in names])


async def names(store: SimStore) -> list[str]:
    return [file.path.removeprefix(f"{TABLE}/") for file in (await log(store).read()).files]


def test_a_commit_that_has_no_room_on_the_disk_is_refused_for_now_and_nothing_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Naive: the outcome counts as unknown, though a file without room is never named."""
    table = FileTable(tmp_path)
    table.skip(commit(0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        with pytest.raises(Overloaded, match="the range 1 to 3 is not in the table, as the disk under") as caught:
            table.skip(commit(1, 3))
    assert caught.value.code == "disk_full"
    assert "No space left on device" in caught.value.message
    table.skip(commit(1, 3))
    assert asyncio.run(table._log().read()).last_committed("B", "files") == 3


def no_room(descriptor: int, data: memoryview) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_an_empty_log_holds_nothing(sim: SimStore):
    state = await log(sim).read()
    assert (state.last, state.files, state.last_committed("B", "files")) == (-1, [], None)


async def test_a_log_holds_what_was_committed_over_many_compactions(sim: SimStore):
    for number in range(35):
        await committed(sim, commit(number, number), f"f{number}")
        state = await log(sim).read()
        assert state.last_committed("B", "files") == number
        assert len(state.files) == number + 1
    assert await names(sim) == [f"f{number}" for number in range(35)]
    assert {key for key in sim.objects if key.endswith(".compact")} == {
        f"_spark_metadata/{number}.compact" for number in (9, 19, 29)
    }


async def test_a_range_without_rows_moves_the_mark_also_through_a_compaction(sim: SimStore):
    await committed(sim, commit(0, 4), "f", attempt="first")
    for number in range(5, 30):
        await committed(sim, commit(number, number))
    await committed(sim, commit(0, 0, buffer="other"), "g")
    state = await log(sim).read()
    assert state.last_committed("B", "files") == 29
    assert state.last_committed("other", "files") == 0
    assert len(state.files) == 2


async def test_the_lines_are_spelled_as_spark_spells_them(sim: SimStore):
    await committed(sim, commit(0, 1), "day=1/f")
    version, mark, file = sim.objects["_spark_metadata/0"][0].decode().split("\n")
    assert version == "v1"
    spelled = {"path", "size", "isDir", "modificationTime", "blockReplication", "blockSize", "action"}
    assert set(json.loads(file)) == spelled
    assert set(json.loads(mark)) == spelled | {"tenure"}
    assert json.loads(mark)["isDir"] is True


async def test_of_two_drivers_with_the_same_range_one_adds_its_files(sim: SimStore):
    sim.latency_ms = 1
    await asyncio.gather(*(committed(sim, commit(0, 3), f"by{driver}", attempt=str(driver)) for driver in range(5)))
    assert len(await names(sim)) == 1


async def test_drivers_of_different_buffers_share_a_table(sim: SimStore):
    sim.latency_ms = 1

    async def drive(buffer: str) -> None:
        for number in range(8):
            await committed(sim, commit(number, number, buffer=buffer), f"{buffer}{number}", attempt=buffer)

    await asyncio.gather(*map(drive, "ABC"))
    assert sorted(await names(sim)) == sorted(f"{buffer}{number}" for buffer in "ABC" for number in range(8))


async def test_a_range_that_does_not_follow_is_refused(sim: SimStore):
    await committed(sim, commit(0, 3), "f")
    with pytest.raises(Conflict, match="does not follow") as caught:
        await committed(sim, commit(5, 9), "g")
    assert caught.value.code == "sink_moved"
    assert await names(sim) == ["f"]


@pytest.mark.parametrize("how", ["lost_request", "lost_reply", "duplicate", "late"])
@pytest.mark.parametrize("number", range(12))
async def test_whatever_happens_to_a_call_a_range_is_there_once(sim: SimStore, how: Fault, number: int):
    for before in range(9):
        await committed(sim, commit(before, before), f"f{before}")
    first = len(sim.calls)
    sim.fail(first + number, how)
    await committed(sim, commit(9, 9), "f9", attempt="x")
    assert [call.kind for call in sim.calls[first:]].count("put_new") >= 1
    assert len(sim.calls) > first + number
    sim.deliver_late()
    await committed(sim, commit(10, 10), "f10")
    assert sorted(await names(sim)) == sorted(f"f{index}" for index in range(11))


async def test_a_commit_whose_answer_never_comes_is_indeterminate_and_can_be_repeated(sim: SimStore):
    lost: Fault = "lost_reply"
    sim.hook = lambda call: lost if call.kind in {"put_new", "get"} else None
    with pytest.raises(Indeterminate):
        await committed(sim, commit(0, 0), "f", attempt="first")
    sim.hook = lambda call: None
    await committed(sim, commit(0, 0), "again", attempt="second")
    assert await names(sim) == ["f"]


async def test_a_driver_that_slept_while_its_number_was_used_and_deleted_adds_nothing(sim: SimStore):
    """Naive: its number is free again, so it believes that it has committed."""
    await committed(sim, commit(0, 0), "f0")
    asleep = sim.hold(len(sim.calls) + 2)  # after the listing and one number
    zombie = asyncio.ensure_future(committed(sim, commit(1, 1), "stale", attempt="zombie"))
    await asleep.reached.wait()
    for number in range(1, 40):
        sim.advance(file_log.KEEP_MS)
        await committed(sim, commit(number, number), f"f{number}")
    assert "_spark_metadata/1" not in sim.objects
    asleep.release()
    await zombie
    assert "_spark_metadata/1" in sim.objects  # it did create it
    assert await names(sim) == [f"f{number}" for number in range(40)]


async def test_a_long_log_is_short_on_disk(sim: SimStore):
    for number in range(60):
        sim.advance(file_log.KEEP_MS // 5)
        await committed(sim, commit(number, number), f"f{number}")
    kept = [key for key in sim.objects if key.startswith("_spark_metadata/")]
    assert len(kept) <= 20 + 5
    calls = len(sim.calls)
    assert len((await log(sim).read()).files) == 60
    assert len(sim.calls) - calls <= 11


async def test_a_gap_in_the_log_is_corruption(sim: SimStore):
    for number in range(3):
        await committed(sim, commit(number, number), f"f{number}")
    del sim.objects["_spark_metadata/1"]
    with pytest.raises(Corrupt, match="no number 1"):
        await log(sim).read()


@pytest.mark.parametrize("data", [b"", b"v2\n", b"v1\nnonsense", b'v1\n{"path":1}'])
async def test_a_log_that_is_damaged_says_so(sim: SimStore, data: bytes):
    sim.objects["_spark_metadata/0"] = (data, 0)
    with pytest.raises(Corrupt):
        await log(sim).read()


async def test_a_log_of_another_interval_is_not_touched(sim: SimStore):
    sim.objects["_spark_metadata/2.compact"] = (encode([]), 0)
    with pytest.raises(Invalid, match="another program"):
        await log(sim).read()


async def test_the_leavings_of_hadoop_beside_the_log_are_read_over(sim: SimStore):
    await committed(sim, commit(0, 0), "f")
    for name in (".0.crc", ".tmp-1", "1.tmp", "007"):
        sim.objects[f"_spark_metadata/{name}"] = (b"", 0)
    assert await names(sim) == ["f"]


def test_a_log_of_spark_without_marks_can_be_read():
    spark = (
        b'v1\n{"path":"file:///t/a","size":1,"isDir":false,"modificationTime":1,'
        b'"blockReplication":1,"blockSize":33554432,"action":"add"}'
    )
    assert [item.path for item in decode("0", spark)] == ["file:///t/a"]


# Staging


def staged(place: Place, low: int, high: int, *files: str) -> Stage:
    stage = Stage(place, FileLog(place.store(), place.spark_url).retrying, commit(low, high))
    for name in files:
        path = Path(stage.spark_path.removeprefix("file://")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"rows")
    return stage


async def test_staged_files_get_names_of_their_own_in_their_partition(tmp_path: Path):
    place = Place(tmp_path / "a table%")
    stage = staged(place, 0, 7, "day=1/part-0.parquet", "_SUCCESS", "_temporary/0/part-1", ".part-0.crc", "part-2")
    lines = await stage.publish()
    assert sorted(place.key_of(item.path) for item in lines) == sorted(
        [f"day=1/{stage.attempt}-part-0.parquet", f"{stage.attempt}-part-2"]
    )
    assert all((tmp_path / "a table%" / place.key_of(item.path)).read_bytes() == b"rows" for item in lines)
    assert all("%25" in item.path for item in lines)


async def test_what_a_dead_attempt_left_goes_once_its_range_is_held(tmp_path: Path):
    place = Place(tmp_path)
    dead, other, later, mine = (
        staged(place, *span, "day=1/part-0.parquet") for span in ((0, 3), (0, 3), (4, 9), (0, 3))
    )
    published = [await stage.publish() for stage in (dead, other, later, mine)]
    state = file_log.LogState(0, published[3], {("B", "files"): Mark.of(commit(0, 3), mine.attempt)})
    await mine.clean(state)
    names = {path.name for path in (tmp_path / "day=1").iterdir()}
    assert names == {f"{stage.attempt}-part-0.parquet" for stage in (mine, later)}
    assert [path.name for path in next((tmp_path / "_staging").iterdir()).iterdir()] == [later.attempt]


async def test_a_table_on_s3_is_staged_committed_and_cleaned_there(s3_server: str):
    """All but Spark's own writing, for which Hadoop's client is needed."""
    url = s3_server.format(name=secrets.token_hex(8))
    place = Place(url)
    table, store = FileTable(url), place.store()
    for number in range(11):
        what = commit(number, number)
        table_log = FileLog(store, place.spark_url)
        dead, stage = (Stage(place, table_log.retrying, what) for _ in range(2))
        for one in (dead, stage):
            await store.put(f"{one.key}/day=a%3A b/part-0.parquet", b"rows")
        await dead.publish()
        state = await table._commit(table_log, what, stage.attempt, await stage.publish())
        await stage.clean(state)
    found = await asyncio.to_thread(files, url)
    assert len(found) == 11
    assert all(path.startswith("s3://tests/") and "/day=a%3A b/" in path for path in found)
    keys = [info.key async for info in store.list("")]
    assert sorted(key for key in keys if not key.startswith("_spark_metadata/")) == sorted(
        path.partition("/day=")[1][1:] + path.partition("/day=")[2] for path in found
    )


# Places


@pytest.mark.parametrize(
    ("given", "store", "spark"),
    [
        ("/a/b c", "file:///a/b%20c", "file:///a/b%20c"),
        ("file:///a/b", "file:///a/b", "file:///a/b"),
        ("/a/no-such/../b c/./d", "file:///a/b%20c/d", "file:///a/b%20c/d"),
        ("file:///a/no-such/../b/", "file:///a/b", "file:///a/b"),
        ("s3://bucket/t", "s3://bucket/t", "s3a://bucket/t"),
        ("s3a://bucket/t/", "s3://bucket/t", "s3a://bucket/t"),
        ("gs://bucket/t", "gs://bucket/t", "gs://bucket/t"),
        ("s3://b/t?endpoint=http://h:1", "s3://b/t?endpoint=http%3A%2F%2Fh%3A1", "s3a://b/t"),
    ],
)
def test_a_place_has_a_name_for_the_store_and_one_for_spark(given: str, store: str, spark: str):
    place = Place(given)
    assert (place.store().url, place.spark_url) == (store, spark)
    assert place.key_of(place.spark_url_of("day=a%3A/x y")) == "day=a%3A/x y"


@pytest.mark.parametrize(
    "given",
    [
        "",
        "hdfs://x/y",
        "s3://",
        "memory://x",
        "http://a/b",
        "s3://key:secret@b/t",
        "s3://b/a/../t",
        "file://",
        "file:t",
    ],
)
def test_a_place_that_cannot_be_one_is_refused(given: str):
    with pytest.raises(Invalid):
        Place(given)


def test_a_link_in_front_of_two_dots_leads_where_the_file_system_says(tmp_path: Path):
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away")
    assert Place(tmp_path / "link/../t").local == tmp_path.resolve() / "far/t"
    assert Place(tmp_path / "link/t").local == tmp_path / "link/t"


def test_a_table_on_s3_needs_hadoops_client_and_its_endpoint():
    needs = FileTable("s3://b/t?endpoint=http://h:1&region=r").needs((4, 2))
    assert needs.packages == ("org.apache.hadoop:hadoop-aws:3.5.0",)
    assert needs.conf["spark.hadoop.fs.s3a.endpoint"] == "http://h:1"
    assert FileTable("/t").needs((9, 9)).packages == ()
    with pytest.raises(Invalid, match=r"9\.9"):
        FileTable("s3://b/t").needs((9, 9))


@pytest.fixture
def sim() -> SimStore:
    return SimStore()
