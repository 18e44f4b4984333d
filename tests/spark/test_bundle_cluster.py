"""The archive at work: spark-submit on a standalone cluster whose Pythons have no packages at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tenure.spark.bundle.bundle import make_bundle
from tests.spark.conftest import Filled
from tests.spark.crash_cluster import Cluster, running_cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

JOB = Path(__file__).with_name("bundle_job.py")
OWN_PATH = os.environ.get("PYTHONPATH", "")
PIPELINE = """\
[pipeline]
name = "numbers"
[source]
buffer = "{buffer}"
group = "numbers"
reader = "python"
[decode]
format = "text"
[sink]
kind = "parquet"
path = "numbers"
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python that finds nothing but its own library, and what it is given."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S -s "$@"\n')
    script.chmod(0o755)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, str(script))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return script


@pytest.fixture
def cluster(tmp_path: Path, bare: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as running:
        yield running


def submit(cluster: Cluster, *options: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    home = Path(str(pyspark.__file__)).parent
    command = [str(home / "bin" / "spark-submit"), "--master", cluster.url, "--conf", "spark.executor.memory=512m"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false", *options, str(JOB)]
    environment = os.environ | {"SPARK_HOME": str(home)}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=600, env=environment
    )


def test_a_job_runs_on_executors_that_have_nothing_but_the_bundle(
    cluster: Cluster, filled: Filled, tmp_path: Path
) -> None:
    url = filled(*([b"%d" % (100 * batch + number) for number in range(100)] for batch in range(6)))
    out = tmp_path / "found.json"
    arguments = [url, str(tmp_path / "table"), str(out)]
    without = submit(cluster, arguments=arguments)
    assert without.returncode != 0
    assert "No module named 'tenure'" in without.stdout + without.stderr
    made = make_bundle(tmp_path / "bundle.zip")
    done = submit(cluster, "--py-files", made.path, arguments=arguments)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    found = json.loads(out.read_text())
    assert (found["rows"], found["batches"]) == ([600, 600], 6)
    for places in found["places"]:
        assert all(f"bundle.zip.{made.digest}/" in place for place in places), places


def test_a_pipeline_brings_the_bundle_to_such_executors_by_a_setting(
    cluster: Cluster, filled: Filled, tmp_path: Path
) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(buffer=filled([b"1", b"2"], [b"3"])))
    made = make_bundle(tmp_path / "bundle.zip")
    command = [sys.executable, "-m", "tenure.cli.main", "pipeline", "run", str(tmp_path / "pipeline.toml"), "--json"]
    command += ["--master", cluster.url, "--conf", f"spark.submit.pyFiles={made.path}"]
    command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    environment = os.environ | {"PYTHONPATH": OWN_PATH}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    assert json.loads(done.stdout)["figures"]["rows"] == 3
