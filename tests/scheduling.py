"""Which tests go to the same process: those that share a Spark session, and those of a module that shares much.

Starting Spark takes its time, and so do its first jobs; each module of `tests/console` starts a browser, and the
commands of pages run in an environment with the wheel. Every other test goes to whichever process is free.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

__all__ = ["OneSession"]

ROOT = Path(__file__).parents[1]
HOME = "tests/spark/"
BROWSER = "tests/console/"
PAGES = ("tests/docs/test_spark_pages.py", "tests/docs/test_commands.py")


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Hands tests out one by one, but for those that belong together; the largest lot goes first."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in PAGES or path.startswith(BROWSER):
            return path  # they wait for one Spark, environment or browser: so should only one process of ours
        if not path.startswith(HOME):
            return nodeid
        return "spark" if _uses_the_session(path) else path


@cache
def _uses_the_session(path: str) -> bool:
    return "spark: SparkSession" in (ROOT / path).read_text()
