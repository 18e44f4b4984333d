"""Configure the logging of a worker process and of its children."""

from __future__ import annotations

import logging
import os
from typing import Final

from tenure.logs import configure as configure_tenure

__all__ = ["configure", "configure_child"]

_VARIABLE: Final = "TENURE_WORKER_LOG"
"""The environment variable with the format and the level of the worker, for its children."""


def configure(log_format: str, level_name: str) -> None:
    """Log to standard error, including the logs of handlers, unless their module has set up logging itself."""
    level = getattr(logging, level_name.upper())
    configure_tenure(log_format, level=level, tracebacks=True)
    root = logging.getLogger()
    if not root.handlers:
        root.handlers[:] = logging.getLogger("tenure").handlers
        root.setLevel(level)
    os.environ[_VARIABLE] = f"{log_format} {level_name}"


def configure_child() -> None:
    """Log as the worker does, unless the worker runs in a program that sets up its own logging."""
    if _VARIABLE in os.environ:
        configure(*os.environ[_VARIABLE].split())
