"""Every run of a pipeline balances: what the buffer held is in the table, or left out of it by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Filled
from tests.spark.pipeline_case import ran, rows, set_up, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMPLE = """\
[pipeline]
name = "orders"
[source]
buffer = "{buffer}"
group = "orders"
[decode]
schema = "orders.toml"
"""
INTO_FILES = '[sink]\nkind = "parquet"\npath = "tables/orders"\n'
DEDUPLICATED = """\
[deduplicate]
keys = ["id"]
[[expect]]
name = "has-id"
that = "id IS NOT NULL"
otherwise = "quarantine"
[quarantine]
path = "tables/quarantine"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return set_up(tmp_path)


def test_rows_without_a_complete_key_and_malformed_entries_are_no_duplicates(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    no_key = [b'{"amount":%d}' % number for number in range(10)]
    malformed = [b"not json %d" % number for number in range(10)]
    twice = [b'{"id":1,"amount":1}', b'{"id":1,"amount":2}']
    ran(spark, written(home, filled([*twice, *no_key, *malformed]), SIMPLE + DEDUPLICATED + INTO_FILES))
    assert rows(spark, home / "tables/orders", "id", "int(amount)") == [(1, 2)]
    assert len(rows(spark, home / "tables/quarantine", "index")) == 20
