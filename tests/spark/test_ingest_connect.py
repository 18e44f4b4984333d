"""The batch job through Spark Connect, from disk by both readers, and from a real S3 server by Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import Filled
from tests.spark.driven import driven

BATCHES = ([b"a", b"b"], [b"c"], [b"d", b"e"])
ROWS = [[0, 0, "till", "a"], [0, 1, "till", "b"], [1, 0, "till", "c"], [2, 0, "till", "d"], [2, 1, "till", "e"]]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_batch_job_runs_through_connect_from_disk_and_from_s3(
    filled: Filled,
    tmp_path: Path,
    s3_server: str,
):
    disk = filled(*BATCHES, metadata=b"till")
    s3 = filled(*BATCHES, url=s3_server.format(name="connect"), metadata=b"till")
    told = driven("connect_driver", tmp_path, disk, s3, within_s=380)
    assert told["session"] == "pyspark.sql.connect.session"
    assert [(each["url"] == disk, each["reader"]) for each in told["found"]] == [
        (True, "jvm"),
        (True, "python"),
        (True, "auto"),
        (False, "auto"),
    ]
    for each in told["found"]:
        assert (each["ranges"], each["rows"]) == (2, ROWS)
