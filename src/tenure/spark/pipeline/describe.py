"""A pipeline in words, for `tenure pipeline explain` and the summary of a run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tenure.spark.pipeline.file.sections import Pipeline, Step
from tenure.spark.pipeline.file.sink import place_of
from tenure.spark.pipeline.rows.expectations import expects_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["describe", "plan_of"]

_MALFORMED = {
    "column": "stay, with their text in _malformed",
    "quarantine": "go to the quarantine",
    "drop": "are dropped",
}


def describe(pipeline: Pipeline) -> list[str]:
    """Return what happens to an entry, a sentence a line, in that order."""
    source, decode, schedule = pipeline.source, pipeline.decode, pipeline.schedule
    lines = [
        f"read {_source(pipeline)}, at most {source.entries_max:,} entries or {source.bytes_max:,} stored bytes at a "
        "time",
        f"decode as {decode.format}{f' by {decode.schema}' if decode.schema else ''}; entries that do not fit "
        f"{_MALFORMED[decode.malformed]}",
    ]
    lines += [f"step {number}: {_step(step)}" for number, step in enumerate(pipeline.step, start=1)]
    if pipeline.deduplicate is not None:
        keys = ", ".join(pipeline.deduplicate.keys)
        lines.append(f"keep the {pipeline.deduplicate.keep} row of each {keys} within a range")
    lines += [f"expect {one.name}: {one.that}; else {one.otherwise}" for one in expects_of(pipeline)]
    return lines + list(_ends(pipeline)) + [_when(schedule.run, schedule.every_ms)]


def _source(pipeline: Pipeline) -> str:
    source = pipeline.source
    if source.topic is not None:
        return source.place
    kept = "" if source.retain_for is None else f", which keeps batches for at least {source.retain_for}"
    return f"{pipeline.buffer_url}{kept}, as group {source.group}"


def plan_of(frame: DataFrame) -> str:
    """Return Spark's formatted plan, which it prints by itself."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain(mode="formatted")
    return text.getvalue().strip()


def _step(step: Step) -> str:
    if step.python is not None:
        return f"call {step.python}"
    if step.file is not None:
        return f"the query in {step.file}"
    return " ".join(str(step.sql).split())


def _ends(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.quarantine is not None:
        yield f"first write rows that were set aside to {pipeline.quarantine.path}"
    if pipeline.expectations is not None:
        yield f"then write what came of the expectations to {pipeline.expectations.path}"
    sink = pipeline.sink
    parts = f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""
    verb = f"merge by {', '.join(sink.keys)} into" if sink.mode == "merge" else "append to"
    then = ", then acknowledge it" if pipeline.source.topic is None else ""
    yield f"{verb} {place_of(pipeline)}{parts}, with the range as the commit's identity{then}"


def _when(run: str, every_ms: int) -> str:
    return {
        "once": "run once: until everything is written",
        "follow": f"follow: look for more every {every_ms:,} ms",
        "streaming": f"streaming: a micro-batch every {every_ms:,} ms",
    }[run]
