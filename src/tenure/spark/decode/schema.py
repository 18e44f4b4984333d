"""The schema file: which fields an entry has, and of what types.

As TOML, nested like the entries::

    [fields]
    id = "long"
    amount = "decimal(10,2)"
    tags = ["string"]
    counts = "map<string,long>"

    [fields.address]
    city = "string"

A file that ends in ``.json`` holds Spark's own form, ``df.schema.json()``. No Spark is started to read either.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tenure.spark.toml_lines import KeyPath, Located, Problem, problems_error, read_text, read_toml

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["OWN_COLUMNS", "SPELLED", "read_schema", "type_of"]

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
"""Every type there is, for error messages."""
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_ARRAY: Final = re.compile(r"array<(.*)>", re.DOTALL)
_MAP: Final = re.compile(r"map<\s*string\s*,(.*)>", re.DOTALL)
_DIGITS_MAX: Final = 38


def type_of(word: str) -> DataType:
    """Return the Spark type of that name. Raises ValueError with the reason."""
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


OWN_COLUMNS: Final = ("_seq", "_index", "_ingestion_time", "_metadata", "_malformed")
"""Columns beside the fields, so no field may have their names."""
_CODE: Final = "bad_schema"
_FIELDS_MAX: Final = 10_000
_DEPTH_MAX: Final = 32


def read_schema(file: Path) -> StructType:
    """Return the fields of a schema file. Raises Invalid (``bad_schema``) with every mistake, its file and line."""
    schema = _from_json(file) if file.suffix == ".json" else _from_toml(file)
    taken: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in OWN_COLUMNS:
            raise problems_error(
                [Problem(file, None, f"{name} is a column of Tenure's own: name the field otherwise")], code=_CODE
            )
        if taken.setdefault(name.lower(), name) != name:
            message = f"{taken[name.lower()]} and {name} differ in case only, and Spark takes them for the same"
            raise problems_error([Problem(file, None, message)], code=_CODE)
    return schema


def _from_json(file: Path) -> StructType:
    from pyspark.sql.types import StructType

    text = read_text(file, code=_CODE)
    try:
        schema = StructType.fromJson(json.loads(text))
    except json.JSONDecodeError as error:
        raise problems_error([Problem(file, error.lineno, f"is not JSON: {error.msg}")], code=_CODE) from None
    except Exception:  # any error of Spark's on a document that is not its own
        message = "is not a schema as df.schema.json() gives it"
        raise problems_error([Problem(file, None, message)], code=_CODE) from None
    if not schema.fields:
        raise problems_error([Problem(file, None, "names no field")], code=_CODE)
    return schema


def _from_toml(file: Path) -> StructType:
    located = read_toml(file, code=_CODE)
    problems = [
        located.problem((name,), f"{name} is unknown here: fields stand under [fields]")
        for name in located.values
        if name != "fields"
    ]
    fields = located.values.get("fields")
    if not isinstance(fields, dict) or not fields:
        raise problems_error(
            [*problems, located.problem(("fields",), "names no field: they stand under [fields]")], code=_CODE
        )
    if len(located.lines) > _FIELDS_MAX:
        raise problems_error([located.problem((), f"more than {_FIELDS_MAX:,} fields")], code=_CODE)
    schema = _struct(located, ("fields",), fields, problems)
    if problems:
        raise problems_error(problems, code=_CODE)
    return schema


def _struct(located: Located, path: KeyPath, fields: dict[str, Any], problems: list[Problem]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    found = []
    for name, value in fields.items():
        kind = _kind(located, (*path, name), value, problems)
        if kind is not None:
            found.append(StructField(name, kind))
    return StructType(found)


def _kind(located: Located, path: KeyPath, value: Any, problems: list[Problem]) -> DataType | None:
    """Return the type that a value names; None after a problem."""
    from pyspark.sql.types import ArrayType

    if len(path) > _DEPTH_MAX:
        problems.append(located.problem(path, f"nested deeper than {_DEPTH_MAX}"))
    elif isinstance(value, str):
        try:
            return type_of(value)
        except ValueError as error:
            problems.append(located.problem(path, f"{path[-1]}: {error}"))
    elif isinstance(value, dict) and value:
        return _struct(located, path, value, problems)
    elif isinstance(value, list) and len(value) == 1:
        element = _kind(located, (*path, 0), value[0], problems)
        return None if element is None else ArrayType(element)
    elif isinstance(value, list):
        problems.append(
            located.problem(path, f'{path[-1]}: an array names the one type of its elements, as ["string"]')
        )
    else:
        problems.append(located.problem(path, f"{path[-1]} is not a type; there are {SPELLED}"))
    return None
