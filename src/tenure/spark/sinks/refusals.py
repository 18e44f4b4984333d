"""What a connector's refusal means to the caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.buffer.sinks import Commit
from tenure.errors import Indeterminate, Invalid, Overloaded, TenureError

__all__ = ["condition_of", "expected", "settled"]

# Of the rows or the statement: the same again would be refused the same way.
_OF_THE_ROWS = frozenset(
    {
        *("AnalysisException", "ParseException", "IllegalArgumentException", "PythonException", "ArithmeticException"),
        *("DateTimeException", "NumberFormatException", "ArrayIndexOutOfBoundsException", "SparkRuntimeException"),
    }
)
# Of a task, told as the cause of a job that was aborted: a value that cannot be cast, a function that fails.
_OF_A_VALUE = re.compile(
    r"\b(?:Spark)?(?:Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|SparkRuntime|Python)Exception: "
)
# Another writer came first. Delta's conditions, and the names of Iceberg's exceptions; both stand in the text.
_BUSY = (
    *("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED"),
    *("CommitFailedException", "not append, dynamic overwrite, or fast-forward"),
)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_REASON_CHARS_MAX = 500


def condition_of(error: Exception) -> str:
    """Spark's name for the case, such as ``PATH_NOT_FOUND``; empty where it has none."""
    ask = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)  # the latter until 3.5
    return str(ask() or "") if ask is not None else ""


def _reason(text: str) -> str:
    """What an error says in front of Java's stack, and the innermost cause where only the stack names it."""
    said, causes = text.partition("\n\tat ")[0].strip(), _CAUSE.findall(text)
    if not causes or causes[-1] in said:
        return said[:_REASON_CHARS_MAX]
    return f"{said[: _REASON_CHARS_MAX // 2]}; caused by {causes[-1][: _REASON_CHARS_MAX // 2]}"


def _refusal(error: Exception, commit: Commit) -> TenureError:
    """The error to raise where a write failed and the marker says that the table does not hold the commit."""
    text = str(error)
    reason = _reason(text)
    if any(sign in condition_of(error) or sign in text for sign in _BUSY):
        return Overloaded(f"another writer changed the table while {commit} was written", code="table_busy")
    if _OF_THE_ROWS & {kind.__name__ for kind in type(error).__mro__} or _OF_A_VALUE.search(text):
        return Invalid(f"the table cannot take the rows of {commit}: {reason}", code="sink_rejected")
    return Indeterminate(f"{commit} was not seen in the table, where its write failed: {reason}")


@contextmanager
def settled(commit: Commit, holds: Callable[[], bool]) -> Iterator[None]:
    """A write through a connector: where it fails and the table ``holds`` the commit after all, nothing is wrong, else
    what it raises is Tenure's.
    """
    try:
        yield
    except TenureError:
        raise
    except Exception as error:
        if not holds():
            raise _refusal(error, commit) from error


@contextmanager
def expected() -> Iterator[None]:
    """A call that may be refused, and it would be no news: some versions of pyspark log each refusal with its stack."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before 4.0
        yield
        return
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
