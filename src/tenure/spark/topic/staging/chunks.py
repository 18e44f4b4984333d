"""Chunks: the rows of one task in staged files, back to back, each readable alone.

A chunk is what one append takes. The task decides its size, which then stands in the record with its place and its
checksum; so the driver reads one chunk at a time, and every attempt appends the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from crc32c import crc32c

from tenure.client.plan.encode import RecordText
from tenure.errors import Corrupt
from tenure.spark.topic.staging.record import Chunk, StagedFile

__all__ = ["decode_chunk", "encode_chunk", "split_chunks", "write_chunks"]

_COLUMN = "record"


def split_chunks(texts: Iterable[RecordText], *, rows_max: int, bytes_max: int) -> Iterator[list[RecordText]]:
    """Yield lists of at most so many records and bytes; a longer record goes alone."""
    chunk: list[RecordText] = []
    size_bytes = 0
    for text in texts:
        if chunk and (len(chunk) == rows_max or size_bytes + len(text) > bytes_max):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(text)
        size_bytes += len(text)
    if chunk:
        yield chunk


def write_chunks(
    chunks: Iterable[list[RecordText]], put: Callable[[bytes], str], *, file_bytes: int
) -> Iterator[StagedFile]:
    """Write chunks to files of about ``file_bytes``; ``put`` stores one and returns its key."""
    held, places = bytearray(), list[Chunk]()
    for texts in chunks:
        data = encode_chunk(texts)
        places.append(Chunk(len(held), len(data), len(texts), crc32c(data)))
        held += data
        if len(held) >= file_bytes:
            yield StagedFile(put(bytes(held)), tuple(places))
            held, places = bytearray(), []
    if places:
        yield StagedFile(put(bytes(held)), tuple(places))


def encode_chunk(texts: list[RecordText]) -> bytes:
    """Return the bytes of a chunk as it is staged."""
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({_COLUMN: pa.array(texts, pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_chunk(data: bytes, chunk: Chunk, key: str) -> list[RecordText]:
    """Return the records of a chunk. Raises Corrupt (``staged_damaged``) where it is not what was staged."""
    import pyarrow as pa

    if len(data) != chunk.bytes or crc32c(data) != chunk.crc32c:
        raise Corrupt(f"{key} in the staging directory is damaged at byte {chunk.offset}", code="staged_damaged")
    with pa.ipc.open_stream(data) as reader:
        return [RecordText(text) for text in reader.read_all().column(_COLUMN).to_pylist()]
