"""Checks of a pipeline's source: a buffer or a topic, each with the fields that belong to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenure.errors import Invalid, TenureError
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.toml_lines import Problem

__all__ = ["check_source"]

_OF_A_TOPIC: Final = ("url", "fail_on_loss")
_OF_A_BUFFER: Final = ("group", "retain_for", "reader", "batches_max")


def check_source(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield what is wrong with the source's section."""
    at, source, given = pipeline.located.problem, pipeline.source, pipeline.located.values["source"]
    if (source.buffer is None) == (source.topic is None):
        yield at(("source",), "[source] needs a buffer or a topic, one of them")
        return
    strange = _OF_A_TOPIC if source.topic is None else _OF_A_BUFFER
    of = "buffer" if source.topic is None else "topic"
    yield from (at(("source", name), f"{name} is of no use with a {of}") for name in strange if name in given)
    yield from _check_topic(pipeline) if source.topic is not None else _check_store(pipeline)


def _check_topic(pipeline: Pipeline) -> Iterator[Problem]:
    from tenure.address import parse_addresses
    from tenure.contract.names import check_topic_name

    at, source = pipeline.located.problem, pipeline.source
    if source.url is None:
        yield at(("source",), "a topic needs url: where its server is, like http://127.0.0.1:4000")
    for name, check in (("topic", check_topic_name), ("url", parse_addresses)):
        try:
            value = getattr(source, name)
            if value is not None:
                check(value)
        except Invalid as error:
            yield at(("source", name), f"{name}: {error.message}")


def _check_store(pipeline: Pipeline) -> Iterator[Problem]:
    from tenure.objects.store import open_store

    try:
        open_store(pipeline.buffer_url)
    except TenureError as error:
        yield pipeline.located.problem(("source", "buffer"), f"buffer: {error.message}")
    try:
        _ = pipeline.source.retain_for_ms
    except Invalid as error:
        yield pipeline.located.problem(("source", "retain_for"), error.message)
    if pipeline.buffer_url.startswith("memory:"):
        message = "buffer: a buffer in memory cannot be reached by another process"
        yield pipeline.located.problem(("source", "buffer"), message)
