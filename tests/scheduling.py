"""Which tests go to the same process: those that share a Spark session, and those of a module of `tests/spark`.

Starting Spark takes its time, and so do its first jobs; every other test goes to whichever process is free.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

__all__ = ["OneSession"]

ROOT = Path(__file__).parents[1]
HOME = "tests/spark/"
PAGES = "tests/docs/test_spark_pages.py"


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Hands tests out one by one, but for those that belong together; the largest lot goes first."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path == PAGES:
            return path  # they wait for one process with one Spark: so should only one of ours
        if not path.startswith(HOME):
            return nodeid
        return "spark" if _uses_the_session(path) else path


@cache
def _uses_the_session(path: str) -> bool:
    return "spark: SparkSession" in (ROOT / path).read_text()
