"""The pipeline files of the flights: one for each kind of table, and the schema of each half of the year."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["GROUP", "POSTGRES", "SCHEMAS", "SINKS", "write_pipeline"]

GROUP = "flights"
POSTGRES = "FLIGHTS_POSTGRES"
"""The variable with the database's URL."""
_FIRST = """\
[fields]
id = "long"
rev = "int"
op = "string"
at = "timestamp"
month = "int"
carrier = "string"
tailnum = "string"
origin = "string"
dest = "string"
distance = "int"
dep_delay = "int"
arr_delay = "int"
fare = "decimal(10,2)"
"""
SCHEMAS: Sequence[str] = (
    _FIRST,
    f'{_FIRST}air_time = "int"\n[fields.plan]\nhour = "int"\ngate = "string"\n',
)
"""The schema file before and after it was edited, for the two versions of events."""

_PIPELINE = """\
[pipeline]
name = "flights"
[source]
buffer = "{buffer}"
group = "flights"
retain_for = "7d"
entries_max = {entries_max}
[decode]
schema = "flight.toml"
malformed = "quarantine"
[deduplicate]
keys = ["id", "rev"]
[[expect]]
name = "has-id"
that = "id IS NOT NULL"
otherwise = "quarantine"
[[expect]]
name = "in-time"
that = "dep_delay IS NULL OR dep_delay <= 360"
otherwise = "quarantine"
[[expect]]
name = "near"
that = "distance IS NULL OR distance < 4900"
otherwise = "drop"
[expectations]
path = "tables/expectations"
[quarantine]
path = "tables/quarantine"
[sink]
{sink}
[schedule]
every_ms = 100
"""
SINKS = {
    "parquet": 'kind = "parquet"\npath = "tables/flights"\npartition_by = ["month"]',
    "delta": 'kind = "delta"\npath = "tables/flights"\nmode = "merge"\nkeys = ["id"]\ndelete_when = "op = \'delete\'"',
    "postgres": f'kind = "postgres"\nurl_env = "{POSTGRES}"\ntable = "flights"',
    "iceberg": 'kind = "iceberg"\ntable = "ice.nyc.flights"\nwarehouse = "tables"',
    "small_iceberg": 'kind = "small_iceberg"\ntable = "nyc.flights"\nwarehouse = "tables"',
}


def write_pipeline(home: Path, sink: str, *, buffer: str, entries_max: int) -> Path:
    """Write the pipeline file, with the schema of the first half beside it."""
    (home / "flight.toml").write_text(SCHEMAS[0])
    text = _PIPELINE.replace("{buffer}", buffer).replace("{entries_max}", str(entries_max))
    file = home / "pipeline.toml"
    file.write_text(text.replace("{sink}", SINKS[sink]))
    return file
