"""Rows whose every column may be null, whatever Spark has concluded about them.

Spark reads the files of a log such as a file table's with the nullability that they were written with. A column that
joins later is absent from the older files; written as one that is never null, it would be read there as 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = ["nullable"]


def nullable(frame: DataFrame) -> DataFrame:
    """The same rows; columns that Spark holds for never null are null as far as it can tell."""
    from pyspark.sql import functions as f

    if all(field.nullable and _open(field.dataType) == field.dataType for field in frame.schema.fields):
        return frame
    columns = []
    for field in frame.schema.fields:
        column = f.col("`" + field.name.replace("`", "``") + "`")
        if not field.nullable or _open(field.dataType) != field.dataType:
            # Always true, but not a constant that the optimizer may see through.
            column = f.when(f.spark_partition_id() >= 0, column.cast(_open(field.dataType))).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _open(kind: DataType) -> DataType:
    """The type with everything inside of it nullable."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(field.name, _open(field.dataType), True) for field in kind.fields])
        case ArrayType():
            return ArrayType(_open(kind.elementType), True)
        case MapType():
            return MapType(kind.keyType, _open(kind.valueType), True)
        case _:
            return kind
