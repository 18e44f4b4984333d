"""What may stand in the way of a buffer command, said in one line."""

from __future__ import annotations

from collections.abc import Callable

from tenure.cli.main import USAGE
from tenure.cli.remote import exit_code
from tenure.cli.screen import refuse
from tenure.errors import TenureError
from tenure.extras import needs_extra

__all__ = ["guarded"]


def guarded(work: Callable[[], int], *, as_json: bool) -> int:
    """The exit code of a command, also where its extra is not installed, or a store or a file refuses."""
    try:
        return work()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "obstore"):
            raise
        return refuse(needs_extra(f"the buffer needs {error.name}", "buffer"), USAGE, as_json=as_json)
    except (TenureError, OSError) as error:
        return refuse(error, exit_code(error), as_json=as_json)
