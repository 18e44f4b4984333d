"""The mapping of Spark's columns to PostgreSQL's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenure.errors import Invalid
from tenure.spark.sinks.arguments import quote_name
from tenure.spark.sinks.postgres.casts import Cast, cast_of
from tenure.spark.sinks.postgres.nul import OnNul, replace_escaped_nul, replace_nul

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["ATTEMPT", "PART", "Column", "Taken", "columns_of", "flatten", "taken_by"]

PART, ATTEMPT = "_tenure_part", "_tenure_attempt"
"""Columns of a staging table beside the rows': the partition, and the transaction that wrote it."""

_PLAIN = {
    "string": "text",
    "binary": "bytea",
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_NESTED = ("struct", "array", "map")
_NAME_BYTES_MAX = 63


class Column(NamedTuple):
    """A column: its type in the staging table, and in a table that is made for it."""

    name: str
    staged: str
    final: str


class Taken(NamedTuple):
    """A column of the rows, and the column of the table that takes it; ``joins`` where the table has none yet."""

    name: str
    target: str
    kind: str
    joins: bool
    cast: Cast


def columns_of(schema: StructType) -> list[Column]:
    """Return the columns for a frame's schema: structs, arrays and maps become JSON.

    Raises Invalid (``sink_rejected``) for names and types that PostgreSQL lacks, all of them at once.
    """
    problems = list[str]()
    columns = list[Column]()
    for field in schema.fields:
        kind = _kind(field.dataType)
        if kind is None:
            problems.append(f"{field.name}: no column for {field.dataType.simpleString()}")
        elif problem := _name_problem(field.name):
            problems.append(f"{field.name}: {problem}")
        else:
            columns.append(Column(field.name, "text" if kind == "jsonb" else kind, kind))
    if not columns and not problems:
        problems.append("the rows have no columns")
    if len({column.name.lower() for column in columns}) < len(columns):
        problems.append("two columns have the same name but for upper and lower case")
    if problems:
        raise Invalid("PostgreSQL cannot take the rows: " + "; ".join(problems), code="sink_rejected")
    return columns


def taken_by(types: Mapping[str, str], columns: Sequence[Column]) -> list[Taken]:
    """Return which column of a table of ``types`` takes each column of the rows, and which ones join the table.

    Spark takes ``Id`` and ``id`` for one column, PostgreSQL for two: without a column of the very same name, the one
    that differs in case alone takes the values. Raises Invalid (``sink_rejected``) where several do, and for types of
    which no value is one of the other.
    """
    taken = list[Taken]()
    for column in columns:
        alike = [column.name] if column.name in types else [n for n in types if n.lower() == column.name.lower()]
        if len(alike) > 1:
            raise Invalid(
                f"the table has {' and '.join(sorted(alike))}, and the rows have {column.name}: rename it to one of "
                "them in the last step",
                code="sink_rejected",
            )
        target = alike[0] if alike else column.name
        kind = types.get(target, column.final)
        cast = cast_of(column.staged, kind)
        if cast.is_lossy:
            raise Invalid(
                f"the table's {target} is {kind}, and the rows have {column.staged}: cast it in the last step, or "
                "change the column",
                code="sink_rejected",
            )
        taken.append(Taken(column.name, target, kind, joins=not alike, cast=cast))
    return taken


def flatten(frame: DataFrame, columns: list[Column], *, on_nul: OnNul) -> DataFrame:
    """Return the frame with nested values as JSON, and the number of the partition that each row is in."""
    from pyspark.sql import functions as f

    def flat(column: Column) -> SparkColumn:
        value = frame[quote_name(column.name)]
        replaced = on_nul == "replace"
        if column.final == "jsonb":
            json = f.to_json(value)
            return (replace_escaped_nul(json) if replaced else json).alias(column.name)
        return replace_nul(value).alias(column.name) if replaced and column.final == "text" else value

    return frame.select(*map(flat, columns), f.spark_partition_id().alias(PART))


def _kind(kind: DataType) -> str | None:
    text = kind.simpleString()
    if text.startswith("decimal("):
        return "numeric" + text.removeprefix("decimal")
    if text.startswith(_NESTED):
        return "jsonb"
    if text.startswith("string"):  # with a collation, from Spark 4 on
        return "text"
    return _PLAIN.get(text)


def _name_problem(name: str) -> str | None:
    if name in (PART, ATTEMPT):
        return "the name is taken"
    if not name or len(name.encode()) > _NAME_BYTES_MAX:
        return f"a name has 1 to {_NAME_BYTES_MAX} bytes"
    return "a name has neither quotes nor NUL" if set(name) & set('"\0`') else None
