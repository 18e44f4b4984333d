"""The innermost cause of a failed job of Spark's, and what it means to the caller."""

from __future__ import annotations

import pytest

from tenure.errors import Conflict, Denied, LeaseLost, Overloaded, TenureError
from tenure.spark.jobs.causes import job_error, named_causes, reason_of, transient_error

STACK = """An error occurred while calling o93.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t/a. SQLSTATE: 58030
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.executeTask(FileFormatWriter.scala:435)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
\tat org.apache.parquet.util.AutoCloseables.uncheckedClose(AutoCloseables.java:89)
\t\tCaused by: java.io.IOException: something else, suppressed
Caused by: {cause}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat {frame}
\t... 24 more
"""
FULL = "java.io.IOException: No space left on device"
OF_THE_TABLE = "org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:418)"
OF_SPARK = "org.apache.spark.storage.DiskBlockObjectWriter.write(DiskBlockObjectWriter.scala:1)"


class SparkError(Exception):
    """An error as py4j raises it for one of Java's."""

    __module__ = "py4j.protocol"


class Py4JNetworkError(SparkError):
    """As py4j's, where the JVM is gone."""


def told(cause: str, frame: str = OF_THE_TABLE) -> Exception:
    return SparkError(STACK.format(cause=cause, frame=frame))


def test_the_reason_is_one_line_with_the_innermost_cause():
    reason = reason_of(told(FULL))
    assert reason.startswith("[TASK_WRITE_FAILED] Task failed while writing rows to file:/t/a")
    assert reason.endswith(f"caused by {FULL}")
    assert "\n" not in reason
    assert "o93" not in reason


IN_A_TASK = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 3602, in main
    func, profiler = read_udfs(
                     ^^^^^^^^^^
  File "serializers.py", line 481, in loads
    return cloudpickle.loads(obj, encoding=encoding)
{raised}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


def test_the_reason_of_a_function_that_failed_in_a_task_is_what_it_raised():
    assert reason_of(SparkError(IN_A_TASK.format(raised="ValueError: no such day"))) == "ValueError: no such day"


def test_a_cluster_whose_pythons_lack_tenure_is_told_what_to_do():
    failed = job_error(SparkError(IN_A_TASK.format(raised="ModuleNotFoundError: No module named 'tenure'")), "x")
    assert failed.message.startswith("x: ModuleNotFoundError: No module named 'tenure'. Nothing of it was written")
    assert "PYSPARK_PYTHON" in failed.message
    assert "tenure spark bundle" in failed.message
    assert "mend the data" not in failed.message


@pytest.mark.parametrize(
    ("cause", "kind", "code"),
    [
        (FULL, Overloaded, "disk_full"),
        ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota", Overloaded, "disk_full"),
        ("java.net.ConnectException: Connection refused", Overloaded, "table_unavailable"),
        ("java.nio.file.AccessDeniedException: /t/a", Denied, "table_denied"),
    ],
)
def test_a_cause_outside_of_the_rows_is_named_with_what_to_do(cause: str, kind: type[TenureError], code: str):
    named = transient_error(told(cause), "batches 0 to 3 were not written")
    assert isinstance(named, kind)
    assert named.code == code
    assert named.message.startswith("batches 0 to 3 were not written")
    assert cause in named.message
    assert "mend the data" not in named.message


def test_the_full_disk_is_told_apart_from_the_one_of_sparks_own_files():
    assert "under the table" in str(transient_error(told(FULL), "x"))
    assert "spark.local.dir" in str(transient_error(told(FULL, OF_SPARK), "x"))


@pytest.mark.parametrize(
    "error",
    [
        told("org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] 'Connection refused' cannot be cast"),
        told("java.lang.IllegalStateException: of a function"),
        Py4JNetworkError("Connection refused"),  # the JVM is gone: waiting for it would never end
        ConnectionRefusedError(111, "Connection refused"),
        ValueError("No space left on device"),
    ],
)
def test_what_does_not_pass_is_not_waited_for(error: Exception):
    assert transient_error(error, "x") is None
    with pytest.raises(type(error)), named_causes("x"):
        raise error


def test_an_unknown_cause_is_a_conflict_that_names_it():
    failed = job_error(told("java.lang.IllegalStateException: of a function"), "batches 0 to 3 were not written")
    assert isinstance(failed, Conflict)
    assert failed.code == "spark_failed"
    assert "IllegalStateException: of a function" in failed.message


def test_an_error_of_ours_that_a_task_raised_is_that_error_again():
    failed = job_error(told("org.apache.spark.api.python.PythonException: tenure.errors.LeaseLost: taken over"), "x")
    assert isinstance(failed, LeaseLost)
    assert (failed.code, failed.message) == ("fenced", "taken over")
