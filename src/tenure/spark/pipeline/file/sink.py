"""The sink of a pipeline file: check its section, and make it, which starts nothing."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from tenure.errors import Invalid, TenureError
from tenure.extras import extra_of, install_hint, needs_extra
from tenure.spark.pipeline.file.sections import Pipeline, SinkTable
from tenure.spark.session.session import spark_version
from tenure.spark.toml_lines import Problem

if TYPE_CHECKING:
    from tenure.spark.sinks.files.table import FileTable
    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["check_connector", "check_sink", "make_sink", "on_nul_of", "place_of", "side_path", "side_table"]

_NEEDED: Final = {
    "parquet": ("path",),
    "delta": (),
    "iceberg": ("table",),
    "postgres": ("url", "table"),
    "topic": ("url", "topic", "staging"),
    "small_delta": ("path",),
    "small_iceberg": ("table",),
}
_ALLOWED: Final = {
    "parquet": ("partition_by",),
    "delta": ("path", "table", "partition_by", "mode", "keys", "delete_when"),
    "iceberg": ("warehouse", "partition_by", "mode", "keys", "delete_when"),
    "postgres": ("url_env", "on_nul"),
    "topic": ("url_env", "select"),
    "small_delta": ("partition_by",),
    "small_iceberg": ("warehouse", "partition_by"),
}
_ALWAYS: Final = ("kind", "options")
_LIBRARIES: Final = {"small_delta": ("deltalake", "delta"), "small_iceberg": ("pyiceberg", "iceberg")}
"""Libraries that write a table from the driver, and the extra that brings each."""


def check_sink(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield what is wrong with the sink's section."""
    at, sink = pipeline.located.problem, pipeline.sink
    given = set(pipeline.located.values["sink"])
    sound = True
    for name in _NEEDED[sink.kind]:
        if name not in given and not (name == "url" and "url_env" in given):
            sound = False
            also = " or url_env" if name == "url" else ""
            yield at(("sink",), f'kind = "{sink.kind}" needs {name}{also}')
    if sink.kind == "delta" and (sink.path is None) == (sink.table is None):
        sound = False
        yield at(("sink",), 'kind = "delta" needs a path or a table, one of them')
    known = {*_NEEDED[sink.kind], *_ALLOWED[sink.kind], *_ALWAYS}
    for name in given - known:
        sound = False
        yield at(("sink", name), f'{name} does not apply to kind = "{sink.kind}"')
    if sink.mode == "merge" and not sink.keys:
        sound = False
        yield at(("sink", "mode"), 'mode = "merge" needs keys: the columns that name a row')
    for name in ("keys", "delete_when"):
        if name in given & known and sink.mode != "merge":
            sound = False
            yield at(("sink", name), f'{name} needs mode = "merge"')
    if sink.on_nul == "quarantine" and pipeline.quarantine is None:
        sound = False
        yield at(("sink", "on_nul"), 'on_nul = "quarantine" needs a [quarantine] with a path')
    if sink.url is not None and "@" in sink.url:
        sound = False
        yield at(("sink", "url"), "url: do not put a secret in this file: name its variable with url_env")
    if sink.url_env is not None and not os.environ.get(sink.url_env):
        sound = False
        yield at(("sink", "url_env"), f"url_env: the environment has no {sink.url_env}")
    library, extra = _LIBRARIES.get(sink.kind, ("", ""))
    if library and find_spec(library) is None:
        yield at(("sink", "kind"), f"{library} is not installed: {install_hint(extra)}")
    if sound:
        try:
            make_sink(pipeline)
        except TenureError as error:
            yield at(("sink",), error.message)


def check_connector(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield connectors that the sink needs and that have no release for this machine's pyspark.

    Nothing where there is no pyspark: the pipeline runs elsewhere then.
    """
    try:
        version = spark_version()
    except Invalid:
        return
    try:
        make_sink(pipeline).needs(version)
    except Invalid as error:
        yield pipeline.located.problem(("sink", "kind"), error.message)


def make_sink(pipeline: Pipeline, *, into: str | None = None) -> SparkSink:
    """Return the sink of a pipeline, or the same with another table. Raises Invalid for a bad argument."""
    sink = pipeline.sink
    try:
        return _MAKERS[sink.kind](pipeline, into)
    except ImportError as error:
        if (extra := extra_of(error)) is None:
            raise
        raise needs_extra(f'kind = "{sink.kind}" needs {error.name}, which is not installed', extra) from error


def side_table(pipeline: Pipeline, path: str, *, kind: str, into: str | None = None) -> FileTable:
    """Return a table beside the main one."""
    from tenure.spark.sinks.files.table import FileTable

    return FileTable(_where(pipeline, side_path(path, into)), name=f"{pipeline.name}.{kind}")


def side_path(path: str, into: str | None = None) -> str:
    """Return where a side table is. A backfill gets one of its own."""
    suffix = "" if into is None else "-" + "".join(char if char.isalnum() else "-" for char in into).strip("-")
    return path.rstrip("/") + suffix


def place_of(pipeline: Pipeline, into: str | None = None) -> str:
    """Return where the rows go, for people; never with a secret."""
    sink = pipeline.sink
    named = into or sink.path or sink.table or sink.topic
    return f"{sink.kind} {named}"


def _where(pipeline: Pipeline, path: str) -> str:
    return path if "://" in path else str(pipeline.beside(path).absolute())


def _parquet(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.files.table import FileTable

    sink = pipeline.sink
    assert sink.path is not None
    return _make(FileTable, pipeline, _where(pipeline, into or sink.path), partition_by=sink.partition_by)


def _delta(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.delta.sink import DeltaSink

    sink = pipeline.sink
    where = into or sink.table if sink.path is None else _where(pipeline, into or sink.path)
    return _make(DeltaSink, pipeline, where, partition_by=sink.partition_by, **_merge_arguments(sink))


def _small_delta(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.delta.small import SmallDelta

    sink = pipeline.sink
    assert sink.path is not None
    return _make(SmallDelta, pipeline, _where(pipeline, into or sink.path), partition_by=sink.partition_by)


def _iceberg(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.iceberg.sink import IcebergSink

    named = _iceberg_arguments(pipeline) | _merge_arguments(pipeline.sink)
    return _make(IcebergSink, pipeline, into or pipeline.sink.table, **named)


def _small_iceberg(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.iceberg.small import SmallIceberg

    return _make(SmallIceberg, pipeline, into or pipeline.sink.table, **_iceberg_arguments(pipeline))


def _iceberg_arguments(pipeline: Pipeline) -> dict[str, Any]:
    sink = pipeline.sink
    warehouse = None if sink.warehouse is None else _where(pipeline, sink.warehouse)
    return {"partition_by": sink.partition_by, "warehouse": warehouse}


def _postgres(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.sinks.postgres.sink import PostgresSink

    on_nul = "replace" if on_nul_of(pipeline) == "replace" else "refuse"
    return _make(PostgresSink, pipeline, _url(pipeline.sink), into or pipeline.sink.table, on_nul=on_nul)


def on_nul_of(pipeline: Pipeline) -> Literal["quarantine", "replace", "refuse"] | None:
    """Return what becomes of rows with a NUL in a text; None for a sink that stores them as they are."""
    sink = pipeline.sink
    if sink.kind != "postgres":
        return None
    return sink.on_nul or ("replace" if pipeline.quarantine is None else "quarantine")


def _merge_arguments(sink: SinkTable) -> dict[str, Any]:
    return {"merge_keys": sink.keys, "delete_when": sink.delete_when} if sink.mode == "merge" else {}


def _url(sink: SinkTable) -> str:
    return os.environ[sink.url_env] if sink.url_env is not None else str(sink.url)


def _topic(pipeline: Pipeline, into: str | None) -> SparkSink:
    from tenure.spark.pipeline.file.sections import url_of
    from tenure.spark.topic.sink import TopicSink

    sink = pipeline.sink
    assert sink.staging is not None
    staging = url_of(sink.staging, pipeline.file)
    return _make(TopicSink, pipeline, _url(sink), into or sink.topic, staging=staging, select=sink.select)


def _make(kind: Callable[..., SparkSink], pipeline: Pipeline, *arguments: Any, **named: Any) -> SparkSink:
    """Make the sink with the options of the file. Raises Invalid naming those that it does not have."""
    known = inspect.signature(kind).parameters
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    for name in pipeline.sink.options:
        if name in named or name == "name" or (name not in known and not open_ended):
            raise Invalid(f"options.{name} is no option of this sink")
    return kind(*arguments, name=pipeline.name, **named, **pipeline.sink.options)


_MAKERS: Final[dict[str, Callable[[Pipeline, str | None], SparkSink]]] = {
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
    "topic": _topic,
    "small_delta": _small_delta,
    "small_iceberg": _small_iceberg,
}
