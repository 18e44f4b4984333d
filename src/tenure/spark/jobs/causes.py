"""Causes of a failed Spark job: the innermost one, and the error that it means to the caller.

Spark reports a failure of a task as a text of many causes with their stacks. The last one is what happened; those
before it say which task of which job failed of it. A transient cause, a full disk or a store that does not answer, is
not the rows' fault: the same range is written again later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tenure import errors
from tenure.buffer.ingest.sink import says_disk_full
from tenure.errors import Conflict, Denied, LeaseLost, Overloaded, TenureError
from tenure.objects.store import OutcomeUnknown, StoreFull

__all__ = ["is_of_spark", "is_of_the_rows", "job_error", "named_causes", "reason_of", "transient_error"]

# Of the rows or the statement: a repeat would be refused the same way.
_OF_THE_ROWS: Final = frozenset(
    {
        *("AnalysisException", "ParseException", "IllegalArgumentException", "PythonException", "ArithmeticException"),
        *("DateTimeException", "NumberFormatException", "ArrayIndexOutOfBoundsException", "SparkRuntimeException"),
    }
)
# Of a task, named as the cause of a job that was aborted: a value that cannot be cast, a function that fails.
_OF_A_VALUE: Final = re.compile(
    r"\b(?:Spark)?(?:Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|SparkRuntime|Python)Exception: "
)
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_PREAMBLE: Final = re.compile(r"^An error occurred while calling \S+\.\s*:?\s*(?:[\w.$]+(?:Exception|Error): )?")
_OF_PYTHON: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ ].*\n)+(\S.*)")
"""A traceback in the text of an error, and the line that ends it: the error that was raised."""
_NO_TENURE: Final = "No module named 'tenure'"
_AWAY: Final = (
    *("ConnectException", "Connection refused", "Connection reset", "SocketTimeoutException", "timed out"),
    *("UnknownHostException", "NoRouteToHostException", "NoHttpResponseException", "SdkClientException"),
    *("Service Unavailable", "Slow Down", "SlowDown", "SafeModeException", "StandbyException"),
)
_DENIED: Final = ("AccessDeniedException", "AccessControlException", "Permission denied", "Read-only file system")
_OF_SPARK_ITSELF: Final = ("org.apache.spark.shuffle.", "org.apache.spark.storage.", "util.collection.unsafe.sort.")
"""Packages of Spark that write to its own directories, in the stack of a cause."""
_OURS: Final = re.compile(r"\btenure\.(?:[a-z_]+\.)*(\w+): (.+)")
_SPARK_MODULES: Final = ("pyspark", "py4j")
_REASON_CHARS_MAX: Final = 500


def reason_of(error: Exception) -> str:
    """Return an error's message before Java's stack, and its innermost cause where only the stack names it.

    Of a Python function that failed in a task it is the error that the function raised, without its traceback.
    """
    text = str(error)
    if raised := _OF_PYTHON.findall(text):
        return str(raised[-1])[:_REASON_CHARS_MAX]
    said, causes = text.partition("\n\tat ")[0].strip(), _CAUSE.findall(text)
    said = " ".join(_PREAMBLE.sub("", said).split()) or type(error).__name__
    if not causes or causes[-1] in said:
        return said[:_REASON_CHARS_MAX]
    return f"{said[: _REASON_CHARS_MAX // 2]}; caused by {causes[-1][: _REASON_CHARS_MAX // 2]}"


def is_of_the_rows(error: Exception) -> bool:
    """Return whether a value or the statement is the cause: the same rows would fail again."""
    return bool(_OF_THE_ROWS & {kind.__name__ for kind in type(error).__mro__} or _OF_A_VALUE.search(str(error)))


def transient_error(error: Exception, doing: str) -> TenureError | None:
    """Return the error for a transient cause, outside of rows and steps; None for any other cause.

    That is Overloaded (``disk_full``, ``table_unavailable``), or Denied (``table_denied``). ``doing`` is what failed,
    such as "batches 3 to 7 were not written".
    """
    if not is_of_spark(error) and not isinstance(error, (OSError, OutcomeUnknown, StoreFull)):
        return None
    text = str(error)
    begins = max((found.start() for found in _CAUSE.finditer(text)), default=0)
    cause = text[begins:].partition("\n\tat ")[0]
    if says_disk_full(cause):
        return _full(error, doing, by_spark_itself=any(name in text[begins:] for name in _OF_SPARK_ITSELF))
    if not is_of_spark(error) or is_of_the_rows(error):
        return None
    if any(sign in cause for sign in _DENIED):
        return Denied(f"{doing}: {reason_of(error)}. Give the job's user the right to write there", code="table_denied")
    if any(sign in cause for sign in _AWAY):
        return Overloaded(
            f"{doing}, as a store or server does not answer: {reason_of(error)}", code="table_unavailable"
        )
    return None


def job_error(error: Exception, doing: str, *, code: str = "spark_failed") -> TenureError:
    """Return the error for a job that Spark gave up, for any cause.

    An error of ours that a task raised is that error again; an unknown cause is a Conflict with this code.
    """
    return (
        _raised_by_a_task(error)
        or transient_error(error, doing)
        or Conflict(f"{doing}: {reason_of(error)}. Nothing of it was written to the table; {_next(error)}", code=code)
    )


def _next(error: Exception) -> str:
    """Return what to do about a job that Spark gave up."""
    if _NO_TENURE not in str(error):
        return "mend the data or the step, and run again"
    return (
        "the Python of Spark's tasks has no Tenure: name one that has by PYSPARK_PYTHON, or bring it along with "
        "`tenure spark bundle`"
    )


@contextmanager
def named_causes(doing: str) -> Iterator[None]:
    """Run a Spark job, or a commit that may be repeated, and raise a transient failure as the error it means."""
    try:
        yield
    except Exception as error:
        named = transient_error(error, doing)
        if named is None:
            raise
        raise named from error


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark reported the error. False where the JVM itself is gone: that is not transient."""
    kind = type(error)
    return kind.__module__.partition(".")[0] in _SPARK_MODULES and kind.__name__ != "Py4JNetworkError"


def _full(error: Exception, doing: str, *, by_spark_itself: bool) -> Overloaded:
    where = "where Spark keeps its own files (spark.local.dir)" if by_spark_itself else "under the table"
    cause = error.__cause__ if isinstance(error, StoreFull) and isinstance(error.__cause__, OSError) else error
    return Overloaded(
        f"{doing}, as the disk {where} is full: {reason_of(cause)}. Free some space: the range is written again then",
        code="disk_full",
    )


def _raised_by_a_task(error: Exception) -> TenureError | None:
    ours = _OURS.search(str(error))
    kind = getattr(errors, ours[1], None) if ours is not None else None
    if ours is None or not isinstance(kind, type) or not issubclass(kind, TenureError):
        return None
    return kind(ours[2][:_REASON_CHARS_MAX].strip(), code="fenced" if kind is LeaseLost else None)
