"""A topic as a case of the crash suite: a server of its own for each place, which ends with the test process."""

from __future__ import annotations

import atexit
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.client.client import Client
from tenure.spark.topic.sink import TopicSink
from tests.kit.server import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COMMITS", "topic_at", "topic_read", "topic_sink"]

COMMITS = "tenure.spark.topic.staging.directory:Staging.finish"
_TOPIC = "rows"
_servers = ExitStack()
atexit.register(_servers.close)


def topic_at(folder: Path, postgres: str) -> str:
    """The server and the staging directory, in one word."""
    if not folder.is_dir():
        return f"http://127.0.0.1:1#{folder.as_uri()}"
    server = _servers.enter_context(serving(folder / "data"))
    with Client(server.url) as client:
        client.put_topic(_TOPIC, durability="fsync")
    return f"{server.url}#{(folder / 'staging').as_uri()}"


def topic_sink(place: str) -> TopicSink:
    url, _, staging = place.partition("#")
    payload = "to_json(struct(seq, index, base64(entry) AS entry)) AS payload"
    return TopicSink(url, _TOPIC, staging=staging, select=(payload,), chunkRows=500)


def topic_read(spark: SparkSession, place: str) -> DataFrame:
    """The raw columns again, fetched without Spark, so that any version can be asked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    url, _, staging = place.partition("#")
    rows: list[dict[str, Any]] = []
    with Client(url) as client:
        at, caught_up = 0, False
        while not caught_up:
            page = client.diff(_TOPIC, from_seq=at, limit=1_000)
            rows += [msgspec.json.decode(record.data) for record in page.records if record.data is not None]
            at, caught_up = page.next_from_seq, page.caught_up
    schema = pa.schema([("seq", pa.int64()), ("index", pa.int64()), ("entry", pa.string())])
    path = f"{staging.removeprefix('file://')}-read-{secrets.token_hex(4)}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return spark.read.parquet(path).selectExpr("seq", "index", "unbase64(entry) AS entry")
