"""Buffer and table on a real S3 server, read and written by the JVM with Hadoop's connector, 600 MB of jars."""

from __future__ import annotations

import pytest

from tests.buffer.conftest import s3_server  # noqa: F401 - a fixture
from tests.spark.conftest import Filled
from tests.spark.driven import driven


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_a_buffer_on_s3_goes_into_a_table_on_s3_once(filled: Filled, s3_server: str):  # noqa: F811
    url = filled([b"a", b"b"], [b"c"], url=s3_server.format(name="s3a"), metadata=b"till")
    told = driven("s3a_driver", url, s3_server.format(name="table"), within_s=1_700)
    assert told["entries"] == [3, 0]
    assert told["rows"] == [[0, 0, "till", "a"], [0, 1, "till", "b"], [1, 0, "till", "c"]]
