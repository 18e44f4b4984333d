"""Decode a frame's entries into typed columns; an entry that does not fit never stops a job.

Spark's ``from_json`` is too loose here: it stops after the first value of a text and ignores what follows, and it
accepts quotes that JSON does not. So the last brace of an entry is replaced by one more field and a brace. The object
that Spark finds has this field only if the last brace closes it, and then nothing follows it. The field's name is a
secret of the process, so that no entry has it by itself.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal

from tenure.spark.decode.values import misfit, parsed_type, restored

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["MALFORMED", "MALFORMED_CHARS_MAX", "RENAMED", "Format", "decoded"]

Format = Literal["json", "text", "binary"]
MALFORMED: Final = "_malformed"
"""The column with the text of an entry that could not be decoded; null beside every other."""
MALFORMED_CHARS_MAX: Final = 10_000
"""The part of such a text that is kept."""
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
"""The replacement of the last brace."""
_SPACE: Final = "[ \\t\\r\\n]*"
_EMPTY: Final = rf"\A{_SPACE}\{{{_SPACE}\}}{_SPACE}\z"
"""An object without fields; one more field after a comma does not make it JSON."""
_TIME_PARSER: Final = "spark.sql.legacy.timeParserPolicy"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF_A_PAIR: Final = f"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
"""An escape that is half of a surrogate pair without the other half, in a text without escaped backslashes."""


def decoded(frame: DataFrame, schema: StructType | None = None, *, format: Format = "json") -> DataFrame:
    """Return the raw columns renamed, the entry's fields beside them, and ``_malformed`` last.

    ``json`` needs a schema; ``text`` gives one column ``text``, ``binary`` one column ``entry``. An entry that is not
    UTF-8, not JSON, not an object, or has a field of another type than the schema's, has null in every field and its
    text in ``_malformed``. An absent field is null, one that the schema does not name is left out.
    """
    from pyspark.sql import functions as f

    kept = [f.col(raw).alias(name) for raw, name in RENAMED.items()]
    if format == "binary":
        return frame.select(*kept, f.col("entry"), f.lit(None).cast("string").alias(MALFORMED))
    entry = f.col("entry")
    text = entry.cast("string")
    if format == "text":
        is_utf8 = _is_utf8(entry)
        return frame.select(*kept, f.when(is_utf8, text).alias("text"), f.when(~is_utf8, _bound(text)).alias(MALFORMED))
    assert schema is not None, "JSON is decoded by a schema"
    _let_bad_dates_be(frame.sparkSession)
    # Spark keeps these steps apart, as each uses its predecessor's result more than once. It interprets what is inside
    # `from_json`, so compiled code makes the text before it. The checks run once for each entry and not for each field,
    # and the text for `_malformed` is made only for an entry that does not fit.
    ended = frame.select(
        *kept, f.when(_is_closed(text) & _is_unicode(entry), _with_end_field(entry)).otherwise(text).alias(_TEXT)
    )
    parsed = ended.select("*", f.from_json(_TEXT, _with_end(schema), _OPTIONS).alias(_WHOLE))
    whole = f.col(_WHOLE)
    fits = whole[_END] & whole[_CORRUPT].isNull()
    if (some_misfit := misfit(whole, schema)) is not None:
        fits = fits & ~some_misfit
    checked = parsed.select(*RENAMED.values(), _TEXT, f.when(fits, whole).alias(_ONE))
    fields = [restored(f.col(_ONE)[each.name], each.dataType).alias(each.name) for each in schema]
    given = f.replace(f.col(_TEXT), f.lit(_LAST), f.lit("}"))
    malformed = f.when(f.col(_ONE).isNull() & ~given.rlike(_EMPTY), _bound(given)).alias(MALFORMED)
    return checked.select(*RENAMED.values(), *fields, malformed)


def _is_closed(text: Column) -> Column:
    """Return whether there is a last brace, followed by nothing but space."""
    from pyspark.sql import functions as f

    behind = _behind(text)
    return (f.octet_length(behind) < f.octet_length(text)) & ((behind == "") | behind.rlike(rf"\A{_SPACE}\z"))


def _with_end_field(entry: Column) -> Column:
    """Return the text of an entry with one field more, which shows where it ends."""
    from pyspark.sql import functions as f

    space = _behind(entry.cast("string")).cast("binary")
    head = entry.substr(f.lit(1), f.length(entry) - f.length(space) - 1)
    return f.concat(head, f.lit(_LAST).cast("binary"), space).cast("string")


def _behind(text: Column) -> Column:
    from pyspark.sql import functions as f

    return f.substring_index(text, "}", -1)


def _bound(text: Column) -> Column:
    """Return the first characters; to bytes and back leaves no byte that is not UTF-8."""
    from pyspark.sql import functions as f

    return f.substring(f.encode(text, "UTF-8").cast("string"), 1, MALFORMED_CHARS_MAX)


def _is_utf8(entry: Column) -> Column:
    """Return whether the bytes are UTF-8.

    Text read from other bytes has U+FFFD in it, which the JVM finds faster than Spark checks bytes; where it is found,
    the text is encoded and compared, as it may have been there.
    """
    from pyspark.sql import functions as f

    text = entry.cast("string")
    return (f.size(f.split(text, "\ufffd", 2)) == 1) | (f.encode(text, "UTF-8") == entry)


def _is_unicode(entry: Column) -> Column:
    """Return whether the bytes are UTF-8, and no escape in them is half of a surrogate pair.

    A text that is equal to what stands before its first backslash has neither bytes that are not UTF-8, as they would
    have become U+FFFD on the way, nor an escape: one pass in the JVM for most entries.
    """
    from pyspark.sql import functions as f

    text = entry.cast("string")
    escapes = f.replace(text, f.lit("\\\\"), f.lit("__"))
    halves = f.contains(text, f.lit("\\u")) & escapes.rlike(_HALF_A_PAIR)
    return (f.split(text, r"\\", 2)[0] == text) | ((f.encode(text, "UTF-8") == entry) & ~halves)


def _let_bad_dates_be(spark: SparkSession) -> None:
    """Configure the session to take an ambiguous old date as malformed.

    Before 4.0 a date that Spark 2 might have read otherwise ends the job; later versions do this by themselves.
    """
    if spark.version.startswith("3.") and spark.conf.get(_TIME_PARSER) != "CORRECTED":
        spark.conf.set(_TIME_PARSER, "CORRECTED")


def _with_end(schema: StructType) -> StructType:
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    read = [StructField(each.name, parsed_type(each.dataType)) for each in schema]
    return StructType([*read, StructField(_END, BooleanType()), StructField(_CORRUPT, StringType())])
