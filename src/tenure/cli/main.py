"""Where the `tenure` command starts: the last net under every command, and nothing that is slow to import.

No traceback reaches a user. What is known to go wrong is one line that says what to do next; what is not known is one
line too, and ``TENURE_DEBUG=1`` shows the rest of it.

    0  it worked, and nothing is wrong
    1  a problem was found: damage, a loss, a tour that saw something it must not see
    2  the command was used wrongly: a bad argument, no such directory, a directory in use
    3  the program itself failed
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

__all__ = ["FAILED", "OK", "PROBLEM", "USAGE", "main"]

OK, PROBLEM, USAGE, FAILED = 0, 1, 2, 3


def main() -> None:
    """Run the command line and leave with one of the documented exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # an arrow must not end the program where the terminal knows none
            stream.reconfigure(errors="replace")
    try:
        from tenure.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        _leave("the command line needs typer and rich: pip install tenure[cli]", USAGE)
    try:
        app(prog_name="tenure")
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not complain about it while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PROBLEM)
    except Exception as error:
        if os.environ.get("TENURE_DEBUG"):
            raise
        about = " ".join(f"{type(error).__name__}: {error}".split())
        _leave(f"{about}. This is a bug in tenure; TENURE_DEBUG=1 shows where.", FAILED)


def _leave(message: str, code: int) -> NoReturn:
    print(f"tenure: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
