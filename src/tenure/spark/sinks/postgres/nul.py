"""NUL in texts: the one character that JSON and Spark have and PostgreSQL has not.

A text has it as it is. A struct, an array or a map goes to PostgreSQL as JSON, where it is an escape, which ``jsonb``
refuses too; behind an even number of backslashes it is one, behind an odd number it is text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tenure.spark.sinks.arguments import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OnNul", "holds_nul", "replace_escaped_nul", "replace_nul"]

OnNul = Literal["replace", "refuse"]

_NUL: Final = "\0"
_INSTEAD: Final = "\ufffd"
"""Unicode's own sign for a character that could not be kept."""
_ESCAPED: Final = r"\u0000"
_ESCAPE: Final = r"(?<!\\)((?:\\\\)*)\\u0000"
_NESTED: Final = ("struct", "array", "map")


def replace_nul(text: Column) -> Column:
    """Return a text with U+FFFD for every NUL."""
    from pyspark.sql import functions as f

    return f.replace(text, f.lit(_NUL), f.lit(_INSTEAD))


def replace_escaped_nul(json: Column) -> Column:
    """Return JSON with U+FFFD for every NUL in its texts and keys."""
    from pyspark.sql import functions as f

    # The search for the characters is much cheaper than the expression, which hardly any row needs.
    return f.when(json.contains(_ESCAPED), f.regexp_replace(json, _ESCAPE, f"$1{_INSTEAD}")).otherwise(json)


def holds_nul(rows: DataFrame) -> Column:
    """Return whether a row has a NUL in any text, also in a nested one."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for field in rows.schema.fields:
        column, kind = f.col(quote_name(field.name)), field.dataType.simpleString()
        if kind.startswith("string"):
            found = found | f.coalesce(f.contains(column, f.lit(_NUL)), f.lit(False))
        elif kind.startswith(_NESTED) and "string" in kind:
            json = f.to_json(column)
            found = found | f.coalesce(json.contains(_ESCAPED) & json.rlike(_ESCAPE), f.lit(False))
    return found
