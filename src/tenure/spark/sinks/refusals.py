"""Errors of a table's connector, translated to Tenure's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Indeterminate, Invalid, Overloaded, TenureError
from tenure.spark.jobs.causes import is_of_the_rows, reason_of, transient_error

__all__ = ["condition_of", "disk_full", "named_refusals", "unlogged"]

# Another writer came first. Delta's conditions, and the names of Iceberg's exceptions; both are in the text.
_BUSY = (
    *("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED"),
    *("CommitFailedException", "not append, dynamic overwrite, or fast-forward"),
)


def condition_of(error: Exception) -> str:
    """Return Spark's name for the case, such as ``PATH_NOT_FOUND``; empty where it has none."""
    ask = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)  # the latter until 3.5
    return str(ask() or "") if ask is not None else ""


def disk_full(commit: Commit, cause: str) -> Overloaded:
    """Return the error for a table whose disk is full."""
    return Overloaded(
        f"{commit} is not in the table, as its disk is full: {cause}. Free some space: it is written again then",
        code="disk_full",
    )


def _refusal(error: Exception, commit: Commit) -> TenureError:
    """Return the error for a write that failed, where the marker shows that the table does not hold the commit."""
    text = str(error)
    if any(sign in condition_of(error) or sign in text for sign in _BUSY):
        return Overloaded(f"another writer changed the table while {commit} was written", code="table_busy")
    if (named := transient_error(error, f"{commit} is not in the table")) is not None:
        return named
    if is_of_the_rows(error):
        return Invalid(f"the table cannot take the rows of {commit}: {reason_of(error)}", code="sink_rejected")
    return Indeterminate(f"{commit} was not seen in the table, where its write failed: {reason_of(error)}")


@contextmanager
def named_refusals(commit: Commit, holds: Callable[[], bool]) -> Iterator[None]:
    """Run a write through a connector, and raise a failure as Tenure's error.

    A failure after which the table ``holds`` the commit is ignored.
    """
    try:
        yield
    except TenureError:
        raise
    except Exception as error:
        if not holds():
            raise _refusal(error, commit) from error


@contextmanager
def unlogged() -> Iterator[None]:
    """Run a call that may be refused as usual, without pyspark's log of the refusal and its stack."""
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
