"""Typed decode by another way, for comparison: each entry as the one element of an array in an object.

It knows one thing less than ``tenure.spark.decode``: an entry that closes the array and the object itself passes,
whatever follows. Times and numbers beyond a double are judged by the same expressions; ``test_decode`` has their table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from tenure.spark.decode import MALFORMED, MALFORMED_CHARS_MAX, RENAMED
from tenure.spark.decode.values import misfit, parsed_type, restored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def wrapped_decode(frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of ``decoded(frame, schema)``."""
    wrapped = StructType([StructField("v", ArrayType(parsed_type(schema))), StructField("corrupt", StringType())])
    entry, text = f.col("entry"), f.col("entry").cast("string")
    clean = f.encode(text, "UTF-8")
    parsed = frame.withColumn("w", f.from_json(f.concat(f.lit('{"v":['), text, f.lit("]}")), wrapped, OPTIONS))
    sound = f.col("w.corrupt").isNull() & (f.size("w.v") == 1) & f.get("w.v", f.lit(0)).isNotNull() & (clean == entry)
    if (some_misfit := misfit(f.get("w.v", f.lit(0)), schema)) is not None:
        sound = sound & ~some_misfit
    checked = parsed.withColumn("one", f.when(f.coalesce(sound, f.lit(False)), f.get("w.v", f.lit(0))))
    bounded = f.substring(clean.cast("string"), 1, MALFORMED_CHARS_MAX)
    return checked.select(
        *(f.col(raw).alias(name) for raw, name in RENAMED.items()),
        *(restored(f.col("one")[each.name], each.dataType).alias(each.name) for each in schema),
        f.when(f.col("one").isNull(), bounded).alias(MALFORMED),
    )
