"""Buffer and table on a real S3 server, read and written by the JVM with Hadoop's connector, 600 MB of jars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.buffer.conftest import s3_server  # noqa: F401 - a fixture
from tests.spark.conftest import Filled

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_a_buffer_on_s3_goes_into_a_table_on_s3_once(filled: Filled, s3_server: str):  # noqa: F811
    url = filled([b"a", b"b"], [b"c"], url=s3_server.format(name="s3a"), metadata=b"till")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.s3a_driver", url, s3_server.format(name="table")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1_700,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["entries"] == [3, 0]
    assert told["rows"] == [[0, 0, "till", "a"], [0, 1, "till", "b"], [1, 0, "till", "c"]]
