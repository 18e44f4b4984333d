"""A buffer on S3 read by the JVM itself, with Hadoop's connector, in a session of its own: its jars are large.

    python -m tests.spark.s3a_driver FOLDER S3_URL

Prints the rows as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyspark

from tenure.spark.ingesting import ingest
from tenure.spark.session import open_session
from tests.spark.folder_sink import FolderSink


def hadoop_version() -> str:
    """That of the Hadoop inside pyspark: its connector must be of the same."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return re.sub(r"hadoop-client-api-(.*)\.jar", r"\1", jar.name)


def main(folder: str, url: str) -> None:
    endpoint = parse_qs(urlsplit(url).query)["endpoint"][0]
    conf = {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "any",
        "spark.hadoop.fs.s3a.secret.key": "a-secret-of-tests",
    }
    spark = open_session("s3a", master="local[2]", conf=conf)
    sink = FolderSink(Path(folder))
    ingest(spark, url, sink, reader="jvm")
    print(
        json.dumps([[row["seq"], row["index"], row["metadata"].decode(), row["entry"].decode()] for row in sink.rows()])
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
