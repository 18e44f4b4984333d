"""A table that holds nothing, where the group has gone on, is refused: its name was changed or mistyped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tenure.buffer import Collector, stat
from tenure.buffer.blocking import Consumer, Producer
from tenure.errors import Conflict
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.runner.new_table import demand_known_table
from tenure.spark.pipeline.runner.runner import run_pipeline
from tests.spark.conftest import Filled
from tests.spark.pipeline_case import FIRST, LOCAL, SECOND, order, ran, rows, set_up, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
[pipeline]
name = "orders"
[source]
buffer = "buffer"
group = "{group}"
[decode]
format = "text"
[sink]
kind = "parquet"
path = "tables/orders"
"""


def pipeline(home: Path, group: str = "orders") -> Pipeline:
    file = home / "pipeline.toml"
    file.write_text(FILE.replace("{group}", group))
    return read_pipeline(file)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A buffer of five batches."""
    with Producer(f"file://{tmp_path}/buffer") as producer:
        for number in range(5):
            producer.produce([b"%d" % number])
            producer.flush()
    return tmp_path


def acknowledge(home: Path, high: int, group: str = "orders") -> None:
    with Consumer(f"file://{home}/buffer", None, group=group) as consumer:
        consumer.descriptors(0, high + 1)
        consumer.ack_through(high)


def test_a_new_group_begins_with_a_new_table(home: Path):
    demand_known_table(pipeline(home), None, reached=None)
    with Consumer(f"file://{home}/buffer", None, group="orders"):  # its first run ended before its first range
        pass
    demand_known_table(pipeline(home), None, reached=None)


def test_a_new_table_of_a_group_that_has_gone_on_is_refused(home: Path):
    acknowledge(home, 2)
    with pytest.raises(Conflict) as caught:
        demand_known_table(pipeline(home), None, reached=2)
    assert caught.value.code == "table_new"
    for told in (
        "parquet tables/orders",
        "group orders",
        "up to 2",
        "from batch 0 on",
        "begins with batch 3",
        "--from-here",
    ):
        assert told in caught.value.message
    with pytest.raises(Conflict):  # also without any note
        demand_known_table(pipeline(home), None, reached=None)
    demand_known_table(pipeline(home), 2, reached=2)
    demand_known_table(pipeline(home, "another"), None, reached=2)


def test_that_holds_also_where_everything_acknowledged_was_collected(home: Path):
    acknowledge(home, 4)
    asyncio.run(collect(f"file://{home}/buffer"))
    with pytest.raises(Conflict, match=r"up to 4: .* begins with batch 5: ") as caught:
        demand_known_table(pipeline(home), None, reached=4)
    assert "another group" not in caught.value.message  # as nothing is kept for it
    with Consumer(f"file://{home}/buffer", None, group="another"):  # it begins here, as a group that was made now
        pass
    demand_known_table(pipeline(home, "another"), None, reached=None)


async def collect(url: str) -> None:
    collector = Collector(url)
    await collector.run_once()
    await collector.close()
    assert (await stat(url)).first_seq == 5


def test_a_run_into_a_mistyped_table_stops_before_it_writes(spark: SparkSession, tmp_path: Path, filled: Filled):
    url = filled(FIRST, SECOND)
    file = written(set_up(tmp_path), url)
    assert ran(spark, file).state == "done"
    right = file.read_text()
    file.write_text(right.replace("tables/orders", "tables/order"))
    with Producer(url) as producer:
        producer.produce([order(7, 5)])
    for _ in range(2):  # a run that was refused changes nothing
        with pytest.raises(Conflict, match="parquet tables/order holds nothing") as caught:
            ran(spark, file)
        assert caught.value.code == "table_new"
    assert not (tmp_path / "tables/order").exists()
    options = msgspec.structs.replace(LOCAL, from_here=True)
    assert run_pipeline(read_pipeline(file), options, spark=spark).ranges == 1
    assert rows(spark, tmp_path / "tables/order", "id") == [(7,)]
    assert ran(spark, file).state == "done"  # it is known from now on
