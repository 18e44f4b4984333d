"""The sections of a pipeline file: docs/reference/pipeline-files.md explains them.

A field without a default must be there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tenure.buffer.settings import RETAIN_FOR_MS_MAX
from tenure.durations import ms_of
from tenure.spark.stream.offsets import checkpoint_store_url
from tenure.spark.toml_lines import Located

__all__ = [
    "LISTS",
    "SECTIONS",
    "Decode",
    "Deduplicate",
    "Expect",
    "Expectations",
    "Head",
    "Pipeline",
    "Quarantine",
    "Schedule",
    "SinkTable",
    "Source",
    "Step",
]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name of the sink's commits, the side tables and the last run: keep it for the life of the table."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A buffer or a topic."""

    buffer: str | None = None
    """The buffer: a URL, or a directory."""
    topic: str | None = None
    """The topic of the server at ``url``."""
    url: str | None = None
    fail_on_loss: bool = True
    """Whether a topic's records that are gone before they were read end the run."""
    group: str = "default"
    retain_for: str | None = None
    """The least time that the buffer keeps batches, like ``7d``: raises its retention, and never lowers it."""
    reader: Literal["auto", "jvm", "python"] = "auto"
    entries_max: int = 1_000_000
    """Entries of one range."""
    bytes_max: int = 1 << 30
    """Stored bytes of one range."""
    batches_max: int = 4_096
    """Batches of one range."""

    @property
    def retain_for_ms(self) -> int:
        """Return the retention that the pipeline asks for. Raises Invalid for a malformed duration."""
        return 0 if self.retain_for is None else ms_of(self.retain_for, field="retain_for", max_ms=RETAIN_FOR_MS_MAX)

    @property
    def place(self) -> str:
        """Return the source's name for people."""
        return f"topic {self.topic} of {self.url}" if self.topic is not None else str(self.buffer)


class Decode(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["json", "text", "binary"] = "json"
    schema: str | None = None
    """The schema file; JSON needs one."""
    malformed: Literal["column", "quarantine", "drop"] = "column"
    """Where entries go that do not fit: on with the others, into the quarantine, or nowhere."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: exactly one of the three."""

    sql: str | None = None
    """A query over ``input``."""
    file: str | None = None
    """A file with such a query."""
    python: str | None = None
    """``module:function``, which takes a DataFrame and returns one."""


class Deduplicate(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[str]
    keep: Literal["last", "first"] = "last"


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    that: str
    """An SQL expression that is true for a good row."""
    otherwise: Literal["drop", "quarantine", "fail"] = "drop"


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """The table of the results."""


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """The table of rows that were set aside."""


class SinkTable(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["parquet", "delta", "iceberg", "postgres", "topic", "small_delta", "small_iceberg"]
    path: str | None = None
    table: str | None = None
    warehouse: str | None = None
    """A directory with an Iceberg catalog of its own."""
    url: str | None = None
    url_env: str | None = None
    """The environment variable that holds the URL, for one with a secret in it."""
    topic: str | None = None
    staging: str | None = None
    select: list[str] | None = None
    partition_by: list[str] = []
    mode: Literal["append", "merge"] = "append"
    keys: list[str] = []
    delete_when: str | None = None
    on_nul: Literal["quarantine", "replace", "refuse"] | None = None
    """What becomes of a row with a NUL in a text, which PostgreSQL cannot store."""
    options: dict[str, Any] = {}
    """Further arguments of the sink."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    run: Literal["once", "follow", "streaming"] = "once"
    every_ms: int = 1_000
    """The interval at which `follow` looks for more, and `streaming` begins a micro-batch."""
    checkpoint: str | None = None
    """Spark's checkpoint; streaming needs one."""


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "pipeline": Head,
    "source": Source,
    "decode": Decode,
    "deduplicate": Deduplicate,
    "expectations": Expectations,
    "quarantine": Quarantine,
    "sink": SinkTable,
    "schedule": Schedule,
}
LISTS: Final[dict[str, type[msgspec.Struct]]] = {"step": Step, "expect": Expect}
"""Sections that may occur several times, as ``[[step]]``."""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline file that passed all checks."""

    located: Located
    pipeline: Head
    source: Source
    sink: SinkTable
    decode: Decode
    step: tuple[Step, ...] = ()
    deduplicate: Deduplicate | None = None
    expect: tuple[Expect, ...] = ()
    expectations: Expectations | None = None
    quarantine: Quarantine | None = None
    schedule: Schedule

    @property
    def file(self) -> Path:
        return self.located.file

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def buffer_url(self) -> str:
        """Return the buffer's URL; a directory is relative to the file. Not for a pipeline from a topic."""
        assert self.source.buffer is not None
        return url_of(self.source.buffer, self.file)

    @property
    def checkpoint_url(self) -> str:
        """Return the URL of a streaming query's checkpoint."""
        assert self.schedule.checkpoint is not None
        return url_of(self.schedule.checkpoint, self.file)

    @property
    def notes_url(self) -> str:
        """Return where runs are noted: beside the batches, or beside the checkpoint of a pipeline from a topic."""
        return self.buffer_url if self.source.topic is None else checkpoint_store_url(self.checkpoint_url)

    def beside(self, path: str) -> Path:
        """Return a path of the file, which is relative to it."""
        return self.file.parent / path


def url_of(where: str, file: Path) -> str:
    """Return a URL as it is; a path as the URL of a directory, relative to the file."""
    return where if "://" in where else (file.parent / where).absolute().as_uri()
