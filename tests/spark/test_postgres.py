"""A table of a real PostgreSQL takes every range once, with every type, and names what it cannot take."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Denied, Indeterminate, Invalid, Overloaded
from tenure.spark.sinks.postgres.columns import PART, Column
from tenure.spark.sinks.postgres.nul import holds_nul
from tenure.spark.sinks.postgres.sink import PostgresSink
from tenure.spark.sinks.postgres.staging import Staging
from tests.spark.pg import PASSWORD, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = itertools.count()
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_postgres() as url:
        yield url


def commit(low: int, high: int) -> Commit:
    return Commit("B", "postgres", low, high, 1)


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    return spark.range(low * 10, (high + 1) * 10, 1, 3)


def test_a_range_is_there_once_and_its_staging_is_gone(spark: SparkSession, url: str):
    sink = PostgresSink(url, "once")
    assert sink.last_committed(spark, "B") is None
    assert sink.write(rows(spark, 0, 3), commit(0, 3)) == 40
    assert sink.write(rows(spark, 0, 3), commit(0, 3)) is None
    assert sink.write(rows(spark, 0, 0).where("false"), commit(4, 6)) == 0
    assert sink.last_committed(spark, "B") == 6
    assert sink.last_committed(spark, "another") is None
    assert asked(url, "SELECT count(*), count(DISTINCT id) FROM once") == [(40, 40)]
    with pytest.raises(Conflict) as caught:
        sink.write(rows(spark, 9, 9), commit(9, 9))
    assert caught.value.code == "sink_moved"
    assert asked(url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'tenure_staging%'") == []


def test_every_type_arrives(spark: SparkSession, url: str):
    frame = spark.sql(
        "SELECT 'ä%s' AS `a text`, X'00FF' AS raw, true AS flag, 1Y AS tiny, 2S AS small, 3 AS whole, 4L AS big, "
        "0.5F AS single, 0.25D AS twice, DATE'2026-11-15' AS day, TIMESTAMP'2026-11-15 10:00:00.123456 UTC' AS at, "
        "TIMESTAMP_NTZ'2026-11-15 10:00:00.5' AS local, CAST(12.3400 AS DECIMAL(20,4)) AS price, "
        "named_struct('x', 1, 'y', array('z')) AS nested, map('k', 2) AS pairs, CAST(NULL AS STRING) AS nothing"
    )
    PostgresSink(url, "types").write(frame, commit(0, 0))
    (row,) = asked(url, "SELECT * FROM types")
    assert row == (
        *("ä%s", b"\x00\xff", True, 1, 2, 3, 4, 0.5, 0.25, dt.date(2026, 11, 15)),
        dt.datetime(2026, 11, 15, 10, 0, 0, 123456, dt.UTC),
        dt.datetime(2026, 11, 15, 10, 0, 0, 500000),
        decimal.Decimal("12.3400"),
        *({"x": 1, "y": ["z"]}, {"k": 2}, None),
    )


def test_columns_join_and_a_table_that_is_there_keeps_its_types(spark: SparkSession, url: str):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id varchar(9) PRIMARY KEY, u uuid)")
    sink = PostgresSink(url, "shop.orders")
    uuid = "'6ba7b810-9dad-11d1-80b4-00c04fd430c8' AS u"
    sink.write(spark.range(2).selectExpr("id", uuid), commit(0, 0))
    sink.write(spark.range(2, 3).selectExpr("id", uuid, "id * 2 AS twice"), commit(1, 1))
    assert asked(url, "SELECT id, twice FROM shop.orders ORDER BY id") == [("0", None), ("1", None), ("2", 4)]
    with pytest.raises(Invalid) as caught:  # the key is taken: nothing of the range is there
        sink.write(spark.range(2, 5).selectExpr("id"), commit(2, 2))
    assert caught.value.code == "sink_rejected"
    with pytest.raises(Invalid, match="'a-long-name' would become 'a-long-na'"):  # as an explicit cast cuts it
        sink.write(spark.sql("SELECT 'a-long-name' AS id"), commit(2, 2))
    assert sink.last_committed(spark, "B") == 1
    assert asked(url, "SELECT count(*) FROM shop.orders") == [(3,)]


def made(kind: str, value: str) -> Any:
    """One value of one type, in a column ``v``: rows for ``fill_one``, which no Spark has made."""
    schema = StructType([StructField("v", _parse_datatype_json_string(json.dumps(kind)))])
    return SimpleNamespace(schema=schema, value=value)


def fill_one(self: PostgresSink, frame: Any, columns: list[Column], staging: Staging) -> None:
    """Fill the staging table as Spark's tasks do."""
    with psycopg.connect(str(self._address), autocommit=True) as connection:
        connection.execute(
            f'INSERT INTO "{staging.name}" (v, {PART}) VALUES (%s::{columns[0].staged}, 0)',
            [frame.value],
        )


def table_of(url: str, column: str) -> str:
    """A new table with one column ``v``, ``short`` among its possible types."""
    name = f"fitted_{next(NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            connection.execute("CREATE DOMAIN short AS varchar(5)")
        connection.execute(f"CREATE TABLE {name} (v {column})")
    return name


CHANGED = [
    ("string", "abcdefgh", "varchar(5)", "abcde"),
    ("string", "abcdefgh", "char(5)", "abcde"),
    ("string", "abcdefgh", "short", "abcde"),
    ("string", "10101", "bit(3)", "101"),
    ("string", "2026-11-19 10:00", "date", "2026-11-19"),
    ("string", "2.75", "numeric(5,1)", "2.8"),
    ("double", "2.7", "integer", "3"),
    ("double", "2.755", "numeric(10,2)", "2.76"),
    ("decimal(5,1)", "2.7", "bigint", "3"),
    ("decimal(5,2)", "2.75", "numeric(5,1)", "2.8"),
    ("decimal(20,2)", "123456789012345678.25", "double precision", "1.2345678901234568e+17"),
    ("long", "9007199254740993", "double precision", "9007199254740992"),
    ("integer", "7", "boolean", "true"),
    ("timestamp", "2026-11-19 10:00+00", "date", "2026-11-19"),
    ("timestamp_ntz", "2026-11-19 10:00:00.25", "timestamp(0)", "2026-11-19 10:00:00"),
]


@pytest.mark.parametrize(("kind", "value", "column", "becomes"), CHANGED, ids=[f"{a} {c}" for a, _, c, _ in CHANGED])
def test_a_value_that_the_table_would_change_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: str, value: str, column: str, becomes: str
):
    table = table_of(url, column)
    monkeypatch.setattr(PostgresSink, "_fill", fill_one)
    with pytest.raises(Invalid, match="the table's v is ") as caught:
        PostgresSink(url, table).write(made(kind, value), commit(0, 0))
    assert caught.value.code == "sink_rejected"
    assert f"{value!r} would become" in caught.value.message or f"would become '{becomes}" in caught.value.message
    assert asked(url, f"SELECT count(*) FROM {table}") == [(0,)]


KEPT = [
    ("string", "abc  ", "char(3)", "abc"),
    ("string", "abcde", "short", "abcde"),
    ("string", "2026-11-19", "date", dt.date(2026, 11, 19)),
    ("string", "101", "bit(3)", "101"),
    ("string", '{"a": 1}', "jsonb", {"a": 1}),
    ("long", "12", "varchar(5)", "12"),
    ("double", "3", "integer", 3),
    ("double", "9007199254740992", "bigint", 9007199254740992),
    ("double", "0.30000000000000004", "numeric(10,2)", decimal.Decimal("0.30")),
    ("double", "0.1", "real", 0.1),
    ("decimal(5,1)", "3.0", "integer", 3),
    ("decimal(5,2)", "2.70", "numeric(5,1)", decimal.Decimal("2.7")),
    ("decimal(5,2)", "2.75", "double precision", 2.75),
    ("long", "7", "double precision", 7.0),
    ("date", "2026-11-19", "timestamp", dt.datetime(2026, 11, 19)),
    ("timestamp_ntz", "2026-11-19 00:00", "date", dt.date(2026, 11, 19)),
]


@pytest.mark.parametrize(("kind", "value", "column", "found"), KEPT, ids=[f"{a} {c}" for a, _, c, _ in KEPT])
def test_a_value_that_the_table_can_hold_is_stored(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: str, value: str, column: str, found: Any
):
    table = table_of(url, column)
    monkeypatch.setattr(PostgresSink, "_fill", fill_one)
    assert PostgresSink(url, table).write(made(kind, value), commit(0, 0)) == 1
    assert asked(url, f"SELECT v FROM {table}") == [(found,)]


def test_a_type_of_which_no_value_fits_is_refused(url: str, monkeypatch: pytest.MonkeyPatch):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE clock (v time)")
    monkeypatch.setattr(PostgresSink, "_fill", fill_one)
    with pytest.raises(Invalid, match="v is time without time zone, and the rows have timestamptz"):
        PostgresSink(url, "clock").write(made("timestamp", "2026-11-19 10:00+00"), commit(0, 0))


def test_what_cannot_be_stored_is_told_and_nothing_is_there(spark: SparkSession, url: str):
    sink = PostgresSink(url, "refused")
    strict = PostgresSink(url, "refused", on_nul="refuse")
    for text in (r"'a\u0000b'", r"named_struct('x', 'a\u0000b')"):
        with pytest.raises(Invalid, match=r'a text holds a NUL, .* set on_nul = "replace"'):
            strict.write(spark.sql(f"SELECT {text} AS a"), commit(0, 0))
    with pytest.raises(Invalid, match="on_nul is one of replace, refuse"):
        PostgresSink(url, "refused", on_nul="drop")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="no column for interval"):
        sink.write(spark.sql("SELECT INTERVAL '1' DAY AS a"), commit(0, 0))
    assert sink.last_committed(spark, "B") is None


def test_a_nul_becomes_another_character_at_any_depth(spark: SparkSession, url: str):
    nul, kept = r"'\u0000a\u0000\u0000'", r"'\\u0000'"
    nested = f"named_struct('x', array({nul}, {kept}), 'n', 1) AS nested, map({nul}, {nul}) AS pairs"
    frame = spark.sql(f"SELECT {nul} AS plain, {kept} AS kept, CAST(NULL AS string) AS nothing, {nested}, X'00' AS raw")
    assert frame.select(holds_nul(frame)).first() == (True,)
    clean = frame.select("kept", "nothing", f.array("kept").alias("nested"))
    assert clean.select(holds_nul(clean)).first() == (False,)
    assert PostgresSink(url, "nul").write(frame, commit(0, 0)) == 1
    sign = "\ufffda\ufffd\ufffd"
    (row,) = asked(url, "SELECT * FROM nul")
    assert row == (sign, r"\u0000", None, {"x": [sign, r"\u0000"], "n": 1}, {sign: sign}, b"\0")


def test_rows_that_a_task_wrote_twice_are_taken_once(spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch):
    """Each attempt of a task is a transaction of its own; one that was repeated after its commit has left two."""
    sink, fill = PostgresSink(url, "twice"), PostgresSink._fill

    def twice(self: PostgresSink, *args: Any) -> None:
        fill(self, *args)
        fill(self, *args)

    monkeypatch.setattr(PostgresSink, "_fill", twice)
    assert sink.write(rows(spark, 0, 3), commit(0, 3)) == 40
    assert asked(url, "SELECT count(*), count(DISTINCT id) FROM twice") == [(40, 40)]


def test_a_lost_answer_to_the_commit_is_indeterminate_and_the_range_is_there_once(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
):
    sink, real = PostgresSink(url, "lost"), psycopg.Connection.commit

    def lost(self: psycopg.Connection[Any]) -> None:
        real(self)
        raise psycopg.OperationalError(f"server closed the connection, {PASSWORD}")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "commit", lost)
        with pytest.raises(Indeterminate) as caught:
            sink.write(rows(spark, 0, 0), commit(0, 0))
    assert PASSWORD not in str(caught.value)
    sink.write(rows(spark, 0, 0), commit(0, 0))
    assert asked(url, "SELECT count(*) FROM lost") == [(10,)]


def test_a_driver_that_was_given_up_adds_nothing(spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch):
    sink, real, overtaken = PostgresSink(url, "stale"), PostgresSink._commit, list[int]()

    def slow(self: PostgresSink, *args: Any) -> None:
        if not overtaken:
            overtaken.append(1)
            PostgresSink(url, "stale").write(rows(spark, 0, 0), commit(0, 0))
        real(self, *args)

    monkeypatch.setattr(PostgresSink, "_commit", slow)
    sink.write(rows(spark, 0, 0), commit(0, 0))
    assert asked(url, "SELECT count(*) FROM stale") == [(10,)]


def crash(url: str) -> None:
    """Kill a backend, as the kernel does where memory runs out, and wait until the server has restarted.

    PostgreSQL then ends all other sessions and recovers, which empties unlogged tables: that is what is waited for.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS canary; CREATE UNLOGGED TABLE canary AS SELECT 1 AS a")
        pid = connection.info.backend_pid
        os.kill(pid, signal.SIGKILL)
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        with contextlib.suppress(psycopg.OperationalError):
            if asked(url, "SELECT * FROM canary") == []:
                return
        time.sleep(0.05)
    raise AssertionError("PostgreSQL did not come back")


def test_a_crash_of_the_server_between_fill_and_commit_loses_no_range(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
):
    sink, fill = PostgresSink(url, "crashed"), PostgresSink._fill
    sink.write(rows(spark, 0, 0), commit(0, 0))

    def then_crash(self: PostgresSink, *args: Any) -> None:
        fill(self, *args)
        crash(url)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresSink, "_fill", then_crash)
        with pytest.raises(Overloaded) as caught:
            sink.write(rows(spark, 1, 1), commit(1, 1))
    assert caught.value.code == "staging_lost"
    assert sink.last_committed(spark, "B") == 0
    sink.write(rows(spark, 1, 1), commit(1, 1))
    assert asked(url, "SELECT count(*), count(DISTINCT id) FROM crashed") == [(20, 20)]
    prefix = Staging.of(commit(1, 1), "public", "crashed").prefix
    assert asked(url, f"SELECT tablename FROM pg_tables WHERE starts_with(tablename, '{prefix}')") == []


def test_a_staging_table_that_a_failover_lost_is_given_up(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
):
    """A standby without the table: Spark, which finds none, makes one without a sentinel."""
    sink, fill = PostgresSink(url, "failed_over"), PostgresSink._fill

    def without_table(self: PostgresSink, frame: DataFrame, columns: Any, staging: Any) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(f'DROP TABLE "{staging.name}"')
        fill(self, frame, columns, staging)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresSink, "_fill", without_table)
        with pytest.raises(Overloaded) as caught:
            sink.write(rows(spark, 0, 0), commit(0, 0))
    assert caught.value.code == "staging_lost"
    assert sink.last_committed(spark, "B") is None


def test_a_column_that_differs_in_case_alone_takes_the_values(spark: SparkSession, url: str):
    with psycopg.connect(url) as connection:
        connection.execute('CREATE TABLE cased ("Id" bigint, name text)')
    PostgresSink(url, "cased").write(spark.range(2).selectExpr("id", "'a' AS Name"), commit(0, 0))
    assert asked(url, 'SELECT "Id", name FROM cased ORDER BY 1') == [(0, "a"), (1, "a")]
    assert asked(url, "SELECT count(*) FROM pg_attribute WHERE attrelid = 'cased'::regclass AND attnum > 0") == [(2,)]


def test_a_database_that_cannot_be_used_says_why(spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGPASSWORD", "wrong-password")
    with pytest.raises(Denied) as denied:
        PostgresSink(url, "t").last_committed(spark, "B")
    assert "wrong-password" not in str(denied.value)
    with pytest.raises(Overloaded):
        PostgresSink("postgresql://u@127.0.0.1:1/d", "t").last_committed(spark, "B")
