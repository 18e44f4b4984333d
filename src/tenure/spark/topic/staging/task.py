"""The task of a writer: put its rows into files of the staging directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tenure.spark.topic.options import WriteOptions
from tenure.spark.topic.rows import record_texts
from tenure.spark.topic.staging.chunks import split_chunks, write_chunks
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STAGED_COLUMNS", "parse_file", "stage", "stage_arrow"]

STAGED_COLUMNS = "file STRING"
_decode = msgspec.json.Decoder(StagedFile).decode


def stage(batches: Iterator[pa.RecordBatch], options: WriteOptions, writer: str) -> Iterator[StagedFile]:
    """Stage a task's rows, holding one file at once. Raises Invalid (``bad_payload``, ``record_too_large``)."""
    staging = Staging(options.staging)
    texts = (text for batch in batches for text in record_texts(batch, record_bytes_max=options.record_bytes_max))
    chunks = split_chunks(texts, rows_max=options.chunk_rows, bytes_max=options.chunk_bytes)
    return write_chunks(chunks, lambda data: staging.put(writer, data), file_bytes=options.file_bytes)


def stage_arrow(batches: Iterator[pa.RecordBatch], *, options: WriteOptions, writer: str) -> Iterator[pa.RecordBatch]:
    """Stage a task's rows for ``mapInArrow``: it yields a row per file."""
    import pyarrow as pa

    for file in stage(batches, options, writer):
        yield pa.RecordBatch.from_pydict({"file": pa.array([msgspec.json.encode(file).decode()], pa.string())})


def parse_file(text: str) -> StagedFile:
    """Parse a file in a row of `stage_arrow`."""
    return _decode(text)
