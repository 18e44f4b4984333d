"""A buffer with numbers in it, sinks for them, and an ingest process that kills itself at a given point.

    python -m tests.buffer.ingesting KIND URL TABLE POINT COMMIT

``POINT`` is before, inside or after: relative to the commit of write number ``COMMIT``; none for never.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tenure.buffer import Batch, BufferSettings, Consumer, Producer
from tenure.buffer.ingest.delta import ArrowDeltaSink
from tenure.buffer.ingest.ingest import Ingest, IngestSettings
from tenure.buffer.ingest.sink import Commit, Written
from tenure.buffer.ingest.sqlite import SqliteSink

__all__ = ["SCHEMA", "delta_rows", "delta_sink", "fill", "sqlite_rows", "sqlite_sink", "to_table", "to_tuples"]

SCHEMA = pa.schema([("seq", pa.int64()), ("number", pa.int64())])
INSERT = "insert into numbers (seq, number) values (?, ?)"
CREATE = "create table if not exists numbers (seq integer, number integer)"
FEW = IngestSettings(write_batches_max=3, read_ahead_max=4, backoff_ms=1)


async def fill(url: str, *, batches: int, first: int = 0) -> None:
    """Batches of three numbers each, going up."""
    async with Producer(url, settings=BufferSettings(flush_interval_ms=1)) as producer:
        for number in range(first, first + batches):
            await producer.produce([b"%d" % (3 * number + part) for part in range(3)])
            await producer.flush()


def to_tuples(batch: Batch) -> list[tuple[int, int]]:
    return [(batch.seq, int(entry)) for entry in batch.entries]


def to_table(batch: Batch) -> pa.Table:
    numbers = [int(entry) for entry in batch.entries]
    return pa.table({"seq": [batch.seq] * len(numbers), "number": numbers}, schema=SCHEMA)


def sqlite_sink(path: Path, kind: type[SqliteSink] = SqliteSink) -> SqliteSink:
    return kind(path, insert=INSERT, create=CREATE)


def delta_sink(path: Path, kind: type[ArrowDeltaSink] = ArrowDeltaSink) -> ArrowDeltaSink:
    return kind(path, SCHEMA)


def sqlite_rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [number for (number,) in connection.execute("select number from numbers order by rowid")]
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


def delta_rows(path: Path) -> list[int]:
    from deltalake import DeltaTable

    table = DeltaTable(path).to_pyarrow_table() if DeltaTable.is_deltatable(str(path)) else SCHEMA.empty_table()
    return sorted(table.column("number").to_pylist())


# The process


class _Killing:
    point = ""
    left = 0


def _kill(point: str) -> None:
    if _Killing.point == point and _Killing.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


class KilledSqlite(SqliteSink):
    """Dies before its transaction, with its rows in but the transaction open, or once it is committed."""

    def _write(self, commit: Commit, parts: Sequence[Sequence[tuple[Any, ...]]]) -> Written:
        _Killing.left -= 1
        _kill("before")
        if _Killing.point == "inside" and _Killing.left == 0:
            self._open().create_function("die", 1, lambda _: _kill("inside"))
            self._insert = "insert into numbers (seq, number) select ?, case when ? % 3 = 2 then die(1) else 0 end"
        written = super()._write(commit, parts)
        _kill("after")
        return written


class KilledDelta(ArrowDeltaSink):
    """Dies before it writes, with its data file there but not committed, or once it is committed."""

    def _append(self, table: Any, commit: Commit, parts: Sequence[pa.Table]) -> None:
        _Killing.left -= 1
        _kill("before")
        if _Killing.point == "inside" and _Killing.left == 0:
            import pyarrow.parquet as pq

            pq.write_table(parts[0], Path(self._uri) / "part-00000-of-the-dead.parquet")
            _kill("inside")
        super()._append(table, commit, parts)
        _kill("after")


async def _main(kind: str, url: str, table: str, point: str, at: str) -> None:
    _Killing.point, _Killing.left = point, int(at)
    consumer = await Consumer.open(url)
    if kind == "sqlite":
        await Ingest(consumer, to_tuples, sqlite_sink(Path(table), KilledSqlite), settings=FEW).catch_up()
    else:
        await Ingest(consumer, to_table, delta_sink(Path(table), KilledDelta), settings=FEW).catch_up()
    await consumer.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
