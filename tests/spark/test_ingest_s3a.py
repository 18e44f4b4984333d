"""Buffer and table on a real S3 server, read and written by the JVM with Hadoop's connector, 600 MB of jars."""

from __future__ import annotations

import json

import pytest

from tenure.spark.sinks.files.table import files
from tests.spark.command import running
from tests.spark.conftest import Filled
from tests.spark.driven import driven


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_a_buffer_on_s3_goes_into_a_table_on_s3_once_and_is_compacted_there(filled: Filled, s3_server: str):
    batches = [[b"a", b"b"], *([b"%d" % number] for number in range(1, 9))]
    rows = [[0, 0, "till", "a"], [0, 1, "till", "b"], *([number, 0, "till", str(number)] for number in range(1, 9))]
    url = filled(*batches, url=s3_server.format(name="s3a"), metadata=b"till")
    table = s3_server.format(name="table")
    told = driven("s3a_driver", url, table, within_s=1_700)
    assert (told["entries"], told["rows"]) == ([10, 0], rows)
    small = files(table)
    assert len(small) >= 9
    with running("spark", "compact", table, "--json") as child:
        code, out, err = child.ended()
    assert code == 0, err
    assert json.loads(out) == {"files_before": len(small), "files_after": 1}
    assert len(files(table)) == 1
    filled([b"9"], url=url, metadata=b"till")
    again = driven("s3a_driver", url, table, within_s=1_700)
    assert (again["entries"], again["rows"]) == ([1, 0], [*rows, [9, 0, "till", "9"]])
