"""Values that the reference judges otherwise than Spark's JSON parser: times as numbers, and numbers beyond a double.

Spark takes a whole number for a timestamp and refuses one with a fraction, which is what every ``time.time()`` gives.
So times are parsed as text and read here. Text of a number and a number are the same then; the few of them that could
be a year as well (``2026``) do not fit. A number too large for a double is infinite, which no JSON number is by itself.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

__all__ = ["misfit", "parsed_type", "restored"]

_NUMBER: Final = r"\A-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\z"
_NUMBER_OR_YEAR: Final = r"\A-?[0-9]{4,6}\z"
_SECONDS_MAX: Final = 9_223_372_036_854.0
"""The last second that a timestamp, a long of microseconds, has."""


def parsed_type(kind: DataType) -> DataType:
    """Return the type as which Spark's parser reads values of this type."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType, TimestampType

    match kind:
        case TimestampType():
            return StringType()
        case StructType():
            return StructType([StructField(each.name, parsed_type(each.dataType), each.nullable) for each in kind])
        case ArrayType():
            return ArrayType(parsed_type(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, parsed_type(kind.valueType), kind.valueContainsNull)
        case _:
            return kind


def restored(value: Column, kind: DataType) -> Column:
    """Return a parsed value as one of the type itself."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if parsed_type(kind) == kind:
        return value
    match kind:
        case TimestampType():
            return _moment(value)
        case StructType():
            fields = [restored(value[each.name], each.dataType).alias(each.name) for each in kind]
            return f.when(value.isNotNull(), f.struct(*fields))
        case ArrayType():
            return f.transform(value, lambda each: restored(each, kind.elementType))
        case MapType():
            return f.transform_values(value, lambda _, each: restored(each, kind.valueType))
        case _:
            raise AssertionError(f"{kind} is parsed as it is")


def misfit(value: Column, kind: DataType) -> Column | None:
    """Return whether a parsed value does not fit its type, true or false; None where Spark's parser has seen to it."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType, TimestampType

    match kind:
        case TimestampType():
            return value.isNotNull() & _moment(value).isNull()
        case DoubleType() | FloatType():
            return f.coalesce(f.abs(value) == float("inf"), f.lit(False))
        case StructType():
            found = [each for field in kind if (each := misfit(value[field.name], field.dataType)) is not None]
            return reduce(or_, found) if found else None
        case ArrayType() if misfit(value, kind.elementType) is not None:
            return f.coalesce(f.exists(value, lambda each: _known(misfit(each, kind.elementType))), f.lit(False))
        case MapType() if misfit(value, kind.valueType) is not None:
            values = f.map_values(value)
            return f.coalesce(f.exists(values, lambda each: _known(misfit(each, kind.valueType))), f.lit(False))
        case _:
            return None


def _known(found: Column | None) -> Column:
    assert found is not None
    return found


def _moment(text: Column) -> Column:
    """Return the time that a text in ISO 8601 or a number of seconds since 1970 means; null where it means none."""
    from pyspark.sql import functions as f

    is_date = (f.substring(text, 5, 1) == "-") & (f.substring(text, 8, 1) == "-")
    spelled = f.try_to_timestamp(text).cast("timestamp")
    seconds = text.cast("double")
    fits = ~text.rlike(_NUMBER_OR_YEAR) & (f.abs(seconds) <= _SECONDS_MAX)
    return (
        f.when(is_date, spelled)
        .when(~text.rlike(_NUMBER), spelled)
        .when(fits, f.timestamp_micros(f.round(seconds * 1_000_000).cast("long")))
    )
