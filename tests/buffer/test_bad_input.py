"""What does not belong: each a clear error of its own, nothing lost, and no more memory than the limits say."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tenure.buffer import Consumer, Descriptor, FetchHandle, Finding, Producer, quarantine, verify
from tenure.buffer.batch.format import decode_batch, encode_batch
from tenure.buffer.manifest.format import checksum_of
from tenure.buffer.manifest.keys import delta_key
from tenure.errors import Conflict, Corrupt, Invalid
from tenure.testing.simstore import SimStore
from tests.kit.buffers import QUICK, consumed, produced, quick


async def the_batch(sim: SimStore) -> tuple[str, bytes, Descriptor]:
    async with Consumer(sim, settings=QUICK, group="looking", collect=False) as consumer:
        [descriptor] = await consumer.next_descriptors(1)
    return descriptor.location, sim.objects[descriptor.location][0], descriptor


@pytest.mark.parametrize("entries", [[], [b"a", "b"], ["a"], [bytearray(b"a")], [None], b"abc"])
async def test_entries_are_bytes_and_at_least_one(sim: SimStore, entries: Any):
    async with Producer(sim, settings=QUICK) as producer:
        with pytest.raises(Invalid):
            await producer.produce(entries)
        await (await producer.produce([b""])).durable()
    assert await consumed(sim) == [b""]


async def test_a_call_beyond_the_limits_is_refused(sim: SimStore):
    settings = quick(call_bytes_max=10, call_entries_max=2, metadata_bytes_max=3, inflight_bytes_max=1_000)
    async with Producer(sim, settings=settings) as producer:
        for entries, metadata in (([b"x" * 11], b""), ([b"", b"", b""], b""), ([b"a"], b"1234")):
            with pytest.raises(Invalid):
                await producer.produce(entries, metadata)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[:-1], "batch_truncated"),
        (lambda data: b"", "batch_truncated"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "batch_damaged"),
        (lambda data: data + b"x", "batch_truncated"),
    ],
    ids=["cut", "empty", "flipped", "longer"],
)
async def test_a_damaged_batch_is_a_clear_error_and_skipped_only_on_purpose(sim: SimStore, damage: Any, code: str):
    await produced(sim, [b"a" * 200], [b"b"])
    location, data, _ = await the_batch(sim)
    sim.objects[location] = (damage(data), 0)
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        for _ in range(2):  # the cursor has not moved
            with pytest.raises(Corrupt) as caught:
                await consumer.next_batch()
            assert caught.value.code == code
        assert [(f.kind, f.seq) async for f in verify(sim)] == [("damaged", 0)]
        with pytest.raises(Invalid):
            await consumer.quarantine(1, "not the next one")
        await consumer.quarantine(0, "flipped bits")
        assert (await consumer.next_batch()).entries == [b"b"]  # type: ignore[union-attr]
    [record] = [data for key, (data, _) in sim.objects.items() if key.startswith("quarantine/")]
    assert msgspec.json.decode(record)["reason"] == "flipped bits"
    assert msgspec.json.decode(record)["descriptor"]["location"] == location


async def test_a_batch_that_is_gone_is_a_clear_error_and_an_operator_can_skip_it(sim: SimStore):
    await produced(sim, [b"a"], [b"b"])
    location, _, _ = await the_batch(sim)
    del sim.objects[location]
    consumer = await Consumer.open(sim, settings=QUICK, collect=False)
    with pytest.raises(Corrupt) as caught:
        await consumer.next_batch()
    assert caught.value.code == "batch_missing"
    assert [f.kind async for f in verify(sim, data=False)] == ["missing"]
    await quarantine(sim, 0, reason="lost with its disk", settings=QUICK)
    await consumer.close()
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        assert (await consumer.next_batch()).entries == [b"b"]  # type: ignore[union-attr]


def descriptor_of(data: bytes, entries: int) -> Descriptor:
    return Descriptor(0, "data/x.parquet", len(data), entries, checksum_of(data), "P", 7, 0, 0, "B")


def parquet(table: pa.Table, about: bytes, **options: Any) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([pa.field("entry", pa.binary(), nullable=False), pa.field("range", pa.int32(), nullable=False)])
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False, **options) as writer:
        writer.write_table(table.cast(schema), row_group_size=1_000_000_000)
        writer.add_key_value_metadata({"tenure.batch": about, "tenure.ranges": b'[[0,0,""]]'})
    return sink.getvalue()


GOOD = b'{"format":1,"buffer":"B","producer":"P","ordinal":7}'


def encoded(entries: list[bytes]) -> bytes:
    call = (entries, msgspec.convert([0, 0, ""], type=_range()))
    return bytes(encode_batch([call], buffer_id="B", producer="P", ordinal=7, level=1))


def rows(value: bytes, count: int) -> pa.Table:
    return pa.table({"entry": [value] * count, "range": pa.array([0] * count, pa.int32())})


def test_what_is_no_batch_of_ours_is_told_apart():
    good = encoded([b"a"])
    assert decode_batch(good, descriptor_of(good, 1), QUICK).entries == [b"a"]
    plain = rows(b"a", 1)
    for data, code in (
        (b"not parquet at all", "batch_damaged"),
        (parquet(plain, GOOD.replace(b'"format":1', b'"format":9'), use_dictionary=False), "unknown_format"),
        (parquet(plain, GOOD.replace(b'"B"', b'"C"'), use_dictionary=False), "foreign_batch"),
        (parquet(plain, GOOD.replace(b"7", b"8"), use_dictionary=False), "foreign_batch"),
        (parquet(plain, b"{", use_dictionary=False), "foreign_batch"),
        (parquet(rows(b"a", 2), GOOD, use_dictionary=False), "foreign_batch"),
        (parquet(plain, GOOD, use_dictionary=True), "batch_damaged"),
    ):
        with pytest.raises(Corrupt) as caught:
            decode_batch(data, descriptor_of(data, 1), QUICK)
        assert caught.value.code == code


def _range() -> Any:
    from tenure.buffer import Range

    return Range


def test_a_zip_bomb_is_refused_before_it_is_inflated():
    """A little zstd that would be 64 MB, and a dictionary that would be more: memory stays flat."""
    settings = quick(decoded_bytes_max=16 << 20)
    bomb = parquet(rows(bytes(1 << 20), 64), GOOD, use_dictionary=False)
    dictionary = parquet(rows(bytes(1 << 20), 64), GOOD, use_dictionary=True)
    assert len(bomb) < 1 << 20
    pool = pa.default_memory_pool()
    tracemalloc.start()
    try:
        before, allocated = tracemalloc.get_traced_memory()[0], pool.bytes_allocated()
        for data, code in ((bomb, "batch_too_large"), (dictionary, "batch_damaged")):
            with pytest.raises(Corrupt) as caught:
                decode_batch(data, descriptor_of(data, 64), settings)
            assert caught.value.code == code
        assert tracemalloc.get_traced_memory()[1] - before < 4 << 20
        assert pool.bytes_allocated() - allocated < 4 << 20
    finally:
        tracemalloc.stop()


def test_every_flipped_byte_of_a_batch_without_its_checksum_is_an_error_or_as_many_entries():
    """The manifest's checksum finds what is damaged; here it is made to fit, and the decoder survives what it meets."""
    entries = [b"entry %d" % number for number in range(50)]
    data = encoded(entries)
    for position in range(len(data)):
        flipped = data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]
        try:
            batch = decode_batch(flipped, descriptor_of(flipped, 50), QUICK)
        except Corrupt:
            continue
        assert len(batch.entries) == 50


async def test_an_object_larger_than_the_limit_is_not_fetched(sim: SimStore):
    await produced(sim, [b"a" * 10_000])
    _, _, descriptor = await the_batch(sim)
    handle = FetchHandle(sim, settings=quick(batch_bytes_max=50))
    before = len(sim.calls)
    with pytest.raises(Corrupt) as caught:
        await handle.fetch(descriptor)
    assert (caught.value.code, len(sim.calls)) == ("batch_too_large", before)


async def test_a_prefix_that_holds_something_else_is_refused(sim: SimStore):
    sim.objects["notes.txt"] = (b"mine", 0)
    with pytest.raises(Conflict, match=r"notes\.txt"):
        await Producer.open(sim, settings=QUICK)
    assert list(sim.objects) == ["notes.txt"]


async def test_foreign_files_are_reported_and_left_alone(sim: SimStore):
    await produced(sim, [b"a"])
    for key in ("data/notes.txt", "manifest/notes.txt", "notes.txt"):
        sim.objects[key] = (b"mine", 0)
    findings: list[Finding] = [finding async for finding in verify(sim)]
    assert sorted((f.kind, f.key) for f in findings) == [
        ("foreign", "data/notes.txt"),
        ("foreign", "manifest/notes.txt"),
        ("foreign", "notes.txt"),
    ]
    assert not any(finding.harmful for finding in findings)
    await produced(sim, [b"b"])
    assert await consumed(sim) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[:-5], "manifest_damaged"),
        (lambda data: data.replace(b'"ops"', b'"opt"'), "manifest_damaged"),
        (lambda data: b"", "manifest_damaged"),
        (lambda data: _signed(b'{"format":99}'), "unknown_format"),
        (lambda data: _signed(b'{"format":1}'), "manifest_damaged"),
        (lambda data: _signed(data.partition(b"\n")[0].replace(b'"number":1', b'"number":7')), "manifest_invalid"),
    ],
    ids=["cut", "flipped", "empty", "newer", "other", "misplaced"],
)
async def test_a_damaged_or_newer_delta_is_refused_and_nothing_is_written(sim: SimStore, damage: Any, code: str):
    await produced(sim, [b"a"], [b"b"])
    sim.objects[delta_key(1)] = (damage(sim.objects[delta_key(1)][0]), 0)
    before = dict(sim.objects)
    for opening in (Producer.open(sim, settings=QUICK), Consumer.open(sim, settings=QUICK)):
        with pytest.raises(Corrupt) as caught:
            await opening
        assert caught.value.code == code
    assert sim.objects == before


def _signed(body: bytes) -> bytes:
    return body + b'\n"%s"\n' % checksum_of(body).encode()


async def test_a_damaged_checkpoint_costs_time_only(sim: SimStore):
    settings = quick(checkpoint_deltas=4)
    await produced(sim, *([b"%d" % n] for n in range(20)), settings=settings)
    checkpoints = sorted(key for key in sim.objects if "checkpoint" in key)
    assert len(checkpoints) == 2
    sim.objects[checkpoints[-1]] = (b"rubbish", 0)
    assert len(await consumed(sim)) == 20


@pytest.mark.parametrize("group", ["", "a/b", "..", "a b", "x" * 101, "ü"])
async def test_a_group_s_name_is_a_word(sim: SimStore, group: str):
    with pytest.raises(Invalid):
        Consumer(sim, group=group)
