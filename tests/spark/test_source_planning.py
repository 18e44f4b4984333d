"""The streaming source's answers to Spark, call by call, without a session."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMinRows
from pyspark.sql.types import BinaryType, DataType, IntegerType, StructField, StructType

from tenure.buffer import inspect
from tenure.buffer.collecting.collector import Collector
from tenure.buffer.collecting.quarantine import quarantine
from tenure.buffer.manifest.groups import drop_group
from tenure.errors import Conflict, Corrupt, Invalid, LeaseLost, NotFound
from tenure.spark.stream.source import BufferSource, BufferStreamReader
from tests.kit.buffers import quick
from tests.spark.conftest import Filled

BATCHES = [[b"%d-%d" % (batch, entry) for entry in range(10)] for batch in range(6)]


@pytest.fixture
def readers() -> Iterator[list[BufferStreamReader]]:
    """The sources that a test made, stopped after it."""
    made: list[BufferStreamReader] = []
    yield made
    for reader in made:
        reader.stop()


@pytest.fixture
def opened(readers: list[BufferStreamReader]) -> Any:
    def make(url: str, **options: Any) -> BufferStreamReader:
        source = BufferSource({"path": url, "pollMs": "1"} | {name: str(value) for name, value in options.items()})
        readers.append(source.streamReader(source.schema()))
        return readers[-1]

    return make


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [entry for batch in batches for entry in batch]


def frontier(url: str, group: str = "default") -> int:
    """The first batch that the group has not acknowledged."""
    found = {stat.group: stat for stat in asyncio.run(inspect.stat(url)).groups}
    last = found[group].last_acked
    return 0 if last is None else last + 1


def step(reader: BufferStreamReader, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
    return reader.latestOffset(start, limit or reader.getDefaultReadLimit())


def entries_of(reader: BufferStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """What the tasks of a micro-batch read, each from a copy as Spark would send it."""
    found: list[bytes] = []
    for partition in reader.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition))):
            found += batch.column("entry").to_pylist()
    return found


def test_micro_batches_keep_to_their_limits_and_leave_nothing_out(filled: Filled, opened: Any):
    reader = opened(filled(*BATCHES), maxEntriesPerTrigger=25)
    at, seen, ends = reader.initialOffset(), [], []
    while (end := step(reader, at)) != at:
        seen += entries_of(reader, at, end)
        ends.append((end["low"], end["seq"]))
        at = end
    assert ends == [(0, 2), (2, 4), (4, 6)]
    assert seen == flat(BATCHES)


def test_a_batch_beyond_the_limit_goes_alone(filled: Filled, opened: Any):
    reader = opened(filled(*BATCHES), maxBytesPerTrigger=1)
    assert step(reader, reader.initialOffset())["seq"] == 1


def test_spark_s_own_limits_are_honoured(filled: Filled, opened: Any):
    reader = opened(filled(*BATCHES), maxEntriesPerTrigger=10)
    start = reader.initialOffset()
    assert step(reader, start, ReadMaxFiles(3))["seq"] == 1
    assert step(reader, start, ReadAllAvailable())["seq"] == 6


def test_the_frontier_follows_the_start_of_the_next_micro_batch(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    reader = opened(url)
    start = reader.initialOffset()
    end = step(reader, start)
    assert frontier(url) == 0  # planned is not committed
    assert step(reader, end) == end
    assert frontier(url) == 6
    assert reader.reportLatestOffset()["seq"] == 6


def test_a_restarted_query_acknowledges_what_it_did_not_plan_itself(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    first = opened(url)
    end = step(first, first.initialOffset())
    first.stop()
    assert frontier(url) == 0
    second = opened(url)
    assert step(second, end) == end
    assert frontier(url) == 6


def test_commit_moves_the_frontier_too(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    reader = opened(url)
    reader.commit(step(reader, reader.initialOffset()))
    assert frontier(url) == 6


def test_available_now_ends_where_the_buffer_did(filled: Filled, opened: Any):
    url = filled(*BATCHES[:2])
    reader = opened(url, maxEntriesPerTrigger=10, minEntriesPerTrigger=10)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    filled(*BATCHES[2:], url=url)
    middle = step(reader, start)
    end = step(reader, middle)
    assert (middle["seq"], end["seq"], step(reader, end)) == (1, 2, end)
    assert frontier(url) == 2


def test_available_now_waits_for_nothing(filled: Filled, opened: Any):
    reader = opened(filled(BATCHES[0]), minEntriesPerTrigger=1_000)
    reader.prepareForTriggerAvailableNow()
    assert step(reader, reader.initialOffset())["seq"] == 1


def test_a_small_micro_batch_waits_for_more_but_not_for_ever(filled: Filled, opened: Any):
    url = filled(BATCHES[0])
    patient = opened(url, minEntriesPerTrigger=20, maxTriggerDelayMs=600_000)
    start = patient.initialOffset()
    assert step(patient, start) == start
    filled(BATCHES[1], url=url)
    assert step(patient, start)["seq"] == 2
    assert step(patient, start, ReadMinRows(21)) == start
    hasty = opened(url, minEntriesPerTrigger=30, maxTriggerDelayMs=0)
    assert step(hasty, start)["seq"] == 2


def test_an_idle_queue_is_looked_at_once_in_a_while(filled: Filled, opened: Any):
    reader = opened(filled(BATCHES[0]), pollMs=30)
    end = step(reader, reader.initialOffset())
    started = time.monotonic()
    for _ in range(5):
        assert step(reader, end) == end
    assert time.monotonic() - started >= 0.12


def test_a_query_starts_where_it_is_told(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    assert opened(url, group="a", startingSequence="latest").initialOffset()["seq"] == 6
    middle = opened(url, group="b", startingSequence="4")
    start = middle.initialOffset()
    assert entries_of(middle, start, step(middle, start)) == BATCHES[4] + BATCHES[5]
    assert frontier(url, "b") == 4  # no group needs what is before the start
    assert opened(url, group="b").initialOffset()["seq"] == 4
    with pytest.raises(Conflict, match="group b stands at 4"):
        opened(url, group="b", startingSequence="2").initialOffset()
    with pytest.raises(Conflict, match="ends before 6"):
        opened(url, group="b", startingSequence="7").initialOffset()


def test_the_first_micro_batch_is_the_same_when_it_is_run_again(filled: Filled, opened: Any):
    url = filled(*BATCHES[:1])
    first = opened(url, startingSequence="latest")
    start = first.initialOffset()
    filled(*BATCHES[1:], url=url)
    end = step(first, start)
    first.stop()
    again = opened(url, startingSequence="latest")
    assert entries_of(again, again.initialOffset(), end) == flat(BATCHES[1:])


def test_a_second_query_on_the_group_fences_the_first(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    first = opened(url)
    start = first.initialOffset()
    opened(url).initialOffset()
    with pytest.raises(LeaseLost, match=r"another consumer of group default has started.*One query reads a group"):
        step(first, start)
    assert opened(url, group="other").initialOffset()["seq"] == 0


def test_a_checkpoint_of_another_buffer_is_refused(filled: Filled, opened: Any):
    start = opened(filled(*BATCHES)).initialOffset()
    with pytest.raises(Conflict) as caught:
        step(opened(filled(*BATCHES)), start)
    assert caught.value.code == "checkpoint_foreign"


def test_a_checkpoint_that_its_group_has_left_behind_is_refused(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    reader = opened(url)
    start = reader.initialOffset()
    step(reader, step(reader, start))
    with pytest.raises(Conflict) as caught:
        step(opened(url), start)
    assert caught.value.code == "checkpoint_behind"


def test_a_checkpoint_beyond_the_end_is_refused(filled: Filled, opened: Any):
    reader = opened(filled(*BATCHES))
    with pytest.raises(Conflict) as caught:
        step(reader, reader.initialOffset() | {"seq": 7, "low": 7})
    assert caught.value.code == "checkpoint_ahead"


async def trimmed(url: str, group: str) -> None:
    """Give the batches free that only this group kept, and collect them."""
    await drop_group(url, group)
    collector = Collector(url, settings=quick())
    await collector.run_once()
    await collector.close()


def test_batches_that_are_not_kept_any_more_fail_the_query_or_are_skipped(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    start = opened(url, group="slow").initialOffset()
    fast = opened(url)
    step(fast, step(fast, fast.initialOffset(), ReadMaxFiles(4)), ReadMaxFiles(4))
    asyncio.run(trimmed(url, "slow"))
    with pytest.raises(Conflict, match="goes on at batch 0, but group slow stands at 4"):
        step(opened(url, group="slow"), start)
    tolerant = opened(url, group="slow", failOnDataLoss="false")
    end = step(tolerant, start)
    assert entries_of(tolerant, start, end) == BATCHES[4] + BATCHES[5]


def test_a_damaged_batch_fails_the_task_or_is_skipped_on_the_record(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    home = Path(url.removeprefix("file://"))
    victims = sorted((home / "data").iterdir())
    victims[2].write_bytes(b"x" * victims[2].stat().st_size)
    victims[4].unlink()
    strict = opened(url)
    start = strict.initialOffset()
    end = step(strict, start)
    with pytest.raises(Corrupt, match=r"batch 2 .* use failOnDataLoss=false"):
        entries_of(strict, start, end)
    tolerant = opened(url, failOnDataLoss="false")
    assert entries_of(tolerant, start, end) == [
        entry for number, batch in enumerate(BATCHES) if number not in (2, 4) for entry in batch
    ]
    assert [path.name for path in sorted((home / "quarantine").iterdir())] == [
        f"{number:020}-default.json" for number in (2, 4)
    ]


def give_up(url: str, *seqs: int) -> None:
    for seq in seqs:
        (Path(url.removeprefix("file://")) / asyncio.run(location(url, seq))).unlink()
        asyncio.run(quarantine(url, seq, reason="gone"))


async def location(url: str, seq: int) -> str:
    [found] = [each.location async for each in inspect.entries(url, seq, seq + 1)]
    return found


def test_a_micro_batch_is_run_again_without_what_was_given_up(filled: Filled, opened: Any):
    """Its range is in Spark's log: the first batch moved the frontier, the later one is on the record only."""
    url = filled(*BATCHES)
    first = opened(url)
    start = first.initialOffset()
    end = step(first, start)
    give_up(url, 0, 4)
    asyncio.run(Collector(url, settings=quick()).run_once())
    again = opened(url)
    left = [entry for number, batch in enumerate(BATCHES) if number not in (0, 4) for entry in batch]
    assert entries_of(again, start, end) == left
    assert step(again, end) == end
    assert frontier(url) == 6


def test_a_micro_batch_whose_every_batch_was_given_up_is_empty(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    first = opened(url)
    start = first.initialOffset()
    end = step(first, start, ReadMaxFiles(1))
    give_up(url, 0)
    again = opened(url)
    assert entries_of(again, start, end) == []
    assert step(again, end)["low"] == 1


def test_a_query_goes_on_behind_what_was_given_up_and_its_range_follows_the_one_before(filled: Filled, opened: Any):
    url = filled(*BATCHES)
    first = opened(url)
    at = step(first, first.initialOffset(), ReadMaxFiles(5))
    assert step(first, at, ReadMaxFiles(1))["low"] == 5
    give_up(url, 5)
    second = opened(url)
    assert step(second, at) == at, "nothing has come since"
    filled([b"new"], url=url)
    end = step(second, at)
    assert (end["low"], end["seq"], entries_of(second, at, end)) == (5, 7, [b"new"])
    assert step(second, end) == end
    assert frontier(url) == 7


def test_a_buffer_that_is_not_there_is_named(tmp_path: Path, opened: Any):
    with pytest.raises(NotFound, match="there is no buffer at"):
        opened((tmp_path / "none").as_uri()).initialOffset()


def test_the_columns_are_those_of_a_batch_job():
    schema = BufferSource({"path": "file:///x"}).schema()
    assert schema.names == ["seq", "index", "ingestion_time", "metadata", "entry"]
    assert not any(field.nullable for field in schema), "Spark would look for nulls in every row"


@pytest.mark.parametrize("nullable", [True, False])
def test_a_schema_names_the_columns_that_tasks_make(filled: Filled, readers: list[BufferStreamReader], nullable: bool):
    source = BufferSource({"path": filled(*BATCHES), "pollMs": "1"})
    kinds = {field.name: field.dataType for field in source.schema()}
    asked = StructType([StructField(name, kinds[name], nullable) for name in ("entry", "seq")])
    reader = source.streamReader(asked)
    readers.append(reader)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, step(reader, start))
    batches = list(pickle.loads(pickle.dumps(reader)).read(partition))
    assert {batch.schema for batch in batches} == {to_arrow_schema(asked, timezone="UTC")}, "Spark takes no other"
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"entry": entry, "seq": seq} for seq, entries in enumerate(BATCHES) for entry in entries]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([("value", BinaryType())], "value binary is no column of a buffer: name some of seq bigint, index bigint"),
        ([("entry", BinaryType()), ("index", IntegerType())], "index int is no column"),
        ([("entry", BinaryType())] * 2, "each once"),
        ([], "at least one"),
    ],
    ids=["name", "type", "twice", "none"],
)
def test_a_schema_of_other_columns_is_refused(tmp_path: Path, fields: list[tuple[str, DataType]], told: str):
    source = BufferSource({"path": tmp_path.as_uri()})
    with pytest.raises(Invalid, match=told) as caught:
        source.streamReader(StructType([StructField(name, kind) for name, kind in fields]))
    assert caught.value.code == "bad_columns"
