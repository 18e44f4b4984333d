"""Topics of a real server as a source and a sink of Spark: one session, one server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.client.client import Client
from tenure.errors import Conflict, Invalid, Overloaded
from tenure.spark.stream.formats import register
from tenure.spark.topic.sink import TopicSink
from tests.kit.server import Running, serving
from tests.spark.topic_driver import numbers_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
Topic = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("topics")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture(scope="module")
def full_log(client: Client) -> str:
    """A topic with `ROWS` records."""
    client.put_topic("full", durability="fsync")
    for first in range(0, ROWS, 5_000):
        client.produce("full", [{"n": number} for number in range(first, first + 5_000)])
    return "full"


@pytest.fixture
def topic(client: Client) -> Topic:
    def make(**config: Any) -> str:
        name = f"t-{secrets.token_hex(6)}"
        client.put_topic(name, **{"durability": "fsync", **config})
        return name

    return make


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return (tmp_path / "staging").as_uri()


def reading(session: SparkSession, server: Running, topic: str, **options: object) -> DataFrame:
    told = {name: str(value) for name, value in options.items()}
    return session.read.format("tenure").options(url=server.url, topic=topic, **told).load()


def rows(session: SparkSession, count: int, *, salt: int = 0) -> DataFrame:
    """Numbers as payloads; the salt decides in which order, and by how many tasks."""
    numbers = session.range(0, count, 1, 2).selectExpr("id AS n", f"hash(id, {salt}) AS place")
    spread = numbers.repartition(2 + salt % 3, "place").sortWithinPartitions("place")
    return spread.selectExpr("to_json(struct(n)) AS payload")


def write(frame: DataFrame, server: Running, topic: str, staging: str, **options: str) -> None:
    writer = frame.write.format("tenure").mode("append")
    writer.options(url=server.url, topic=topic, staging=staging, retryForMs="1000", **options).save()


def stream(session: SparkSession, server: Running, source: str, sink: str, where: Path, **options: str) -> None:
    """From topic to topic until everything is there."""
    read = session.readStream.format("tenure").options(url=server.url, topic=source, **options).load()
    out = read.where("payload IS NOT NULL").select("payload").writeStream.format("tenure")
    out = out.options(url=server.url, topic=sink, staging=(where / "staging").as_uri(), chunkRows="2000")
    out.option("checkpointLocation", str(where / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def staged_files(staging: str) -> list[str]:
    root = Path(staging.removeprefix("file://"))
    return [path.name for path in (root / "staged").rglob("*") if path.is_file()] if root.exists() else []


# Reading


def test_a_batch_read_gives_every_record_once(session: SparkSession, server: Running, full_log: str):
    frame = reading(session, server, full_log)
    found = frame.selectExpr("seq", "get_json_object(CAST(payload AS STRING), '$.n') AS n").collect()
    assert sorted((row.seq, int(row.n)) for row in found) == [(number + 1, number) for number in range(ROWS)]
    part = reading(session, server, full_log, startingSeq=101, endingSeq=200).selectExpr("min(seq)", "max(seq)")
    assert tuple(part.first() or ()) == (101, 200)


def test_columns_are_those_of_the_wire(session: SparkSession, server: Running, client: Client, topic: Topic):
    from tenure import Record

    name = topic()
    client.produce(name, [Record(data=b'{ "b": 1 }', tag="red", node="me", meta=b'{"k": 2}'), b"null"])
    first, second = reading(session, server, name).orderBy("seq").collect()
    assert (first.payload, first.tag, first.node, first.meta) == (b'{ "b": 1 }', "red", "me", '{"k": 2}')
    assert (second.payload, second.tag, second.node, second.meta) == (b"null", None, None, None)
    assert first.ts is not None
    assert first.tombstone is None


def test_a_gap_ends_a_read_or_is_a_tombstone(session: SparkSession, server: Running, client: Client, topic: Topic):
    name = topic(cap_records=100)
    client.produce(name, list(range(100)))
    client.produce(name, list(range(100, 250)))
    with pytest.raises(Exception, match=f"records 1 to 150 of {name} are gone \\(cap\\)"):
        reading(session, server, name, startingSeq=1).collect()
    found = reading(session, server, name, startingSeq=1, failOnDataLoss=False).orderBy("seq").collect()
    assert found[0].tombstone.asDict() == {"gap_from": 1, "gap_to": 150, "reason": "cap", "missed": 150}
    assert [int(row.payload) for row in found[1:]] == list(range(150, 250))
    assert reading(session, server, name).count() == 100, "from the earliest on, nothing is missing"


def test_a_queue_is_read_without_what_is_acknowledged(
    session: SparkSession, server: Running, client: Client, topic: Topic
):
    name = topic(type="queue")
    client.produce(name, list(range(10)))
    lease = client.claim(name, max_count=4)
    client.ack(name, [job.seq for job in lease.jobs[:3]])
    assert sorted(row.seq for row in reading(session, server, name).collect()) == [4, 5, 6, 7, 8, 9, 10]
    counts = client.topic(name).queue
    assert counts is not None
    assert (counts.ready, counts.in_flight) == (6, 1), "a read leases nothing"


def test_a_stream_drains_a_topic_and_goes_on_where_it_stopped(
    session: SparkSession, server: Running, client: Client, topic: Topic, full_log: str, tmp_path: Path
):
    """From topic to topic, in limited batches; the last batch, and nothing twice in a second run."""
    source, sink = topic(), topic()
    for first in range(0, ROWS, 5_000):
        client.produce(source, [{"n": number} for number in range(first, first + 5_000)])
    stream(session, server, source, sink, tmp_path, maxRecordsPerTrigger="8000")
    assert numbers_in(client, sink) == list(range(ROWS))
    client.produce(source, [{"n": ROWS}])
    stream(session, server, source, sink, tmp_path, maxRecordsPerTrigger="8000")
    assert numbers_in(client, sink) == list(range(ROWS + 1))
    assert staged_files((tmp_path / "staging").as_uri()) == []


@pytest.mark.full
def test_a_stream_that_fell_behind_says_so(
    session: SparkSession, server: Running, client: Client, topic: Topic, tmp_path: Path
):
    source, sink = topic(cap_records=100), topic()
    client.produce(source, [{"n": number} for number in range(50)])
    stream(session, server, source, sink, tmp_path)
    client.produce(source, [{"n": number} for number in range(50, 250)])
    with pytest.raises(Exception, match="records 51 to 150"):
        stream(session, server, source, sink, tmp_path)
    stream(session, server, source, sink, tmp_path, failOnDataLoss="false")
    assert numbers_in(client, sink) == [*range(50), *range(150, 250)]


# Writing


@pytest.mark.full
def test_a_write_is_repeated_in_another_order_and_adds_nothing(
    session: SparkSession, server: Running, client: Client, topic: Topic, staging: str
):
    name = topic()
    write(rows(session, ROWS, salt=1), server, name, staging, commitId="monday")
    write(rows(session, ROWS, salt=2), server, name, staging, commitId="monday")
    assert numbers_in(client, name) == list(range(ROWS))
    assert staged_files(staging) == []
    write(rows(session, 10), server, name, staging, exactlyOnce="false")
    write(rows(session, 10), server, name, staging, exactlyOnce="false")
    assert len(numbers_in(client, name)) == ROWS + 20


@pytest.mark.full
def test_a_write_that_failed_half_way_is_completed_by_its_repeat(
    session: SparkSession, server: Running, client: Client, topic: Topic, staging: str
):
    """The topic is full after some chunks; the repeat brings the rows in another order, and the record decides."""
    name = topic(cap_records=7_000, discard="reject")
    with pytest.raises(Exception, match="full"):
        write(rows(session, ROWS, salt=1), server, name, staging, commitId="x", chunkRows="1000")
    assert 0 < len(numbers_in(client, name)) < ROWS
    client.put_topic(name, durability="fsync")
    write(rows(session, ROWS, salt=2), server, name, staging, commitId="x", chunkRows="700")
    assert numbers_in(client, name) == list(range(ROWS))


@pytest.mark.full
def test_a_query_that_failed_half_way_through_a_batch_is_started_again(
    session: SparkSession, server: Running, client: Client, topic: Topic, full_log: str, tmp_path: Path
):
    sink = topic(cap_records=7_000, discard="reject")
    with pytest.raises(Exception, match="full"):
        stream(session, server, full_log, sink, tmp_path)
    assert 0 < len(numbers_in(client, sink)) < ROWS
    client.put_topic(sink, durability="fsync")
    stream(session, server, full_log, sink, tmp_path)
    assert numbers_in(client, sink) == list(range(ROWS))


def test_a_range_of_a_buffer_goes_to_a_topic_once(
    session: SparkSession, server: Running, client: Client, topic: Topic, staging: str
):
    name = topic(cap_records=7_000, discard="reject")
    sink = TopicSink(server.url, name, staging=staging, select=("concat(payload, ' ') AS payload",), chunkRows=1_000)
    commit = Commit("buffer", sink.name, 0, 7, 1)
    assert sink.last_committed(session, "buffer") is None
    with pytest.raises(Overloaded):
        sink.write(rows(session, ROWS, salt=1), commit)
    assert sink.last_committed(session, "buffer") is None
    client.put_topic(name, durability="fsync")
    sink.write(rows(session, ROWS, salt=2), commit)
    sink.write(rows(session, ROWS, salt=3), commit)
    assert numbers_in(client, name) == list(range(ROWS))
    assert sink.last_committed(session, "buffer") == 7
    assert sink.last_committed(session, "another") is None
    with pytest.raises(Conflict, match="does not follow"):
        sink.write(rows(session, 1), Commit("buffer", sink.name, 9, 10, 1))


def test_jobs_are_put_with_delays_tags_and_meta(
    session: SparkSession, server: Running, client: Client, topic: Topic, staging: str
):
    name = topic(type="queue")
    frame = session.range(10).selectExpr(
        "CAST(id AS STRING) AS payload",
        "IF(id < 4, 60000, 0) AS delay_ms",
        "'red' AS tag",
        """'{"a":1}' AS meta""",
    )
    write(frame, server, name, staging, commitId="jobs")
    counts = client.topic(name).queue
    assert counts is not None
    assert (counts.delayed, counts.ready) == (4, 6)
    assert {(row.tag, row.meta) for row in reading(session, server, name).collect()} == {("red", '{"a":1}')}


@pytest.mark.full
@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("payload", {}, "commitId is missing"),
        ("payload, 1 AS seq", {"commitId": "c"}, "no place for seq"),
        ("payload, 1 AS delay_ms", {"commitId": "c"}, "belong to queues"),
        ("'no JSON' AS payload", {"commitId": "c"}, "cannot be a record"),
        ("payload", {"commitId": "c", "apiKey": "secret-word"}, "TENURE_API_KEY"),
        ("payload", {"commitId": "c", "topic": "t-absent"}, "no topic"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    session: SparkSession,
    server: Running,
    client: Client,
    topic: Topic,
    staging: str,
    columns: str,
    options: dict[str, str],
    said: str,
):
    name = topic()
    frame = rows(session, 10).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=said) as refused:
        write(frame, server, options.get("topic", name), staging, **{k: v for k, v in options.items() if k != "topic"})
    assert "secret-word" not in str(refused.value)
    assert numbers_in(client, name) == []
    assert staged_files(staging) == []


def test_a_sink_refuses_a_frame_without_a_payload(session: SparkSession, server: Running, topic: Topic, staging: str):
    with pytest.raises(Invalid) as refused:
        TopicSink(server.url, topic(), staging=staging).write(
            session.range(3).toDF("id"), Commit("b", "topic", 0, 1, 1)
        )
    assert refused.value.code == "bad_columns"
