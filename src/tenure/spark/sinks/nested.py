"""Nested fields: align rows that lack some of the table's; an absent field is null, as an absent column is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenure.spark.sinks.arguments import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["align", "new_fields"]


def new_fields(rows: StructType, table: StructType) -> list[str]:
    """Return the fields of the rows, nested ones by their path, that the table does not have."""
    return list(_new_fields(rows, table, ""))


def align(frame: DataFrame, table: StructType) -> DataFrame:
    """Return the rows with every nested field that the table has in the columns that the rows have."""
    from pyspark.sql import functions as f

    known = {field.name.lower(): field.dataType for field in table.fields}
    columns: list[Column] = []
    changed = False
    for field in frame.schema.fields:
        column, wanted = f.col(quote_name(field.name)), known.get(field.name.lower())
        if wanted is not None and _lacks(field.dataType, wanted):
            column, changed = _fit(column, field.dataType, wanted).alias(field.name), True
        columns.append(column)
    return frame.select(*columns) if changed else frame


def _new_fields(given: DataType, table: DataType, path: str) -> Iterator[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match given, table:
        case StructType(), StructType():
            known = {field.name.lower(): field.dataType for field in table.fields}
            for field in given.fields:
                name, wanted = f"{path}{field.name}", known.get(field.name.lower())
                if wanted is None:
                    yield name
                else:
                    yield from _new_fields(field.dataType, wanted, f"{name}.")
        case ArrayType(), ArrayType():
            yield from _new_fields(given.elementType, table.elementType, path)
        case MapType(), MapType():
            yield from _new_fields(given.valueType, table.valueType, path)


def _lacks(given: DataType, wanted: DataType) -> bool:
    """Return whether a nested field of ``wanted`` is absent from ``given``."""
    return next(_new_fields(wanted, given, ""), None) is not None


def _fit(column: Column, given: DataType, wanted: DataType) -> Column:
    """Return the value with the fields of both types, those of ``wanted`` first; null stays null."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    match given, wanted:
        case StructType(), StructType():
            held = {field.name.lower(): field for field in given.fields}
            fields: list[Column] = []
            for field in wanted.fields:
                own = held.pop(field.name.lower(), None)
                value = f.lit(None).cast(field.dataType)
                if own is not None:
                    value = _fit(column.getField(own.name), own.dataType, field.dataType)
                fields.append(value.alias(field.name))
            fields += [column.getField(own.name).alias(own.name) for own in held.values()]
            return f.when(column.isNotNull(), f.struct(*fields))
        case ArrayType(), ArrayType():
            return f.transform(column, lambda each: _fit(each, given.elementType, wanted.elementType))
        case MapType(), MapType():
            return f.transform_values(column, lambda _, each: _fit(each, given.valueType, wanted.valueType))
        case _:
            return column
