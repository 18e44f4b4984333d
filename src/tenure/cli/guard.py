"""Turn errors of commands on buffers and with Spark into a line each and an exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tenure.cli.main import PROBLEM, USAGE
from tenure.cli.remote import exit_code
from tenure.cli.screen import note, refuse
from tenure.errors import Invalid, TenureError
from tenure.extras import extra_of, needs_extra

__all__ = ["run_guarded", "sentence_of"]

_OF_SPARK: Final = ("pyspark", "py4j", "grpc")
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_REASON_MAX: Final = 300


def run_guarded(work: Callable[[], int], *, as_json: bool, spark: bool = True) -> int:
    """Run a command and return its exit code, also where an extra is not installed, a file has mistakes, a store
    refuses or a job fails. ``spark``: the command needs Spark, whose extra includes that of the buffer.
    """
    try:
        return work()
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        if extra == "buffer" and spark:
            extra = "spark"
        code = "no_spark" if spark else None
        return refuse(needs_extra(f"{error.name} is not installed", extra, code=code), USAGE, as_json=as_json)
    except Invalid as error:
        if as_json or "problems" not in error.detail:
            return refuse(error, USAGE, as_json=as_json)
        for line in error.message.splitlines():
            note(line)
        return USAGE
    except (TenureError, OSError) as error:
        return refuse(error, exit_code(error), as_json=as_json)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _OF_SPARK:
            raise
        failed = TenureError(f"the Spark job failed: {sentence_of(error)}", code="spark_failed")
        return refuse(failed, PROBLEM, as_json=as_json)


def sentence_of(error: Exception) -> str:
    """Return the innermost cause in an error of Spark, or its first line."""
    text = str(error)
    causes = _CAUSE.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (causes[-1] if causes else lines[0] if lines else type(error).__name__)[:_REASON_MAX]
