"""What may stand in the way of a pipeline command: one line each, and several for a file with several mistakes."""

from __future__ import annotations

from collections.abc import Callable

from tenure.cli.main import USAGE
from tenure.cli.remote import exit_code
from tenure.cli.screen import note, refuse
from tenure.errors import Invalid, TenureError

__all__ = ["guarded"]

_EXTRAS = {"pyspark": "spark", "pandas": "spark", "py4j": "spark", "grpc": "connect", "pyarrow": "spark"}
_EXTRAS |= {"obstore": "spark", "psycopg": "postgres"}


def guarded(work: Callable[[], int], *, as_json: bool) -> int:
    """The exit code of a command, also where an extra is not installed or a file is full of mistakes."""
    try:
        return work()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        missing = Invalid(f"{error.name} is not installed: pip install 'tenure[{extra}]'", code="no_spark")
        return refuse(missing, USAGE, as_json=as_json)
    except Invalid as error:
        if as_json or "problems" not in error.detail:
            return refuse(error, USAGE, as_json=as_json)
        for line in error.message.splitlines():
            note(line)
        return USAGE
    except (TenureError, OSError) as error:
        return refuse(error, exit_code(error), as_json=as_json)
