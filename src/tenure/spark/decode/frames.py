"""Entries of a frame as typed columns; an entry that does not fit never stops a job.

Spark's ``from_json`` is looser than what is wanted here: it ends with the first value of a text and takes whatever
follows for nothing, and it knows of quotes that JSON does not. So the last brace of an entry is replaced by a field
more and a brace. The object that Spark finds has this field if it is the one that the last brace closes, and then
nothing follows it. The field's name is a secret of the process, so that no entry has it by itself.
"""

from __future__ import annotations

import secrets
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
_TEXT: Final = "_text"
_WHOLE: Final = "_whole"
_ONE: Final = "_one"
_END: Final = secrets.token_hex(4)
_CORRUPT: Final = f"{_END}_corrupt"
_LAST: Final = f',"{_END}":true}}'
"""What stands for the last brace."""
_SPACE: Final = "[ \\t\\r\\n]*"
_EMPTY: Final = rf"\A{_SPACE}\{{{_SPACE}\}}{_SPACE}\z"
"""An object without fields; one more field behind a comma makes no JSON of it."""
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
    is_utf8 = _is_utf8(entry)
    if format == "text":
        return frame.select(
            *kept, f.when(is_utf8, text).alias("text"), f.when(~is_utf8, _bounded(text)).alias(MALFORMED)
        )
    assert schema is not None, "JSON is decoded by a schema"
    _let_bad_dates_be(frame.sparkSession)
    # Spark keeps these steps apart, as each uses more than once what the one before has made. It interprets what stands
    # inside `from_json`, so the text is made before it, by compiled code. The checks run once for each entry and not
    # once for each field, and the text for `_malformed` is made where an entry does not fit, and nowhere else.
    ended = frame.select(*kept, f.when(_is_closed(text) & is_utf8, _ended(entry)).otherwise(text).alias(_TEXT))
    parsed = ended.select("*", f.from_json(_TEXT, _with_end(schema), _OPTIONS).alias(_WHOLE))
    whole = f.col(_WHOLE)
    fits = whole[_END] & whole[_CORRUPT].isNull()
    checked = parsed.select(*RENAMED.values(), _TEXT, f.when(fits, whole).alias(_ONE))
    fields = [f.col(_ONE)[name].alias(name) for name in schema.names]
    given = f.replace(f.col(_TEXT), f.lit(_LAST), f.lit("}"))
    malformed = f.when(f.col(_ONE).isNull() & ~given.rlike(_EMPTY), _bounded(given)).alias(MALFORMED)
    return checked.select(*RENAMED.values(), *fields, malformed)


def _is_closed(text: Column) -> Column:
    """Whether there is a last brace, and nothing but space behind it."""
    from pyspark.sql import functions as f

    behind = _behind(text)
    return (f.octet_length(behind) < f.octet_length(text)) & ((behind == "") | behind.rlike(rf"\A{_SPACE}\z"))


def _ended(entry: Column) -> Column:
    """The text of an entry with one field more, which shows where it ends."""
    from pyspark.sql import functions as f

    space = _behind(entry.cast("string")).cast("binary")
    head = entry.substr(f.lit(1), f.length(entry) - f.length(space) - 1)
    return f.concat(head, f.lit(_LAST).cast("binary"), space).cast("string")


def _behind(text: Column) -> Column:
    from pyspark.sql import functions as f

    return f.substring_index(text, "}", -1)


def _bounded(text: Column) -> Column:
    """The first characters; to bytes and back leaves no byte that is not UTF-8."""
    from pyspark.sql import functions as f

    return f.substring(f.encode(text, "UTF-8").cast("string"), 1, MALFORMED_CHARS_MAX)


def _is_utf8(entry: Column) -> Column:
    """Whether the bytes are UTF-8. Text that is read from other bytes has U+FFFD in it, which the JVM finds faster than
    Spark checks bytes; where it is found, the text is written and compared, as it may have been there.
    """
    from pyspark.sql import functions as f

    text = entry.cast("string")
    return (f.size(f.split(text, "\ufffd", 2)) == 1) | (f.encode(text, "UTF-8") == entry)


def _let_bad_dates_be(spark: SparkSession) -> None:
    """Before 4.0 a date that Spark 2 might have read otherwise ends the job, unless the session says that it is merely
    bad, as later versions do by themselves.
    """
    if spark.version.startswith("3.") and spark.conf.get(_TIME_PARSER) != "CORRECTED":
        spark.conf.set(_TIME_PARSER, "CORRECTED")


def _with_end(schema: StructType) -> StructType:
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    return StructType([*schema, StructField(_END, BooleanType()), StructField(_CORRUPT, StringType())])
