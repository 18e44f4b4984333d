"""The tables of the flights as DuckDB reads them, past Spark and past the sinks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tenure.spark.sinks.files.table import files

__all__ = ["read_delta", "read_iceberg", "read_parquet", "read_postgres"]


def read_parquet(home: Path) -> str:
    return _files(files(home / "tables/flights"))


def read_delta(home: Path) -> str:
    from deltalake import DeltaTable

    return _files(DeltaTable(home / "tables/flights").file_uris())


def read_iceberg(home: Path) -> str:
    """The files of the newest metadata, of whichever catalog."""
    from pyiceberg.table import StaticTable

    found = [StaticTable.from_metadata(path.as_uri()) for path in (home / "tables").glob("nyc/**/*.metadata.json")]
    newest = max(found, key=lambda table: (table.metadata.last_updated_ms, len(table.metadata.snapshots)))
    return _files(newest.inspect.files()["file_path"].to_pylist())


def read_postgres(url: str) -> pa.Table:
    import psycopg

    with psycopg.connect(url) as connection:
        cursor = connection.execute("SELECT * FROM flights")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in cursor])


def _files(paths: list[str]) -> str:
    return f"read_parquet({[path.removeprefix('file://') for path in paths]}, union_by_name = true)"
