"""`tenure pipeline run` as a process that is stopped, or killed: it ends well, and each row is there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.buffer.inspect import buffer_id
from tenure.objects.background import background
from tenure.spark.pipeline.notes.history import last_run
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.sinks.files.table import FileTable
from tests.spark.command import running
from tests.spark.conftest import Filled
from tests.spark.pipeline_case import FIRST, PIPELINE, order, ran, rows, set_up, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_200)]

SCHEDULES = {
    "once": '[schedule]\nrun = "once"\n',
    "follow": '[schedule]\nrun = "follow"\nevery_ms = 100\n',
    "streaming": '[schedule]\nrun = "streaming"\nevery_ms = 100\ncheckpoint = "checkpoint"\n',
}
SLOW = """\
import pathlib
import time

def slowly(frame):
    here = pathlib.Path(__file__).parent
    if (here / "slow").exists():
        (here / "inside").touch()
        while (here / "slow").exists():
            time.sleep(0.05)
    return frame
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "slow_step_of_tests.py").write_text(SLOW)
    return set_up(tmp_path)


def pipeline(schedule: str) -> str:
    slow = '[[step]]\npython = "slow_step_of_tests:slowly"\n'
    return PIPELINE.replace("[deduplicate]", f"{slow}[deduplicate]") + SCHEDULES[schedule]


def noted(url: str) -> Run:
    return last_run(url, "orders") or Run(pipeline="orders", schedule="")


def held(home: Path, url: str, seq: int) -> Callable[[], bool]:
    """Whether the table holds a batch."""
    table = FileTable(home / "tables/orders", name="orders")
    buffer = background().run(buffer_id(url))

    def look() -> bool:
        last = table.last_committed(None, buffer)  # type: ignore[arg-type]  # it asks no Spark
        return last is not None and last >= seq

    return look


@pytest.mark.parametrize(
    ("schedule", "number", "to_all"),
    [
        ("follow", signal.SIGINT, True),
        ("follow", signal.SIGTERM, True),
        ("streaming", signal.SIGINT, True),
        ("streaming", signal.SIGTERM, False),
    ],
    ids=["follow-int", "follow-term", "streaming-int", "streaming-term"],
)
def test_a_run_that_is_told_to_end_brings_its_range_to_its_end(
    spark: SparkSession, home: Path, filled: Filled, schedule: str, number: signal.Signals, to_all: bool
) -> None:
    """To all: a terminal and a service manager send the signal to Spark's JVM too."""
    url = filled(FIRST)
    file = written(home, url, pipeline(schedule))
    with running("pipeline", "run", file) as child:
        child.until(held(home, url, 0))
        (home / "slow").touch()
        filled([order(7, 1)], url=url)
        child.until((home / "inside").exists)
        os.killpg(child.process.pid, number) if to_all else child.process.send_signal(number)
        (home / "slow").unlink()
        code, out, err = child.ended()
    assert (code, err) == (0, "tenure: it ends behind the range under way; once more ends it at once\n"), out
    assert "orders: stopped" in out
    assert "(0 to 1)" in out
    assert noted(url).state == "stopped"
    assert rows(spark, home / "tables/orders", "id", "_seq") == [(1, 0), (2, 0), (7, 1)]


def test_a_second_signal_ends_a_run_at_once_and_the_next_one_does_the_range_again(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    url = filled(FIRST, [order(7, 1)])
    file = written(home, url, pipeline("once"))
    (home / "slow").touch()
    with running("pipeline", "run", file) as child:
        child.until((home / "inside").exists)
        assert child.process.stderr is not None
        for expected in ("tenure: it ends behind the range under way; once more ends it at once\n", ""):
            os.killpg(child.process.pid, signal.SIGINT)
            assert child.process.stderr.readline() == expected
        code, out, _ = child.ended()
    assert (code, out) == (130, "")
    (home / "slow").unlink()
    assert noted(url).state == "stopped"
    assert ran(spark, file).figures.rows == 3
    assert rows(spark, home / "tables/orders", "id", "_seq") == [(1, 0), (2, 0), (7, 1)]


@pytest.mark.parametrize("schedule", ["once", "streaming"])
def test_a_run_that_is_killed_in_the_middle_is_made_good_by_the_next_one(
    spark: SparkSession, home: Path, filled: Filled, schedule: str
) -> None:
    url = filled(FIRST, [order(7, 1)])
    file = written(home, url, pipeline(schedule))
    with running("pipeline", "run", file) as child:
        child.until(lambda: (home / "tables/quarantine").exists())  # written before the main table
        child.kill()
    assert noted(url).state == "running"
    with running("pipeline", "run", file) as child:
        if schedule == "streaming":
            child.until(held(home, url, 1))
            child.process.send_signal(signal.SIGTERM)
        code, _, err = child.ended()
    assert code == 0, err
    assert rows(spark, home / "tables/orders", "id", "_seq") == [(1, 0), (2, 0), (7, 1)]
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 1
