"""Entries of a frame as typed columns; an entry that does not fit never stops a job.

Spark's ``from_json`` is looser than what is wanted here: it ends with the first value of a text and takes whatever
follows for nothing, and it knows of quotes that JSON does not. So an entry is read as the one element of an array in
an object: then whatever follows it is an error, or a second element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["MALFORMED", "MALFORMED_CHARS_MAX", "RENAMED", "Format", "decoded"]

Format = Literal["json", "text", "binary"]
MALFORMED: Final = "_malformed"
"""The column with the text of an entry that could not be decoded; null beside every other."""
MALFORMED_CHARS_MAX: Final = 10_000
"""How much of such a text is kept."""
RENAMED: Final = {
    "seq": "_seq",
    "index": "_index",
    "ingestion_time": "_ingestion_time",
    "metadata": "_metadata",
}
_WHOLE: Final = "_whole"
_ONE: Final = "_one"
_CORRUPT: Final = "_corrupt"
_TIME_PARSER: Final = "spark.sql.legacy.timeParserPolicy"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
}


def decoded(frame: DataFrame, schema: StructType | None = None, *, format: Format = "json") -> DataFrame:
    """The raw columns renamed, the entry's fields beside them, and ``_malformed`` last.

    ``json`` needs a schema; ``text`` gives one column ``text``, ``binary`` one column ``entry``. An entry that is not
    UTF-8, not JSON, not an object, or has a field of another type than the schema says, has null in every field and
    its text in ``_malformed``. A field that is absent is null, one that the schema does not name is left out.
    """
    from pyspark.sql import functions as f

    kept = [f.col(raw).alias(name) for raw, name in RENAMED.items()]
    if format == "binary":
        return frame.select(*kept, f.col("entry"), f.lit(None).cast("string").alias(MALFORMED))
    entry = f.col("entry")
    text = entry.cast("string")
    # To bytes and back leaves no byte that is not UTF-8, and is the entry itself where there was none.
    clean = f.encode(text, "UTF-8")
    is_utf8 = clean == entry
    bounded = f.substring(clean.cast("string"), 1, MALFORMED_CHARS_MAX)
    if format == "text":
        return frame.select(*kept, f.when(is_utf8, text).alias("text"), f.when(~is_utf8, bounded).alias(MALFORMED))
    assert schema is not None, "JSON is decoded by a schema"
    _let_bad_dates_be(frame.sparkSession)
    whole = f.from_json(f.concat(f.lit('{"v":['), text, f.lit("]}")), _wrapped(schema), _OPTIONS)
    parsed = frame.select(*kept, entry, whole.alias(_WHOLE))
    # Choosing the object is a step of its own: the checks run once for each entry and not once for each field, and the
    # text for `_malformed` is made where an entry does not fit, and nowhere else.
    one = f.when(_is_one_object() & is_utf8, f.col(_WHOLE)["v"][0]).alias(_ONE)
    checked = parsed.select(*RENAMED.values(), entry, one)
    fields = [f.col(_ONE)[name].alias(name) for name in schema.names]
    malformed = f.when(f.col(_ONE).isNull(), bounded).alias(MALFORMED)
    return checked.select(*RENAMED.values(), *fields, malformed)


def _let_bad_dates_be(spark: SparkSession) -> None:
    """Before 4.0 a date that Spark 2 might have read otherwise ends the job, unless the session says that it is merely
    bad, as later versions do by themselves.
    """
    if spark.version.startswith("3.") and spark.conf.get(_TIME_PARSER) != "CORRECTED":
        spark.conf.set(_TIME_PARSER, "CORRECTED")


def _wrapped(schema: StructType) -> StructType:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    return StructType([StructField("v", ArrayType(schema)), StructField(_CORRUPT, StringType())])


def _is_one_object() -> Column:
    """Whether the text was one object of the schema; never null."""
    from pyspark.sql import functions as f

    whole = f.col(_WHOLE)
    sound = whole[_CORRUPT].isNull() & (f.size(whole["v"]) == 1) & whole["v"][0].isNotNull()
    return f.coalesce(sound, f.lit(False))
