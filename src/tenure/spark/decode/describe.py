"""Types as a schema file spells them: ``long``, ``decimal(10,2)``, ``array<string>``, ``map<string,long>``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["SPELLED", "type_of"]

_PLAIN: Final = {
    "string": "StringType",
    "long": "LongType",
    "bigint": "LongType",
    "integer": "IntegerType",
    "int": "IntegerType",
    "short": "ShortType",
    "byte": "ByteType",
    "double": "DoubleType",
    "float": "FloatType",
    "boolean": "BooleanType",
    "timestamp": "TimestampType",
    "date": "DateType",
    "binary": "BinaryType",
}
SPELLED: Final = f"{', '.join(_PLAIN)}, decimal(10,2), array<…>, map<string,…>"
"""Every type there is, for an error message."""
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_ARRAY: Final = re.compile(r"array<(.*)>", re.DOTALL)
_MAP: Final = re.compile(r"map<\s*string\s*,(.*)>", re.DOTALL)
_DIGITS_MAX: Final = 38


def type_of(word: str) -> DataType:
    """The Spark type of that name. Raises ValueError, which says what is wrong with it."""
    from pyspark.sql import types

    word = word.strip()
    if word in _PLAIN:
        kind: DataType = getattr(types, _PLAIN[word])()
        return kind
    if match := _DECIMAL.fullmatch(word):
        digits, scale = int(match[1]), int(match[2])
        if not 1 <= digits <= _DIGITS_MAX or scale > digits:
            raise ValueError(f"{word}: a decimal has 1 to {_DIGITS_MAX} digits, and no more of them behind the point")
        return types.DecimalType(digits, scale)
    if match := _ARRAY.fullmatch(word):
        return types.ArrayType(type_of(match[1]))
    if match := _MAP.fullmatch(word):
        return types.MapType(types.StringType(), type_of(match[1]))
    raise ValueError(f"{word!r} is no type; there are {SPELLED}")
