"""What lies in a buffer, read past every consumer: each entry in order, with the batch it came in."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.journal import Journal
from tenure.export.rows import Exported, decode_row

__all__ = ["batches_in", "rows_in"]


async def descriptors_in(url: str) -> list[Descriptor]:
    """Every batch that the manifest names."""
    journal = Journal(url)
    state = await journal.open(create=False)
    found = [each async for each in Catalog(journal).walk(0, state.next_seq)]
    await journal.close()
    return found


async def batches_in(url: str) -> list[Batch]:
    """The same, fetched."""
    handle = FetchHandle(url)
    return [await handle.fetch(each) for each in await descriptors_in(url)]


async def rows_in(url: str) -> list[Exported]:
    """Every row that was exported to a directory, in order, as anything that reads Parquet sees it."""
    home = Path(url.removeprefix("file://"))
    tables = [pq.read_table(home / each.location) for each in await descriptors_in(url)]
    return [decode_row(entry) for table in tables for entry in table.column("entry").to_pylist()]
