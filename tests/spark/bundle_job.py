"""A job for spark-submit: a buffer into a Parquet table by Python tasks, and where the tasks found their packages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def main(url: str, table: str, out: str) -> None:
    from pyspark.sql import SparkSession

    from tenure.spark import FileTable, ingest

    spark = SparkSession.builder.getOrCreate()
    summary = ingest(spark, url, FileTable(table), reader="python")

    def places(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        import tenure

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"tenure": [tenure.__file__], "pyarrow": [pa.__file__]})

    found = spark.range(0, 2, 1, 2).mapInArrow(places, "tenure string, pyarrow string").distinct().collect()
    counted = spark.read.parquet(table).selectExpr("count(*)", "count(DISTINCT entry)").collect()[0]
    with open(out, "w") as file:
        json.dump({"places": found, "rows": list(counted), "batches": summary.batches}, file)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
