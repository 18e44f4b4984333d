"""From rows to records to chunks, without Spark."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from tenure.client.plan.encode import RecordText
from tenure.errors import Corrupt, Invalid
from tenure.spark.topic.rows import check_columns, record_texts
from tenure.spark.topic.staging.chunks import decode_chunk, encode_chunk, split_chunks, write_chunks
from tenure.spark.topic.staging.record import (
    Batch,
    Chunk,
    StagedFile,
    client_seq,
    dump_record,
    load_record,
    make_record,
    parse_client_seq,
    writer_id,
)


def texts(**columns: Any) -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns)
    return [json.loads(text) for text in record_texts(batch, record_bytes_max=1_000)]


def test_a_row_becomes_a_record_and_its_payload_stays_as_it_is():
    batch = pa.RecordBatch.from_pydict({"payload": [b'{ "b":1, "a": 1e400}', b"null"]})
    assert list(record_texts(batch, record_bytes_max=100)) == [b'{"data":{ "b":1, "a": 1e400}}', b'{"data":null}']


def test_columns_that_are_null_are_left_out():
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = texts(
        payload=["1", "2"],
        tag=["x", None],
        node=[None, "n"],
        meta=['{"k":1}', None],
        delay_ms=[None, 5],
        deliver_at=pa.array([at, None], pa.timestamp("us", tz="UTC")),
    )
    assert rows == [
        {"data": 1, "tag": "x", "meta": {"k": 1}, "deliver_at": int(at.timestamp()) * 1_000},
        {"data": 2, "node": "n", "delay_ms": 5},
    ]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"payload": ["hello"]}, "bad_payload"),
        ({"payload": ["1 2"]}, "bad_payload"),
        ({"payload": ["1"], "meta": ['{"$dead_letter_from": "q"}']}, "bad_payload"),
        ({"payload": [b'"\xff"']}, "bad_payload"),
        ({"payload": pa.array([None], pa.string())}, "bad_payload"),
        ({"payload": ["[" * 600 + "]" * 600]}, "record_too_large"),
        ({"payload": ["[" * 499 + "]" * 499 + "x"]}, "bad_payload"),
        ({"payload": ["1"], "meta": ["[1]"]}, "bad_payload"),
        ({"payload": ["1"], "tag": ["t" * 300]}, "bad_payload"),
        ({"payload": ["1"], "node": [""]}, "bad_payload"),
        ({"payload": ["1"], "delay_ms": [-1]}, "bad_payload"),
        ({"payload": ['"' + "x" * 1_000 + '"']}, "record_too_large"),
    ],
)
def test_what_a_server_would_refuse_is_refused_by_the_task(columns: dict[str, Any], code: str):
    with pytest.raises(Invalid) as refused:
        texts(**columns)
    assert refused.value.code == code


def test_nesting_is_counted_outside_of_strings():
    deep = "[" * 600 + "]" * 600
    batch = pa.RecordBatch.from_pydict({"payload": [json.dumps(deep)]})
    assert len(list(record_texts(batch, record_bytes_max=10_000))) == 1
    with pytest.raises(Invalid, match="nested"):
        list(record_texts(pa.RecordBatch.from_pydict({"payload": [deep]}), record_bytes_max=10_000))


@pytest.mark.parametrize(
    ("columns", "topic_type"),
    [
        ([("entry", "binary")], "log"),
        ([("payload", "bigint")], "log"),
        ([("payload", "string"), ("seq", "bigint")], "log"),
        ([("payload", "string"), ("tag", "int")], "log"),
        ([("payload", "string"), ("delay_ms", "int")], "log"),
    ],
)
def test_columns_that_a_topic_cannot_take_are_refused(columns: list[tuple[str, str]], topic_type: str):
    with pytest.raises(Invalid) as refused:
        check_columns(columns, topic_type=topic_type)
    assert refused.value.code == "bad_columns"


def test_a_queue_takes_delays():
    check_columns([("payload", "binary"), ("delay_ms", "bigint"), ("deliver_at", "timestamp")], topic_type="queue")


def test_chunks_keep_to_rows_and_bytes_and_a_long_record_goes_alone():
    records = [RecordText(b"x" * size) for size in (3, 3, 3, 3, 50, 3, 3)]
    found = [[len(text) for text in chunk] for chunk in split_chunks(records, rows_max=3, bytes_max=10)]
    assert found == [[3, 3, 3], [3], [50], [3, 3]]


def test_every_chunk_of_a_file_can_be_read_alone():
    stored: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        stored[f"f{len(stored)}"] = data
        return f"f{len(stored) - 1}"

    chunks = [[RecordText(b"%d-%d" % (n, m)) for m in range(100)] for n in range(10)]
    files = list(write_chunks(chunks, put, file_bytes=2_000))
    assert len(files) > 1
    read = [
        decode_chunk(stored[file.key][chunk.offset : chunk.offset + chunk.bytes], chunk, file.key)
        for file in files
        for chunk in file.chunks
    ]
    assert read == chunks
    assert sum(file.rows for file in files) == 1_000


def test_a_damaged_chunk_is_refused():
    data = encode_chunk([RecordText(b"{}")])
    flipped = bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(Corrupt, match="damaged"):
        decode_chunk(flipped, Chunk(0, len(data), 1, 0), "key")


def test_numbers_rise_over_chunks_and_batches():
    numbers = [client_seq(Batch("w", batch, "t"), chunk) for batch in (0, 1, 7) for chunk in (0, 1, (1 << 24) - 1)]
    assert numbers == sorted(set(numbers))
    assert [parse_client_seq(number) for number in numbers][-2:] == [(7, 1), (7, (1 << 24) - 1)]
    assert client_seq(Batch("w", (1 << 39) - 1, "t"), (1 << 24) - 1) < 1 << 63
    with pytest.raises(Invalid):
        make_record(Batch("w", 1 << 39, "t"), [])


def test_a_record_comes_back_as_it_was():
    files = [StagedFile("a", (Chunk(0, 10, 2, 3), Chunk(10, 5, 1, 4))), StagedFile("b", (Chunk(0, 1, 1, 5),))]
    record = make_record(Batch("w", 3, "t"), files)
    assert load_record(dump_record(record), "k") == record
    assert [(number, file.key) for number, file, _ in record.chunks()] == [(0, "a"), (1, "a"), (2, "b")]
    assert record.rows == 4


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"batch":{"writer":"w","number":0,"topic":"t"}}'])
def test_what_is_no_record_is_refused(data: bytes):
    with pytest.raises(Corrupt):
        load_record(data, "k")


def test_a_record_of_a_newer_format_is_refused():
    record = make_record(Batch("w", 3, "t"), [])
    with pytest.raises(Corrupt) as refused:
        load_record(dump_record(record).replace(b'"format":1', b'"format":2'), "k")
    assert refused.value.code == "format_too_new"


def test_identities_differ_where_their_parts_do():
    assert writer_id("a", "bc") == writer_id("a", "bc")
    assert len({writer_id("a", "bc"), writer_id("ab", "c"), writer_id("a", "bd")}) == 3
