"""The schema of a file table: what its columns are, so that a range of other types is refused before it is written.

Files of two types for one column cannot be read together: not by Spark, with or without ``mergeSchema``, and so not by
a compaction. A wider type is another type here. Columns and nested fields may join.

Types are those of Spark's own JSON (`DataType.jsonValue`), without nullability and metadata: files hold them so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from tenure.errors import Invalid

__all__ = ["TableSchema", "join", "schema_of", "schema_of_file"]

_IN_FOOTER = b"org.apache.spark.sql.parquet.row.metadata"

Type = Any
"""A name, or a dictionary for a type with others inside."""


class TableSchema(msgspec.Struct, frozen=True):
    """The columns with their types, and those of them that are directories."""

    columns: dict[str, Any]
    partition_by: tuple[str, ...] = ()


def schema_of(given: Mapping[str, Any], partition_by: Sequence[str]) -> TableSchema:
    """Return the schema for rows of a Spark schema, given as ``StructType.jsonValue`` has it."""
    return TableSchema({one["name"]: _bare(one["type"]) for one in given["fields"]}, tuple(partition_by))


def schema_of_file(key: str, metadata: Mapping[bytes, bytes] | None) -> TableSchema | None:
    """Return the schema as far as a data file of Spark's shows it: not the types of the partitions' columns."""
    text = (metadata or {}).get(_IN_FOOTER)
    if text is None:
        return None
    folders = [part for part in key.split("/")[:-1] if "=" in part]
    return schema_of(json.loads(text), [unquote(folder.partition("=")[0]) for folder in folders])


def join(table: TableSchema, rows: TableSchema) -> TableSchema:
    """Return the table's schema with the columns that join it; names that differ in case alone are one, as for Spark.

    Raises Invalid (``sink_rejected``), naming every column whose type differs.
    """
    if [name.lower() for name in table.partition_by] != [name.lower() for name in rows.partition_by]:
        raise Invalid(
            f"the table is partitioned by {_listed(table.partition_by)}, and not by {_listed(rows.partition_by)}: keep "
            "its partition_by, or write to another table",
            code="sink_rejected",
        )
    differing = list(_differing(_struct(table.columns), _struct(rows.columns), ""))
    if differing:
        each = (
            f"{name} is {_spell(held)} in the table and {_spell(given)} in the rows" for name, held, given in differing
        )
        told = "; ".join(each)
        raise Invalid(
            f"the table cannot take the rows: {told}. Files of two types cannot be read together: cast the column to "
            "the table's type in the last step, give it another name, or write to another table",
            code="sink_rejected",
        )
    return TableSchema(_fields(_joined(_struct(table.columns), _struct(rows.columns))), table.partition_by)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _struct(columns: Mapping[str, Type]) -> Type:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in columns.items()]}


def _fields(kind: Type) -> dict[str, Any]:
    return {one["name"]: one["type"] for one in kind["fields"]}


def _name(kind: Type) -> str:
    return str(kind if isinstance(kind, str) else kind["type"])


def _bare(kind: Type) -> Type:
    """Return the type without what differs from one range to the next and means nothing for its files."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return {"type": "struct", "fields": [{"name": one["name"], "type": _bare(one["type"])} for one in fields]}
        case {"type": "array", "elementType": element}:
            return {"type": "array", "elementType": _bare(element)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {"type": "map", "keyType": _bare(key), "valueType": _bare(value)}
        case _:
            return kind


_INSIDE = {"array": ("elementType",), "map": ("keyType", "valueType")}


def _differing(table: Type, rows: Type, path: str) -> Iterator[tuple[str, Type, Type]]:
    """Yield each column or nested field, by its path, whose type differs, with both types."""
    if _name(table) != _name(rows) or isinstance(table, str) or isinstance(rows, str):
        if table != rows:
            yield path.removesuffix("."), table, rows
    elif _name(table) == "struct":
        held = {name.lower(): kind for name, kind in _fields(table).items()}
        for name, kind in _fields(rows).items():
            if name.lower() in held:
                yield from _differing(held[name.lower()], kind, f"{path}{name}.")
    elif _name(table) in _INSIDE:
        for part in _INSIDE[_name(table)]:
            yield from _differing(table[part], rows[part], path)
    elif table != rows:
        yield path.removesuffix("."), table, rows


def _joined(table: Type, rows: Type) -> Type:
    """Return the type with the fields of both, which do not differ."""
    if isinstance(table, str) or isinstance(rows, str):
        return table
    if _name(table) in _INSIDE:
        return table | {part: _joined(table[part], rows[part]) for part in _INSIDE[_name(table)]}
    if _name(table) != "struct":
        return table
    given = {name.lower(): (name, kind) for name, kind in _fields(rows).items()}
    columns = {name: _joined(kind, given.pop(name.lower(), (name, kind))[1]) for name, kind in _fields(table).items()}
    return _struct(columns | dict(given.values()))


def _spell(kind: Type) -> str:
    match kind:
        case {"type": "struct", "fields": fields}:
            inside = [f"{one['name']}: {_spell(one['type'])}" for one in fields]
            return f"struct<{', '.join(inside)}>"
        case {"type": "array", "elementType": element}:
            return f"array<{_spell(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{_spell(key)}, {_spell(value)}>"
        case _:
            return _name(kind)
