"""Child processes of Python: the command of a module, which looks for modules where this process does and nowhere else.

``python -m`` alone would put the working directory before the standard library: a file ``queue.py`` there, of a project
or of a stranger, would run with the rights and the environment of the server.
"""

from __future__ import annotations

import os
import sys

__all__ = ["module_command", "module_environment"]


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in this interpreter; run it with `module_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """Return this process's environment, with the directories that this process finds modules in."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
