"""The SQL of a pipeline file: checks that need no Spark, and running a query over a view."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tenure.spark.pipeline.file.sections import Pipeline, Step
from tenure.spark.toml_lines import read_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Views", "check_query", "query_of"]

_PIECE: Final = re.compile(
    r"""
      (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*"|`(?:``|[^`])*`)
    | (?P<open>--|/\*|['"`])
    | (?P<mark>[()\[\];])
    | (?P<other>[^-/'"`()\[\];]+|[-/])
    """,
    re.VERBOSE | re.DOTALL,
)
_PAIRS: Final = {")": "(", "]": "["}


def query_of(pipeline: Pipeline, step: Step) -> str:
    """Return the query of an SQL step. Raises Invalid where its file cannot be read."""
    if step.sql is not None:
        return step.sql
    assert step.file is not None
    return read_text(pipeline.beside(step.file), code="bad_pipeline")


def check_query(text: str, *, over_input: bool = True) -> Iterator[str]:
    """Yield what is wrong with a query or an expression, as far as it shows without Spark's parser."""
    opened: list[str] = []
    words = []
    for piece in _PIECE.finditer(text):
        kind, found = piece.lastgroup, piece[0]
        if kind == "open":
            yield f"a quote or a comment ({found}) has no end"
            return
        if kind == "mark" and found in "([":
            opened.append(found)
        elif kind == "mark" and found != ";" and (not opened or opened.pop() != _PAIRS[found]):
            yield f"{found} closes nothing"
            return
        elif found == ";":
            words.append(";")
        if kind in ("other", "text"):
            words.append(found.strip())
    body = " ".join(word for word in words if word).rstrip("; ")
    if opened:
        yield f"{opened[-1]} is never closed"
    if not body:
        yield "there is no SQL in it"
    elif ";" in body:
        yield "it is one statement, not several"
    elif (
        over_input
        and not re.match(r"(?i)(select|with|from|values|table)\b", body)
        and not text.lstrip().startswith("(")
    ):
        yield "it is a query: it begins with SELECT or WITH"
    elif over_input and not re.search(r"(?i)\binput\b", body):
        yield "it does not read from input, which is what the step before gives"


class Views:
    """The views that queries read from, one for each step, so that also a server that plans late sees the right one."""

    def __init__(self) -> None:
        self._prefix = f"tenure_{uuid.uuid4().hex[:12]}"

    def run(self, frame: DataFrame, query: str, *, number: int) -> DataFrame:
        """Return the result of a query over the frame, which it knows as ``input``."""
        view = f"{self._prefix}_{number}"
        frame.createOrReplaceTempView(view)
        body = query.strip().rstrip(";")
        # The line break ends a comment at the end of the query.
        return frame.sparkSession.sql(f"WITH input AS (SELECT * FROM {view}) SELECT * FROM (\n{body}\n)")
