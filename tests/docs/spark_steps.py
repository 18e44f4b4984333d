"""Which commands and pages of the documentation need Spark."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SPARK_PAGES", "runs_spark"]

_SPARK: Final = re.compile(r"^tenure (?:pipeline (?:run|explain|backfill)|report|compact)\b")
SPARK_PAGES: Final[frozenset[str]] = frozenset()


def runs_spark(command: str) -> bool:
    """Whether a command starts Spark."""
    return _SPARK.match(command) is not None
