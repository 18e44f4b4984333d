"""Small files of a file table become large ones, each row once: killed at every call, overtaken, beside writers.

Files are rewritten by Arrow here, so that no Spark is needed; tests/spark/test_file_table.py has it done by Spark.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Corrupt, Invalid, Overloaded
from tenure.objects.background import background
from tenure.objects.file_store import FileStore
from tenure.spark.jobs import compact_table as table_compaction
from tenure.spark.jobs.compact_table import CompactedTable, compact_table
from tenure.spark.sinks.files.compaction import FileCompaction, choose_files
from tenure.spark.sinks.files.lines import file_line
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.stage import Stage
from tenure.spark.sinks.files.table import FileTable, files
from tenure.spark.sinks.places import Place

NUMBERS = itertools.count()


class Died(BaseException):
    """The driver is gone: nothing after it runs."""


class Arrow:
    """Rewrites files without Spark."""

    def rewrite(self, paths: Sequence[str], folder: str) -> None:
        target = Path(folder.removeprefix("file://"))
        target.mkdir(parents=True, exist_ok=True)
        rows = pa.concat_tables(pq.read_table(path.removeprefix("file://")) for path in paths)
        pq.write_table(rows, target / f"part-{next(NUMBERS)}.parquet")

    def count(self, paths: Sequence[str]) -> int:
        return sum(pq.read_metadata(path.removeprefix("file://")).num_rows for path in paths)


def write(home: Path, number: int, *, clean: bool = True) -> None:
    """Commit one range of two small files in two partitions, as FileTable does after Spark's write.

    Without ``clean`` its driver dies right after the commit.
    """
    place = Place(home)
    log, commit = FileLog(place.store(), place.spark_url), Commit("B", "files", number, number, 1)
    stage = Stage(place, log.retrying, commit)
    for day in (0, 1):
        folder = home / stage.key / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [2 * number + day]}), folder / "part-0.parquet")
    lines = background().run(stage.publish())
    state = background().run(FileTable(home)._commit(log, commit, stage.attempt, lines))
    if clean:
        background().run(stage.clean(state))


def compacted(home: Path, *, keep_ms: int = 0) -> tuple[int, int]:
    return FileCompaction(Place(home), Arrow(), file_bytes=1 << 20, files_min=4, keep_ms=keep_ms).run()


def ids(home: Path) -> list[int]:
    return sorted(number for path in files(home) for number in pq.ParquetFile(path).read()["id"].to_pylist())


def stored(home: Path) -> set[str]:
    """Every data file of the table, also those that nothing names."""
    return {str(path) for path in home.rglob("*.parquet")}


def test_small_files_of_a_partition_become_one_and_the_old_ones_go(tmp_path: Path):
    for number in range(6):
        write(tmp_path, number)
    assert compacted(tmp_path) == (12, 2)
    assert ids(tmp_path) == list(range(12))
    assert stored(tmp_path) == set(files(tmp_path))
    assert sorted(Path(path).parent.name for path in files(tmp_path)) == ["day=0", "day=1"]
    assert compacted(tmp_path) == (0, 0)
    assert not list((tmp_path / "_replaced").iterdir())


def test_a_table_goes_on_behind_its_marks_after_a_compaction(tmp_path: Path):
    for number in range(25):
        write(tmp_path, number)
        if number % 7 == 6:
            compacted(tmp_path)
    assert background().run(FileTable(tmp_path)._log().read()).last_committed("B", "files") == 24
    assert ids(tmp_path) == list(range(50))
    assert len(files(tmp_path)) < 30


def test_replaced_files_stay_for_readers_that_know_them(tmp_path: Path):
    for number in range(6):
        write(tmp_path, number)
    before = set(files(tmp_path))
    compacted(tmp_path, keep_ms=3_600_000)
    assert before < stored(tmp_path)
    compacted(tmp_path, keep_ms=3_600_000)
    assert before < stored(tmp_path)
    compacted(tmp_path)
    assert stored(tmp_path) == set(files(tmp_path))


def test_replaced_files_stay_also_where_their_driver_died_before_it_cleaned_up(tmp_path: Path):
    for number in range(6):
        write(tmp_path, number, clean=number != 5)
    before = set(files(tmp_path))
    assert compacted(tmp_path, keep_ms=3_600_000) == (12, 2)
    write(tmp_path, 6)  # removes what the dead driver left staged
    assert before < stored(tmp_path)
    assert not list((tmp_path / "_staging").rglob("*.parquet"))
    compacted(tmp_path)
    assert stored(tmp_path) == set(files(tmp_path))
    assert ids(tmp_path) == list(range(14))


def test_the_record_of_an_attempt_that_died_removes_nothing_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(6):
        write(tmp_path, number)
    before = set(files(tmp_path))
    with dying(monkeypatch, 3, behind=True), suppress(Died):  # after its record, before its commit
        compacted(tmp_path)
    (record,) = (tmp_path / "_replaced").iterdir()
    os.utime(record, (0, 0))
    assert compacted(tmp_path, keep_ms=3_600_000) == (12, 2)
    assert before < stored(tmp_path)
    compacted(tmp_path)
    assert stored(tmp_path) == set(files(tmp_path))


CALLS = ("put_new", "copy", "delete")


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, behind: bool) -> Iterator[list[int]]:
    """Let the process die at its call number ``at`` that changes the store, before it or after it."""
    made = [0]

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        async def changed(self: FileStore, *arguments: Any) -> None:
            made[0] += 1
            if made[0] == at and not behind:
                raise Died
            await call(self, *arguments)
            if made[0] == at:
                raise Died

        return changed

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(FileStore, name, wrapped(getattr(FileStore, name)))
        yield made


@pytest.mark.full
@pytest.mark.parametrize("behind", [pytest.param(False, marks=pytest.mark.full), True], ids=["before", "after"])
def test_a_compaction_that_dies_at_any_call_loses_and_repeats_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
):
    for at in range(1, 100):
        home = tmp_path / str(at)
        for number in range(5):
            write(home, number)
        with dying(monkeypatch, at, behind=behind) as made, suppress(Died):
            compacted(home)
        assert ids(home) == list(range(10)), at
        for number in range(5, 10):  # so that there is something to compact in any case
            write(home, number)
        compacted(home)
        assert ids(home) == list(range(20)), at
        assert stored(home) == set(files(home)), at
        if made[0] < at:
            assert at > 10
            return
    raise AssertionError("a compaction makes fewer calls")


def test_a_compaction_that_was_overtaken_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(6):
        write(tmp_path, number)

    class Slow(Arrow):
        def count(self, paths: Sequence[str]) -> int:
            if len(overtaken) == 0:
                overtaken.append(compacted(tmp_path, keep_ms=3_600_000))
                write(tmp_path, 6)
            return super().count(paths)

    overtaken = list[tuple[int, int]]()
    slow = FileCompaction(Place(tmp_path), Slow(), file_bytes=1 << 20, files_min=4, keep_ms=3_600_000)
    assert slow.run() == (0, 0)
    assert overtaken == [(12, 2)]
    assert ids(tmp_path) == list(range(14))
    compacted(tmp_path)
    assert stored(tmp_path) == set(files(tmp_path))


def test_a_writer_beside_a_compaction_loses_nothing(tmp_path: Path):
    for number in range(6):
        write(tmp_path, number)

    class Beside(Arrow):
        def count(self, paths: Sequence[str]) -> int:
            write(tmp_path, next(more))
            return super().count(paths)

    more = itertools.count(6)
    assert FileCompaction(Place(tmp_path), Beside(), file_bytes=1 << 20, files_min=4).run() == (12, 2)
    assert ids(tmp_path) == list(range(16))


def test_rows_that_a_rewrite_would_lose_stay(tmp_path: Path):
    for number in range(6):
        write(tmp_path, number)

    class Lossy(Arrow):
        def rewrite(self, paths: Sequence[str], folder: str) -> None:
            super().rewrite(paths[1:], folder)

    with pytest.raises(Corrupt) as caught:
        FileCompaction(Place(tmp_path), Lossy(), file_bytes=1 << 20, files_min=4).run()
    assert caught.value.code == "table_file_damaged"
    assert ids(tmp_path) == list(range(12))
    assert stored(tmp_path) == set(files(tmp_path))


def test_a_compaction_that_has_no_room_is_refused_for_now_and_the_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(6):
        write(tmp_path, number)

    def no_room(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(table_compaction, "_SparkRewriter", lambda _: Arrow())
    spark: Any = None
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        with pytest.raises(Overloaded, match="the files were not compacted, as the disk under the table") as caught:
            compact_table(spark, tmp_path, files_min=4)
    assert caught.value.code == "disk_full"
    assert ids(tmp_path) == list(range(12))
    assert compact_table(spark, tmp_path, files_min=4, keep_ms=0) == CompactedTable(12, 2)
    assert ids(tmp_path) == list(range(12))


def test_files_are_rewritten_with_those_of_their_folder_and_size(tmp_path: Path):
    place = Place(tmp_path)

    def line(name: str, size: int) -> Any:
        return file_line(place.spark_url_of(name), size_bytes=size, modified_ms=0)

    small = [line(f"a/{number}", 100 + number) for number in range(4)]
    others = [line("b/0", 100), line("a/big", 600), line("a/tiny", 20), line("a/whole", 5_000)]
    assert choose_files(place, [*small, *others], file_bytes=1_000, files_min=4) == [("a", tuple(small))]
    assert choose_files(place, small, file_bytes=1_000, files_min=5) == []
    halves = [line(f"a/{number}", 300) for number in range(5)]  # half of a file is worth it, for any number of them
    assert [len(one.lines) for one in choose_files(place, halves, file_bytes=1_000, files_min=8)] == [3, 2]
    with pytest.raises(Invalid):
        FileCompaction(place, Arrow(), file_bytes=0)
