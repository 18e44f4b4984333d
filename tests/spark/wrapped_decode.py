"""Typed decode by another way, for comparison: each entry as the one element of an array in an object.

It knows one thing less than ``tenure.spark.decode``: an entry that closes the array and the object itself passes,
whatever follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from tenure.spark.decode import MALFORMED, MALFORMED_CHARS_MAX, RENAMED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt", "allowSingleQuotes": "false"}


def wrapped_decode(frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of ``decoded(frame, schema)``."""
    wrapped = StructType([StructField("v", ArrayType(schema)), StructField("corrupt", StringType())])
    entry, text = f.col("entry"), f.col("entry").cast("string")
    clean = f.encode(text, "UTF-8")
    parsed = frame.withColumn("w", f.from_json(f.concat(f.lit('{"v":['), text, f.lit("]}")), wrapped, OPTIONS))
    sound = f.col("w.corrupt").isNull() & (f.size("w.v") == 1) & f.col("w.v")[0].isNotNull() & (clean == entry)
    checked = parsed.withColumn("one", f.when(f.coalesce(sound, f.lit(False)), f.col("w.v")[0]))
    bounded = f.substring(clean.cast("string"), 1, MALFORMED_CHARS_MAX)
    return checked.select(
        *(f.col(raw).alias(name) for raw, name in RENAMED.items()),
        *(f.col("one")[name].alias(name) for name in schema.names),
        f.when(f.col("one").isNull(), bounded).alias(MALFORMED),
    )
