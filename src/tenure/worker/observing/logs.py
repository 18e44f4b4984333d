"""What a worker process logs, and how its children come to log the same way."""

from __future__ import annotations

import logging
import os
from typing import Final

from tenure.logs import configure as configure_tenure

__all__ = ["configure", "configure_child"]

_VARIABLE: Final = "TENURE_WORKER_LOG"
"""Where a child finds what its worker was told."""


def configure(log_format: str, level_name: str) -> None:
    """Log to standard error, what handlers log included, unless their module has set up logging by itself."""
    level = getattr(logging, level_name.upper())
    configure_tenure(log_format, level=level, tracebacks=True)
    root = logging.getLogger()
    if not root.handlers:
        root.handlers[:] = logging.getLogger("tenure").handlers
        root.setLevel(level)
    os.environ[_VARIABLE] = f"{log_format} {level_name}"


def configure_child() -> None:
    """Log as the worker does; where a program of its own runs it, logging is that program's matter."""
    if _VARIABLE in os.environ:
        configure(*os.environ[_VARIABLE].split())
