"""A file table on a real S3 server is compacted as one in a directory is: each row once, killed at every call.

Files are rewritten by Arrow here; tests/spark/test_ingest_s3a.py has it done by Spark and Hadoop's connector.
"""

from __future__ import annotations

import io
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.objects.background import background
from tenure.objects.cloud_store import CloudStore
from tenure.spark.sinks.files.compaction import FileCompaction
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.stage import Stage
from tenure.spark.sinks.files.table import FileTable, files
from tenure.spark.sinks.places import Place

CALLS = ("put_new", "copy", "delete")
FILE_BYTES_MAX = 1 << 20


class Died(BaseException):
    """The driver is gone: nothing after it runs."""


class Table:
    """A table on S3 whose files are written and read through the store."""

    def __init__(self, url: str) -> None:
        self.url, self.place, self.numbers = url, Place(url), itertools.count()
        self.store = self.place.store()

    def put(self, key: str, rows: pa.Table) -> None:
        data = io.BytesIO()
        pq.write_table(rows, data)
        background().run(self.store.put(key, data.getvalue()))

    def get(self, key: str) -> pa.Table:
        return pq.read_table(io.BytesIO(background().run(self.store.get(key, limit_bytes=FILE_BYTES_MAX))))

    def write(self, number: int) -> None:
        """Commit one range of a small file, as FileTable does after Spark's write."""
        log, commit = FileLog(self.store, self.place.spark_url), Commit("B", "files", number, number, 1)
        stage = Stage(self.place, log.retrying, commit)
        self.put(f"{stage.key}/day=1/part-0.parquet", pa.table({"id": [number]}))
        lines = background().run(stage.publish())
        state = background().run(FileTable(self.url)._commit(log, commit, stage.attempt, lines))
        background().run(stage.clean(state))

    def compacted(self) -> tuple[int, int]:
        return FileCompaction(self.place, self, file_bytes=FILE_BYTES_MAX, files_min=4, keep_ms=0).run()

    def rewrite(self, paths: Sequence[str], folder: str) -> None:
        rows = pa.concat_tables(self.get(self.place.key_of(path)) for path in paths)
        self.put(f"{self.place.key_of(folder)}/part-{next(self.numbers)}.parquet", rows)

    def count(self, paths: Sequence[str]) -> int:
        return sum(self.get(self.place.key_of(path)).num_rows for path in paths)

    def named(self) -> list[str]:
        """The keys of the committed files."""
        base = self.place.url.partition("?")[0]
        return [path.removeprefix(f"{base}/") for path in files(self.url)]

    def ids(self) -> list[int]:
        return sorted(number for key in self.named() for number in self.get(key)["id"].to_pylist())

    def stored(self) -> list[str]:
        """Every data file below the table, also those that nothing names."""

        async def listed() -> list[str]:
            return [info.key async for info in self.store.list("") if info.key.endswith(".parquet")]

        return background().run(listed())


@pytest.fixture
def table(s3_server: str) -> Callable[[], Table]:
    return lambda: Table(s3_server.format(name=f"compaction-{secrets.token_hex(4)}"))


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, behind: bool) -> Iterator[list[int]]:
    """Let the process die at its call number ``at`` that changes the store, before it or after it."""
    made = [0]

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        async def changed(self: CloudStore, *arguments: Any) -> None:
            made[0] += 1
            if made[0] == at and not behind:
                raise Died
            await call(self, *arguments)
            if made[0] == at:
                raise Died

        return changed

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(CloudStore, name, wrapped(getattr(CloudStore, name)))
        yield made


def test_small_files_on_s3_become_one_and_the_old_ones_go(table: Callable[[], Table]):
    one = table()
    for number in range(6):
        one.write(number)
    assert one.compacted() == (6, 1)
    assert one.ids() == list(range(6))
    assert one.stored() == one.named()
    one.write(6)
    assert one.ids() == list(range(7))
    assert one.compacted() == (0, 0)


@pytest.mark.full
@pytest.mark.parametrize("behind", [False, True], ids=["before", "after"])
def test_a_compaction_on_s3_that_dies_at_any_call_loses_and_repeats_no_row(
    table: Callable[[], Table], monkeypatch: pytest.MonkeyPatch, behind: bool
):
    for at in range(1, 100):
        one = table()
        for number in range(5):
            one.write(number)
        with dying(monkeypatch, at, behind=behind) as made, suppress(Died):
            one.compacted()
        assert one.ids() == list(range(5)), at
        for number in range(5, 10):  # so that there is something to compact in any case
            one.write(number)
        one.compacted()
        assert one.ids() == list(range(10)), at
        assert sorted(one.stored()) == sorted(one.named()), at
        if made[0] < at:
            assert at > 8
            return
    raise AssertionError("a compaction makes fewer calls")
