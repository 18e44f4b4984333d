"""Every sink holds every entry once, wherever a driver dies: before its write, inside it, after it, or anywhere.

20,000 entries, two sessions: this module's, and that of one child which writes to all the sinks side by side and is
killed. Delta at every point of a write takes long and is left to the full suite, as is `test_sinks_crash_full`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.crash_driver import POINTS, Crashing, Died, die, drive
from tests.spark.crash_kill import BATCH, ENTRIES, job, kill_once
from tests.spark.crash_sinks import Case, known
from tests.spark.crash_support import held, produced
from tests.spark.pg import running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = known()
SLICE = ("files",)
"""The sink that is killed in every run. The others are killed in the full suite."""

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if not any(case.name == "postgres" for case in CASES):
        yield ""
        return
    with running_postgres() as url:
        yield url


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=pytest.mark.full if "delta" in case.name else ()) for case in CASES],
)
@pytest.mark.full
def test_a_driver_that_dies_at_any_point_of_a_write_loses_and_repeats_nothing(
    case: Case, spark: SparkSession, postgres: str, tmp_path: Path
):
    url, expected = produced(tmp_path, ENTRIES, batch=BATCH, groups=[case.name])
    told = job(case, tmp_path, postgres, buffer=url)
    for point in POINTS:
        if point == "inside" and case.commits is None:
            continue
        with pytest.raises(Died):
            drive(spark, Crashing(case, told["place"], point, die), told)
    drive(spark, case.make(told["place"]), told)
    assert held(spark, case, told["place"]) == expected
    assert drive(spark, case.make(told["place"]), told).ranges == 0
    assert held(spark, case, told["place"]) == expected


@pytest.mark.parametrize("names", [SLICE, pytest.param((), id="all", marks=pytest.mark.full)], ids=" ".join)
def test_one_kill_in_the_middle_of_every_sink_loses_and_repeats_nothing(
    names: tuple[str, ...], spark: SparkSession, postgres: str, tmp_path: Path
):
    cases = [case for case in CASES if not names or case.name in names]
    kill_once(spark, cases, tmp_path, postgres=postgres)
