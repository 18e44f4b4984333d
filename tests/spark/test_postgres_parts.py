"""Address, columns and errors of the PostgreSQL sink, without a database and without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import psycopg
import pytest
from pyspark.sql import types as t
from pyspark.sql.types import DataType, StructField, StructType

from tenure.errors import Denied, Invalid, Overloaded
from tenure.spark.sinks.postgres.casts import Cast
from tenure.spark.sinks.postgres.columns import Column, Taken, columns_of, taken_by
from tenure.spark.sinks.postgres.dsn import Address
from tenure.spark.sinks.postgres.sink import PostgresSink, translate, translate_task

SECRET = "s3cr@t/:x"
URL = "postgresql://someone:s3cr%40t%2F%3Ax@db.example:5433/orders?sslmode=require"


def test_both_clients_get_the_same_address():
    address = Address(URL)
    assert address.psycopg()["password"] == SECRET
    assert address.jdbc() == {
        "url": "jdbc:postgresql://db.example:5433/orders",
        "driver": "org.postgresql.Driver",
        "user": "someone",
        "password": SECRET,
        "sslmode": "require",
    }


def test_a_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGPASSWORD", "from outside")
    address = Address("host=::1 user=u dbname=d")
    assert address.jdbc()["password"] == "from outside"
    assert address.jdbc()["url"] == "jdbc:postgresql://[::1]:5432/d"
    assert address.scrub("it is from outside") == "it is ***"


def test_a_password_is_never_shown():
    sink = PostgresSink(URL, "shop.orders")
    for text in (repr(sink), str(sink), repr(sink.__dict__), str(Address(URL))):
        assert "s3cr" not in text
    error = translate(psycopg.OperationalError(f"cannot use {SECRET}"), Address(URL))
    assert SECRET not in str(error)
    assert "db.example" in str(error)
    assert repr(pickle.loads(pickle.dumps(sink))) == repr(sink)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense s3cr@t",
        "postgresql://u:s3cr@t:x@h/d",
        "postgresql://u@h/d?gssencmode=disable",
        "postgresql:///d?user=u",
        "host=/run/postgresql user=u dbname=d",
        "postgresql://u@a,b/d",
        "postgresql://u@h",
        "postgresql://h/d",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str):
    with pytest.raises(Invalid) as caught:
        Address(url)
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("table", ["", "a.b.c", 'a"b', "schema.", "x" * 64])
def test_a_name_that_is_none_is_refused(table: str):
    with pytest.raises(Invalid):
        PostgresSink(URL, table)


def schema(*kinds: DataType | str, names: Sequence[str] = ()) -> StructType:
    return StructType([StructField(name, kind) for name, kind in zip(names or "abcdefghijklmnop", kinds, strict=False)])  # type: ignore[arg-type]


def test_every_type_has_its_column():
    plain = [t.StringType(), t.BinaryType(), t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType()]
    numbers = [t.LongType(), t.FloatType(), t.DoubleType(), t.DecimalType(20, 4)]
    times = [t.DateType(), t.TimestampType(), t.TimestampNTZType()]
    nested = [StructType().add("x", t.LongType()), t.ArrayType(t.LongType()), t.MapType(t.StringType(), t.LongType())]
    assert [column.final for column in columns_of(schema(*plain, *numbers, *times, *nested))] == [
        *("text", "bytea", "boolean", "smallint", "smallint", "integer"),
        *("bigint", "real", "double precision", "numeric(20,4)"),
        *("date", "timestamptz", "timestamp"),
        *("jsonb", "jsonb", "jsonb"),
    ]


@pytest.mark.parametrize("names", [["_tenure_part"], ['a"b'], ["a", "A"], ["x" * 64], [""]])
def test_names_that_postgresql_has_not_are_refused_at_once(names: list[str]):
    with pytest.raises(Invalid) as caught:
        columns_of(schema(*[t.LongType()] * len(names), names=names))
    assert caught.value.code == "sink_rejected"


def test_types_that_postgresql_has_not_are_refused_at_once():
    with pytest.raises(Invalid, match=r"a: no column for interval.*b: no column"):
        columns_of(schema(t.DayTimeIntervalType(), t.NullType()))
    with pytest.raises(Invalid, match="no columns"):
        columns_of(StructType())


def test_a_column_of_the_very_same_name_is_taken_before_one_that_differs_in_case():
    rows = [Column("id", "bigint", "bigint"), Column("Name", "text", "text"), Column("more", "text", "text")]
    assert taken_by({"Id": "text", "id": "integer", "name": "character varying(9)"}, rows) == [
        Taken("id", "id", "integer", joins=False, cast=Cast("integer")),
        Taken("Name", "name", "character varying(9)", joins=False, cast=Cast("character varying", "bpchar")),
        Taken("more", "more", "text", joins=True, cast=Cast("text")),
    ]


def test_two_columns_that_differ_in_case_alone_are_named_where_the_rows_have_a_third():
    with pytest.raises(Invalid, match="the table has ID and Id, and the rows have id") as caught:
        taken_by({"Id": "bigint", "ID": "bigint"}, [Column("id", "bigint", "bigint")])
    assert caught.value.code == "sink_rejected"


def test_errors_say_what_to_do():
    address = Address(URL)
    assert isinstance(translate(psycopg.errors.InsufficientPrivilege("x"), address), Denied)
    assert isinstance(translate(psycopg.errors.NotNullViolation("x"), address), Invalid)
    assert isinstance(translate(psycopg.errors.LockNotAvailable("x"), address), Overloaded)
    assert isinstance(translate(psycopg.OperationalError("connection refused"), address), Overloaded)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("org.postgresql.util.PSQLException: ERROR: numeric field overflow\n  Detail", Invalid),
        ('PSQLException: ERROR: invalid byte sequence for encoding "UTF8": 0x00', Invalid),
        ("PSQLException: Connection to db.example:5433 refused. Check", Overloaded),
        ("PSQLException: FATAL: terminating connection due to administrator command", Overloaded),
        ('PSQLException: FATAL: password authentication failed for user "u"', Denied),
        ("ValueError: of the transform", None),
    ],
)
def test_what_the_database_told_a_task_is_told_on(text: str, kind: type[Exception] | None):
    error = translate_task(RuntimeError(text), Address(URL))
    assert error is None if kind is None else isinstance(error, kind)
