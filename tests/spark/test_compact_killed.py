"""`tenure compact` as a process that is killed, before its first range is in the table and after it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tenure.buffer import BufferSettings, Producer
from tenure.spark.jobs.compact_buffer import CompactTable
from tenure.spark.sinks.files.table import files
from tests.spark.command import running

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_200)]

ENTRIES, ENTRY_BYTES = 1_500, 100_000  # more than two ranges of files of a MiB


async def fill(url: str) -> list[str]:
    """A buffer of some 75 batches; returns what each entry's bytes hash to, in order."""
    dice, hashes = random.Random(17), []
    async with Producer(url, settings=BufferSettings(flush_bytes=2_000_000, flush_interval_ms=1_000)) as producer:
        for _ in range(ENTRIES):
            entry = dice.randbytes(ENTRY_BYTES)
            hashes.append(hashlib.sha256(entry).hexdigest())
            await producer.produce([entry])
    return hashes


def test_a_killed_run_is_made_good_by_the_next_with_each_entry_once(tmp_path: Path) -> None:
    buffer, home = tmp_path / "buffer", tmp_path / "table"
    hashes = asyncio.run(fill(buffer.as_uri()))
    table = CompactTable(buffer.as_uri(), home, file_bytes=1 << 20)
    command = ("compact", buffer, home, "--json", "--file-mib", "1")
    with running(*command) as child:
        child.until(lambda: any(home.rglob("*.parquet")))
    assert not table.sizes(), "it was killed while it wrote its first range"
    with running(*command) as child:
        child.until(lambda: bool(table.sizes()))
    committed = len(table.sizes())
    with running(*command) as child:
        code, out, err = child.ended()
    assert code == 0, err
    made = json.loads(out)
    assert made["low"] > 0, "it went on behind what was committed"
    assert made["files"] + committed == len(table.sizes())
    rows = pa.concat_tables(pq.read_table(path, columns=["seq", "index", "entry"]) for path in files(home))
    rows = rows.sort_by([("seq", "ascending"), ("index", "ascending")])
    assert [hashlib.sha256(entry.as_buffer()).hexdigest() for entry in rows.column("entry")] == hashes
    assert len(list(home.rglob("*.parquet"))) == len(table.sizes()), "nothing is left of the runs that died"


def test_the_small_files_of_a_table_become_few_by_a_command(tmp_path: Path) -> None:
    buffer, home = tmp_path / "buffer", tmp_path / "table"
    hashes = asyncio.run(fill(buffer.as_uri()))
    with running("compact", buffer, home, "--json", "--file-mib", "1") as child:
        assert child.ended()[0] == 0
    small = len(files(home))
    with running("spark", "compact", home, "--json") as child:
        code, out, err = child.ended()
    assert code == 0, err
    made = json.loads(out)
    assert made["files_before"] == small
    assert made["files_after"] == len(files(home)) < small
    rows = pa.concat_tables(pq.read_table(path, columns=["entry"]) for path in files(home))
    found = sorted(hashlib.sha256(entry.as_buffer()).hexdigest() for entry in rows.column("entry"))
    assert found == sorted(hashes)
    with running("spark", "compact", home) as child:
        assert child.ended()[0] == 4, "there is nothing to do any more"
