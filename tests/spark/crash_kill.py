"""One kill in the middle of every sink: a child writes to all of them side by side, is killed, and is succeeded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.crash_driver import drive
from tests.spark.crash_sinks import Case
from tests.spark.crash_support import Child, each_has_moved, held, produced, random_moment, sleep_until_it_is_killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRIES, BATCH, RANGE = 20_000, 1_000, 7_000
SHORT = 4_000
"""Entries of a range of the child: so many ranges that it is not through when the slowest sink has its first."""
SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


def job(case: Case, folder: Path, postgres: str, **more: Any) -> dict[str, Any]:
    """The arguments of a driver: a table of its own, and a group of its own."""
    place = folder / case.name
    place.mkdir()
    return {"case": case.name, "group": case.name, "place": case.at(place, postgres), "entries_max": RANGE, **more}


def kill_once(spark: SparkSession, cases: Sequence[Case], folder: Path, *, postgres: str = "") -> None:
    """The child is killed after the first range of each; this session goes on, and each table has each entry once."""
    url, expected = produced(folder, ENTRIES, batch=BATCH, groups=[case.name for case in cases])
    jobs = [job(case, folder, postgres, buffer=url) for case in cases]
    child = Child([{**told, "entries_max": SHORT} for told in jobs], conf=SMALL)
    try:
        moved = child.wait_for(each_has_moved(jobs))
        sleep_until_it_is_killed(child, random_moment(os.getpid(), 1))
    finally:
        child.kill()
    assert moved, (child.lines, child.errors)
    assert "ended" not in child.lines, "it was through before it was killed"
    for case, told in zip(cases, jobs, strict=True):
        drive(spark, case.make(told["place"]), told)
        assert held(spark, case, told["place"]) == expected, case.name
