"""The entry point of the `tenure` command: exit codes, and the handler of last resort for errors. No slow imports.

No traceback reaches a user. A known error is one line that says what to do next; an unknown error is one line too, and
``TENURE_DEBUG=1`` shows its traceback.

    0    it worked, and nothing is wrong
    1    a problem was found: damage, a loss, a topic or a job that is not there, a conflict with what is stored
    2    the command was used wrongly: a bad argument, bad JSON, no such directory, a directory in use
    3    the program itself failed
    4    there was nothing: no job to claim, no dead letter to redrive or drop
    5    not now: the server is not reached, is overloaded or is stopping; nothing changed, try again later
    6    the key does not allow it, or there is none
    7    the lease was lost: at least one of the jobs is not held any more
    8    the outcome is unknown: the answer was lost, or could not be printed; look before you repeat
    130  interrupted (128 + SIGINT)
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from tenure.cli.output import OutputFailed, discard_output, guard_output

if TYPE_CHECKING:
    from typer import Typer

__all__ = ["DENIED", "EMPTY", "FAILED", "INTERRUPTED", "LATER", "LOST", "OK", "PROBLEM", "UNKNOWN", "USAGE", "main"]

OK, PROBLEM, USAGE, FAILED = 0, 1, 2, 3
EMPTY, LATER, DENIED, LOST, UNKNOWN = 4, 5, 6, 7, 8
INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with one of the documented exit codes."""
    guard_output()
    try:
        from tenure.cli.app import app

        sys.exit(_run(app))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OutputFailed as failed:
        discard_output()
        if isinstance(failed.error, BrokenPipeError):  # the reader of our output has closed it
            sys.exit(PROBLEM)
        _leave(
            f"the answer could not be written: {failed}. What the command did stands: look before you repeat", UNKNOWN
        )
    except Exception as error:
        if os.environ.get("TENURE_DEBUG"):
            raise
        about = " ".join(f"{type(error).__name__}: {error}".split())
        _leave(f"{about}. This is a bug in tenure; TENURE_DEBUG=1 shows where.", FAILED)


def _run(app: Typer) -> int | str | None:
    """Run the command line, flush its output and return its exit code."""
    try:
        if "--json" in sys.argv:
            return _run_for_program(app)
        app(prog_name="tenure")
    except SystemExit as left:
        return left.code
    finally:
        sys.stdout.flush()
    return OK


def _run_for_program(app: Typer) -> int:
    """Run the command line so that wrong usage is a JSON document too; returns the exit code."""
    from typer import Abort

    try:
        return app(prog_name="tenure", standalone_mode=False) or OK
    except Abort:
        return PROBLEM
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())
        print(json.dumps({"error": {"code": "usage", "message": message, "detail": {}}}, indent=2))
        return USAGE


def _leave(message: str, code: int) -> NoReturn:
    with suppress(OSError):  # the exit code reports it too
        print(f"tenure: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
