"""The Iceberg sink, on a Spark that Iceberg has a connector for, which stands beside the one of these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid
from tenure.spark.sinks.iceberg.marker import Snapshot, held_high, high_of, wap_id_of
from tenure.spark.sinks.iceberg.sink import IcebergSink
from tests.spark.iceberg_driver import LONG, QUICK, Check
from tools.sparks import directory_of

SPARK = "4.1.4"
DRIVER = Path(__file__).with_name("iceberg_driver.py")
ROOT = Path(__file__).parents[2]


def outcomes_of(checks: Sequence[Check], folder: Path) -> dict[str, str]:
    """What became of each check: all of them in one process and one session."""
    paths = [str(directory_of(SPARK)), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, str(DRIVER), str(folder), *(check.__name__ for check in checks)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outcomes_of(QUICK, tmp_path_factory.mktemp("iceberg"))


@pytest.fixture(scope="module")
def more_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outcomes_of(LONG, tmp_path_factory.mktemp("iceberg"))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [check.__name__ for check in QUICK])
def test_with_the_connector(outcomes: dict[str, str], name: str):
    assert outcomes[name] == "ok", outcomes[name]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [check.__name__ for check in LONG])
def test_more_with_the_connector(more_outcomes: dict[str, str], name: str):
    assert more_outcomes[name] == "ok", more_outcomes[name]


def test_an_identity_is_read_back_and_nobody_elses_is():
    told = wap_id_of(Commit("B", "iceberg", 3, 14, 2))
    assert high_of(told, "B", "iceberg") == 14
    assert high_of(told, "B", "ice") is None
    assert high_of(told, "C", "iceberg") is None
    assert high_of("nightly", "B", "iceberg") is None
    assert high_of("tenure/B/iceberg/nonsense", "B", "iceberg") is None


def test_only_snapshots_that_the_main_branch_is_built_on_count():
    def ours(low: int, high: int) -> str:
        return wap_id_of(Commit("B", "iceberg", low, high, 1))

    line = [
        Snapshot(2, 1, 20, ours(3, 5), None),  # its parent has expired
        Snapshot(3, 2, 30, None, None),
        Snapshot(4, 2, 25, ours(6, 9), None),  # staged behind 2, and published again behind 3
        Snapshot(5, 3, 40, None, ours(6, 9)),
        Snapshot(6, 5, 50, ours(10, 12), None),  # staged by a driver that died
    ]
    snapshots = {snapshot.number: snapshot for snapshot in line}
    about = {"buffer": "B", "sink": "iceberg"}
    heads = {head: held_high(snapshots, head, **about, remembered="9") for head in (None, 1, 2, 3, 5, 6)}
    assert heads == {None: None, 1: None, 2: 5, 3: 5, 5: 9, 6: 12}


def test_a_property_counts_only_where_our_snapshots_have_expired():
    about = {"buffer": "B", "sink": "iceberg", "remembered": "9"}
    others = {2: Snapshot(2, 1, 20, None, None)}
    assert held_high(others, 2, **about) == 9  # what was before 2 has expired
    assert held_high(others | {1: Snapshot(1, None, 10, None, None)}, 2, **about) is None  # rolled back behind ours
    small = {1: Snapshot(1, None, 10, None, None, "B/iceberg/0-4/1"), 2: Snapshot(2, 1, 20, None, None)}
    assert held_high(small, 2, **about) == 4


def test_a_spark_without_a_connector_is_told_which_have_one():
    assert IcebergSink("a.b.c").needs((4, 1)).packages == ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
    with pytest.raises(Invalid, match=r"only for 3.5, 4.0, 4.1") as refused:
        IcebergSink("a.b.c").needs((4, 2))
    assert refused.value.code == "no_connector"


def test_a_name_without_a_catalog_is_refused():
    with pytest.raises(Invalid):
        IcebergSink("db.table")
    with pytest.raises(Invalid):
        IcebergSink("a.b.c", delete_when="op = 'delete'")
