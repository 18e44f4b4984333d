"""What the driver reads of a batch before a task does, and how a batch becomes Arrow; no Spark is needed for either."""

from __future__ import annotations

import asyncio

import pytest

from tenure.buffer import Batch, Descriptor, FetchHandle, Producer, entries
from tenure.errors import Corrupt, Invalid
from tenure.spark.reader.columns import RAW, arrow_schema, to_arrow
from tenure.spark.reader.footers import read_footers
from tenure.spark.reader.jvm import jvm_root
from tenure.spark.reader.settings import ReaderSettings
from tenure.testing.simstore import SimStore
from tests.kit.buffers import quick

SETTINGS = ReaderSettings(buffer=quick(), tail_bytes=4_096)


async def filled(store: SimStore, *batches: list[tuple[list[bytes], bytes]]) -> list[Descriptor]:
    async with Producer(store, settings=quick(flush_interval_ms=60_000)) as producer:
        for calls in batches:
            for given, metadata in calls:
                await producer.produce(given, metadata)
            await producer.flush()
    return [descriptor async for descriptor in entries(store, settings=quick())]


@pytest.fixture
def store() -> SimStore:
    return SimStore()


@pytest.fixture
def batches(store: SimStore) -> list[Descriptor]:
    return asyncio.run(filled(store, [([b"a", b"b"], b"first"), ([b"c"], b"")], [([b""], b"\x00" * 9_000)]))


def test_footers_tell_of_each_call_and_cost_a_request_or_two(store: SimStore, batches: list[Descriptor]):
    before = len(store.calls)
    ranges = read_footers(store, batches, settings=SETTINGS)
    assert [[(call.start, call.metadata) for call in calls] for calls in ranges] == [
        [(0, b"first"), (2, b"")],
        [(0, b"\x00" * 9_000)],
    ]
    assert [call.kind for call in store.calls[before:]] == ["get"] * 3


def test_a_footer_is_as_good_as_the_batch(store: SimStore, batches: list[Descriptor]):
    handle = FetchHandle(store, settings=quick())
    assert read_footers(store, batches, settings=SETTINGS) == [handle.fetch_blocking(each).ranges for each in batches]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: None, "batch_missing"),
        (lambda data: data[:-1], "batch_truncated"),
        (lambda data: data[:-1] + b"X", "batch_damaged"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:], "batch_damaged"),
        (lambda data: data[:-60] + b"\xff" * 40 + data[-20:], "batch_damaged"),
    ],
    ids=["gone", "cut off", "another ending", "a length that lies", "thrift that is none"],
)
def test_a_bad_footer_names_its_batch(store: SimStore, batches: list[Descriptor], change: object, code: str):
    key = batches[1].location
    data, at = store.objects.pop(key)
    if (changed := change(data)) is not None:  # type: ignore[operator]
        store.objects[key] = (changed, at)
    with pytest.raises(Corrupt, match="batch 1 ") as caught:
        read_footers(store, batches, settings=SETTINGS)
    assert caught.value.code == code


def test_another_batch_under_the_name_is_found_out(store: SimStore, batches: list[Descriptor]):
    other = asyncio.run(filled(SimStore(), [([b"a", b"b"], b"first"), ([b"c"], b"")]))[0]
    with pytest.raises(Corrupt) as caught:
        read_footers(store, [_as(batches[0], buffer_id=other.buffer_id)], settings=SETTINGS)
    assert caught.value.code == "foreign_batch"
    with pytest.raises(Corrupt) as caught:
        read_footers(store, [_as(batches[0], entries=4)], settings=SETTINGS)
    assert caught.value.code == "foreign_batch"


def _as(descriptor: Descriptor, **changes: object) -> Descriptor:
    import msgspec

    return msgspec.structs.replace(descriptor, **changes)


def test_calls_beyond_the_limit_are_refused_before_they_are_read(store: SimStore, batches: list[Descriptor]):
    small = ReaderSettings(buffer=quick(), tail_bytes=64, calls_bytes_max=2_000)
    before = len(store.calls)
    with pytest.raises(Invalid) as caught:
        read_footers(store, batches[1:], settings=small)
    assert caught.value.code == "calls_too_large"
    assert len(store.calls) == before + 1


def test_a_batch_that_would_inflate_beyond_the_limit_is_refused(store: SimStore):
    found = asyncio.run(filled(store, [([b"x" * 100_000], b"")]))
    with pytest.raises(Corrupt) as caught:
        read_footers(store, found, settings=ReaderSettings(buffer=quick(decoded_bytes_max=50_000)))
    assert caught.value.code == "batch_too_large"


def test_settings_below_one_are_refused():
    with pytest.raises(Invalid, match="rows_max"):
        ReaderSettings(rows_max=0)


# Arrow


def fetched(store: SimStore, descriptor: Descriptor) -> Batch:
    return FetchHandle(store, settings=quick()).fetch_blocking(descriptor)


def test_rows_become_arrow_with_their_calls_time_and_metadata(store: SimStore, batches: list[Descriptor]):
    batch = fetched(store, batches[0])
    (rows,) = to_arrow(batch)
    assert rows.schema == arrow_schema()
    assert tuple(rows.schema.names) == RAW
    told = rows.to_pylist()
    assert [(row["seq"], row["index"], row["metadata"], row["entry"]) for row in told] == [
        (0, 0, b"first", b"a"),
        (0, 1, b"first", b"b"),
        (0, 2, b"", b"c"),
    ]
    assert [round(row["ingestion_time"].timestamp() * 1000) for row in told] == [
        batch.range_of(index).ingested_ms for index in range(3)
    ]


def test_arrow_comes_in_slices_of_so_many_rows_and_bytes(store: SimStore):
    (found,) = asyncio.run(
        filled(store, [([b"%d" % number for number in range(1_000)], b"m" * 500), ([b"x" * 9_000, b"y"], b"")])
    )
    batch = fetched(store, found)
    slices = list(to_arrow(batch, rows_max=300, bytes_max=100_000))
    assert [index for rows in slices for index in rows.column("index").to_pylist()] == list(range(1_002))
    assert b"".join(entry for rows in slices for entry in rows.column("entry").to_pylist()) == b"".join(batch.entries)
    assert max(len(rows) for rows in slices) <= 300
    sizes = [sum(len(row["metadata"]) + len(row["entry"]) for row in rows.to_pylist()) for rows in slices]
    assert 80_000 < max(sizes) <= 100_000
    alone = list(to_arrow(batch, bytes_max=1))
    assert {len(rows) for rows in alone} == {1}


def test_columns_that_nobody_asked_for_are_neither_made_nor_counted(store: SimStore):
    (found,) = asyncio.run(filled(store, [([b"x"] * 1_000, b"m" * 500)]))
    (rows,) = to_arrow(fetched(store, found), schema=arrow_schema(("entry", "index")), bytes_max=100_000)
    assert rows.schema == arrow_schema(("entry", "index"))
    assert rows.to_pylist() == [{"entry": b"x", "index": index} for index in range(1_000)]


def test_a_store_has_the_name_that_hadoop_gives_it():
    assert jvm_root("file:///var/a%20b/c") == "file:///var/a b/c"
    assert jvm_root("s3://bucket/a/b?endpoint=http://127.0.0.1:1") == "s3a://bucket/a/b"
    assert jvm_root("gs://bucket/a") == "gs://bucket/a"
    assert [jvm_root(url) for url in ("az://container/a", "memory://x", "file:///a/%7Bb%7D", "file:///a/%2A")] == [
        None
    ] * 4
