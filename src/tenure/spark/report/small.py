"""How a report on few events is run.

What makes Spark fast at millions of rows (compiling each query, planning it again while it runs, the optimizing
compiler of Java) costs more than a report on a few: nine events took ten times as long as starting Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["ENTRIES_SMALL_MAX", "RUN_CONF", "START_CONF"]

ENTRIES_SMALL_MAX: Final = 5_000
"""Up to so many entries one partition is enough, and interpreting is faster than compiling."""
START_CONF: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For the start of a session that makes one small report, where the user gave none of these."""
RUN_CONF: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For the session while it makes a small report."""
