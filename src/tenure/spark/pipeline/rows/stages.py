"""The stages from a range's raw rows to those that expectations check: decode, steps, deduplication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenure.errors import TenureError
from tenure.spark.decode import MALFORMED, decoded, read_schema
from tenure.spark.pipeline.file.functions import load_function
from tenure.spark.pipeline.file.queries import Views, query_of
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.rows.deduplicate import PLACE, drop_duplicates, duplicates, mark_duplicates
from tenure.spark.toml_lines import KeyPath, problems_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Count", "Stages", "empty_range", "without_malformed"]

Count = Callable[[str, "DataFrame", "dict[str, Column]"], "DataFrame"]
"""Takes a stage's name, its rows and what else is counted of them; returns the rows to go on with."""


class Stages:
    """The stages of a pipeline.

    Files are read again for every range, so a field that joins a schema file is there in the next one, without a
    restart.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._views = Views()

    def decode(self, raw: DataFrame) -> DataFrame:
        """Return the typed columns, and ``_malformed``. Raises Invalid (``bad_schema``)."""
        decode = self._pipeline.decode
        schema = None if decode.schema is None else read_schema(self._pipeline.beside(decode.schema))
        return decoded(raw, schema, format=decode.format)

    def transform(self, rows: DataFrame, count: Count | None = None) -> DataFrame:
        """Apply the steps, then keep one row for each key; ``count`` gets the rows after each.

        Raises Invalid (``bad_step``) with the failed line.
        """
        for number, step in enumerate(self._pipeline.step):
            key = next(name for name in ("python", "file", "sql") if getattr(step, name) is not None)
            path = ("step", number, key)
            with self.errors_at(path):
                if step.python is not None:
                    rows = _apply(load_function(step.python, beside=self._pipeline.file.parent), rows)
                else:
                    rows = _analyze(self._views.run(rows, query_of(self._pipeline, step), number=number))
            rows = rows if count is None else count(f"step {number + 1}", rows, {})
        return self._deduplicate(rows, count)

    @contextmanager
    def errors_at(self, path: KeyPath) -> Iterator[None]:
        """Raise what fails inside as an error at that key of the pipeline file."""
        try:
            yield
        except TenureError:
            raise
        except Exception as error:  # Spark's parser and analyzer, or a function of the user's
            problem = self._pipeline.located.problem(path, f"{path[-1]}: {_reason(error)}")
            raise problems_error([problem], code="bad_step") from error

    def _deduplicate(self, rows: DataFrame, count: Count | None) -> DataFrame:
        wanted = self._pipeline.deduplicate
        if wanted is None:
            return rows
        missing = [name for name in (*wanted.keys, *PLACE) if name not in rows.columns]
        if missing:
            raise problems_error(
                [self._pipeline.located.problem(("deduplicate", "keys"), f"the rows have no {', '.join(missing)}")],
                code="bad_step",
            )
        marked = mark_duplicates(rows, wanted)
        return drop_duplicates(marked if count is None else count("deduplicate", marked, duplicates()))


def empty_range(spark: SparkSession) -> DataFrame:
    """Return the raw columns without a row, to check that a pipeline can be planned at all."""
    from tenure.spark.reader.columns import spark_schema

    return spark.createDataFrame([], spark_schema())


def _apply(function: Callable[[Any], Any], rows: DataFrame) -> DataFrame:
    found = function(rows)
    if not hasattr(found, "columns") or not hasattr(found, "schema"):
        raise TypeError(f"the function gave {type(found).__name__}, not a DataFrame")
    return _analyze(found)


def _analyze(rows: DataFrame) -> DataFrame:
    """Return the same rows, after analysis: a server that plans late reports a bad plan now."""
    rows.schema  # noqa: B018
    return rows


def _reason(error: Exception) -> str:
    """Return the first line of Spark's message, without the plan after it; for another error with its kind."""
    kind = type(error)
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    of_spark = kind.__module__.startswith(("pyspark.", "py4j."))
    return " ".join((text if of_spark and text else f"{kind.__name__}: {text}").split())[:500]


def without_malformed(rows: DataFrame) -> DataFrame:
    """Return the rows of entries that fit."""
    return rows.where(f"{MALFORMED} IS NULL").drop(MALFORMED)
