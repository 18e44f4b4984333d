"""The error for a write that a connector refused."""

from __future__ import annotations

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid
from tenure.spark.sinks.refusals import _refusal

STACK = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.
\tat org.apache.spark.Somewhere.write(Somewhere.scala:1)
Caused by: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Elsewhere.run(Elsewhere.scala:2)
Caused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x0' cannot be cast.
\t... 12 more
"""


def test_the_innermost_cause_is_told_where_only_the_stack_names_it() -> None:
    refused = _refusal(RuntimeError(STACK), Commit("B", "delta", 0, 0, 1))
    assert isinstance(refused, Invalid)
    assert "TASK_WRITE_FAILED" in refused.message
    assert "CAST_INVALID_INPUT" in refused.message
    assert "\tat" not in refused.message
