"""From a buffer on S3 into a file table on S3, both by the JVM, with Hadoop's connector: in a session of its own.

    python -m tests.spark.s3a_driver BUFFER_URL TABLE_URL

Brings each batch in as a range of its own. Prints what it moved, what a second run moved, and what Spark then reads of
the table, as JSON.
"""

from __future__ import annotations

import json
import sys

from tenure.spark.jobs.ingest import ingest
from tenure.spark.jobs.plan import Limits
from tenure.spark.session.session import open_session, spark_version
from tenure.spark.sinks.files.table import FileTable
from tests.spark.crash_kill import SMALL


def main(buffer: str, table: str) -> None:
    sink = FileTable(table)
    spark = open_session("s3a", master="local[2]", conf=SMALL, needs=[sink.needs(spark_version())])
    one_by_one = Limits(batches_max=1)
    done = ingest(spark, buffer, sink, reader="jvm", limits=one_by_one)
    again = ingest(spark, buffer, sink, reader="jvm", limits=one_by_one)
    read = spark.read.parquet(table.partition("?")[0].replace("s3://", "s3a://")).orderBy("seq", "index")
    found = read.selectExpr("seq", "index", "string(metadata)", "string(entry)").collect()
    print(json.dumps({"entries": [done.entries, again.entries], "rows": [list(row) for row in found]}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
