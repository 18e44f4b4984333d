"""Producers of one name: a restart beside its predecessor loses nothing, and the one that is overtaken halts."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from tenure.buffer import Producer
from tenure.buffer.batch.format import encode_batch
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.format import Append, Entry, decode, encode
from tenure.buffer.manifest.producers import ProducerRecord
from tenure.buffer.writing import uploads
from tenure.errors import LeaseLost
from tenure.testing.simstore import Call, Hold, SimStore
from tests.buffer.test_producers import begun
from tests.kit.buffers import consumed, quick

LATER = decide.Known(0)
"""A producer that has seen its first commit, and has none in doubt."""


def entry(name: str, ordinal: int) -> Entry:
    return Entry(name.ljust(26, "0"), 1, 1, "00000000", "web-1", ordinal, 0, 0)


async def test_an_overtaken_predecessor_whose_names_fell_is_told_from_its_successor(
    sim: SimStore, monkeypatch: pytest.MonkeyPatch
):
    """Naive: the largest name shows who committed last. A batch that encodes longer is named later, though sealed
    first: the commit after it leaves that name, and the successor takes its ordinal for its own."""
    second_is_named = threading.Event()

    def encode(calls: Any, *, ordinal: int, **options: Any) -> Any:
        if ordinal == 0:
            assert second_is_named.wait(30)
        return encode_batch(calls, ordinal=ordinal, **options)

    monkeypatch.setattr(uploads, "encode_batch", encode)
    upload, settings = Hold(), quick(flush_interval_ms=60_000, flush_bytes=1)

    def hold_the_second(call: Call) -> Hold | None:
        if call.kind == "put_new" and call.key.startswith("data/") and not second_is_named.is_set():
            second_is_named.set()
            return upload
        return None

    sim.hook = hold_the_second
    predecessor = Producer(sim, name="web-1", settings=settings)
    await predecessor.start()
    first = await predecessor.produce([b"0 of the predecessor"])
    second = await predecessor.produce([b"1 of the predecessor"])
    await first.durable()
    async with Producer(sim, name="web-1", settings=settings) as successor:
        upload.release()
        await second.durable()
        assert sim.count("put_new", "data/") == 2
        with pytest.raises(LeaseLost, match="one at a time"):
            await (await successor.produce([b"1 of the successor"])).durable()
    await predecessor.close()
    assert await consumed(sim) == [b"0 of the predecessor", b"1 of the predecessor"]


def test_a_commit_of_one_s_own_that_was_in_doubt_is_known_by_its_name():
    state = begun(entry("5", 0), entry("4", 1))
    mine = decide.Known(0, [entry("4", 1).name])
    assert decide.append(state, [entry("4", 1)], known=mine, in_doubt=True, producers_max=9) is None
    later = entry("6", 2)
    assert decide.append(state, [later], known=mine, in_doubt=False, producers_max=9) == [Append([later])]


def test_a_record_that_another_moved_refuses_also_where_a_commit_was_in_doubt():
    state = begun(entry("5", 0), entry("4", 1))
    for known in (LATER, decide.Known(0, [entry("3", 1).name])):
        with pytest.raises(LeaseLost):
            decide.append(state, [entry("3", 1)], known=known, in_doubt=False, producers_max=9)


def test_a_record_of_a_version_without_last_names_is_read_and_proves_nothing():
    """That version wrote it into a checkpoint: whoever moved it since is not known."""

    class OldRecord(msgspec.Struct, frozen=True, array_like=True):
        ordinal: int
        newest_name: str
        ts_ms: int

    old = msgspec.json.encode(OldRecord(1, entry("5", 0).name, 7))
    record = msgspec.json.decode(old, type=ProducerRecord)
    assert record == ProducerRecord(1, entry("5", 0).name, 7, "")
    assert msgspec.json.decode(msgspec.json.encode(record), type=OldRecord) == msgspec.json.decode(old, type=OldRecord)
    decide.Known(1).check(record, "web-1")
    for known in (LATER, decide.Known(0, [entry("5", 0).name])):
        with pytest.raises(LeaseLost):
            known.check(record, "web-1")


def test_a_checkpoint_holds_the_last_name():
    state = begun(entry("5", 0), entry("4", 1))
    assert decode(type(state), encode(state), "checkpoint").producers["web-1"].last_name == entry("4", 1).name
