"""The streaming source's options, limits and offsets, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.errors import Corrupt, Invalid, NotFound
from tenure.spark.jobs.plan import Limits
from tenure.spark.jobs.streaming import write_stream
from tenure.spark.stream.formats import need_streams
from tenure.spark.stream.offsets import Offset, StreamRange, checkpoint_store_url, offsets_of, parse_offsets
from tenure.spark.stream.options import Budget, SourceOptions

URL = "file:///somewhere"
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_options_are_taken_in_any_case():
    options = SourceOptions.parse(
        {"PATH": URL, "startingsequence": "Latest", "MAXENTRIESPERTRIGGER": "10", "failOnDataLoss": "FALSE"}
    )
    assert (options.url, options.starting, options.entries_max, options.fail_on_data_loss) == (URL, "latest", 10, False)


def test_defaults_are_those_of_a_batch_job():
    options, limits = SourceOptions.parse({"url": URL}), Limits()
    assert (options.group, options.starting, options.fail_on_data_loss) == ("default", "earliest", True)
    assert (options.entries_max, options.bytes_max) == (limits.entries_max, limits.bytes_max)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxEntriesPerTrigger", "0"),
        ("maxEntriesPerTrigger", "many"),
        ("maxEntriesPerTrigger", "-1"),
        ("maxBytesPerTrigger", "1k"),
        ("minEntriesPerTrigger", "2000000"),
        ("startingSequence", "newest"),
        ("startingSequence", "-1"),
        ("failOnDataLoss", "perhaps"),
        ("pollMs", "0"),
        ("group", "a/b"),
        ("group", ""),
        ("path", "ftp://somewhere"),
        ("path", "memory://here"),
        ("maxOffsetsPerTrigger", "5"),
    ],
)
def test_a_bad_option_is_refused_and_named(name: str, value: str):
    with pytest.raises(Invalid, match=f"option {name} ") as caught:
        SourceOptions.parse({"path": URL} | {name: value})
    assert (caught.value.code, caught.value.detail["option"]) == ("bad_option", name)


def test_an_option_is_named_as_it_is_written_in_the_reference():
    with pytest.raises(Invalid, match="option maxEntriesPerTrigger must be"):
        SourceOptions.parse({"path": URL, "maxentriespertrigger": "0"})


def test_the_url_is_needed_once():
    with pytest.raises(Invalid, match="option path is missing"):
        SourceOptions.parse({})
    with pytest.raises(Invalid, match="given twice"):
        SourceOptions.parse({"path": URL, "url": URL})


class ReadMaxRows:
    max_rows = 7


class ReadMaxFiles:
    max_files = 3


class ReadMaxBytes:
    max_bytes = 1 << 60


class ReadMinRows:
    min_rows = 50


class ReadAllAvailable:
    pass


def test_the_stricter_of_option_and_spark_s_limit_counts():
    options = SourceOptions.parse({"path": URL, "maxEntriesPerTrigger": "100", "minEntriesPerTrigger": "5"})
    assert Budget.of(options, ReadMaxRows()) == Budget(limits=Limits(entries_max=7), entries_min=5)
    assert Budget.of(options, ReadMaxFiles()).limits == Limits(entries_max=100, batches_max=3)
    assert Budget.of(options, ReadMaxBytes()).limits == Limits(entries_max=100)
    assert Budget.of(options, ReadMinRows()).entries_min == 50
    everything = Budget.of(options, ReadAllAvailable())
    assert (everything.limits.entries_max > 1 << 60, everything.entries_min) == (True, 0)


def test_little_is_read_by_one_task():
    options = SourceOptions.parse({"path": URL, "partitions": "8"})
    assert [options.parts(size) for size in (0, 1 << 20, 3 << 20, 1 << 40)] == [1, 1, 3, 8]


def test_an_offset_survives_spark_and_nothing_else_passes_for_one():
    offset = Offset(9, 4, "b")
    assert Offset.parse(offset.plain()) == offset
    assert list(offset.plain()) == ["seq", "low", "buffer"]
    for bad in ({"seq": 9}, {"seq": 4, "low": 9, "buffer": "b"}, {"seq": "9", "low": 0, "buffer": "b"}):
        with pytest.raises(Corrupt) as caught:
            Offset.parse(bad)
        assert caught.value.code == "checkpoint_damaged"


def written(home: Path, *offsets: str) -> None:
    (home / "offsets").mkdir(parents=True)
    for number, offset in enumerate(offsets):
        (home / "offsets" / str(number)).write_text(HEAD + offset)


def test_a_checkpoint_tells_the_range_of_each_micro_batch(tmp_path: Path):
    first, second = '{"seq": 5, "low": 2, "buffer": "b"}', '{"seq": 9, "low": 5, "buffer": "b"}'
    written(tmp_path, first, second, second)
    for checkpoint in (str(tmp_path), tmp_path.as_uri(), f"file:{tmp_path}"):
        assert offsets_of(checkpoint, 0) == StreamRange("b", 2, 4)
        assert offsets_of(checkpoint, 1) == StreamRange("b", 5, 8)
        assert offsets_of(checkpoint, 2) is None
    with pytest.raises(NotFound):
        offsets_of(str(tmp_path), 3)


def test_a_micro_batch_without_anything_from_the_buffer_has_no_range(tmp_path: Path):
    written(tmp_path, "-", '{"seq": 3, "low": 3, "buffer": "b"}\n{"other": 1}')
    assert offsets_of(str(tmp_path), 0) is None
    assert offsets_of(str(tmp_path), 1) is None


def test_both_formats_of_spark_s_offset_log_are_read():
    offset = '{"seq": 3, "low": 0, "buffer": "b"}'
    for head, line in ((HEAD, offset), (HEAD.replace("v1", "v2"), f"0:{offset}\n1:-\n2:{{}}")):
        assert parse_offsets((head + line).encode()) == Offset(3, 0, "b")


def test_a_query_of_two_buffers_has_no_range_of_its_own():
    line = '{"seq": 3, "low": 0, "buffer": "b"}\n'
    with pytest.raises(Invalid) as caught:
        parse_offsets((HEAD + line + line).encode())
    assert caught.value.code == "several_buffers"


def test_a_file_that_is_not_spark_s_is_refused():
    for data in (b"", b"v1", b"{}\n{}\n{}", b"v3\n{}\n{}"):
        with pytest.raises(Corrupt):
            parse_offsets(data)


def test_checkpoints_are_found_where_spark_finds_them():
    assert checkpoint_store_url("s3a://bucket/a") == "s3://bucket/a"
    assert checkpoint_store_url("gs://bucket/a") == "gs://bucket/a"
    assert checkpoint_store_url("file:/a b") == "file:///a%20b"
    assert checkpoint_store_url("/a b") == "file:///a%20b"


class Old:
    version = "4.1.4"


class Frame:
    """A stream that keeps the function it is to be written by."""

    def __init__(self) -> None:
        self.write: Any = None

    @property
    def writeStream(self) -> Frame:  # noqa: N802
        return self

    def foreachBatch(self, write: Any) -> Frame:  # noqa: N802
        self.write = write
        return self

    def option(self, name: str, value: str) -> Frame:
        return self

    def start(self) -> None:
        pass

    def isEmpty(self) -> bool:  # noqa: N802
        return False


def test_a_spark_that_is_too_old_is_told_what_to_use():
    with pytest.raises(Invalid, match=r"4\.1\.4: use tenure\.spark\.ingest") as caught:
        need_streams(Old())  # type: ignore[arg-type]
    assert caught.value.code == "spark_too_old"


def test_a_checkpoint_that_cannot_be_read_from_here_is_refused_before_the_query_starts():
    frame: Any = Frame()
    with pytest.raises(Invalid, match="hdfs"):
        write_stream(frame, None, checkpoint="hdfs://name/a")  # type: ignore[arg-type]
    assert frame.write is None


def test_rows_that_no_range_can_name_are_refused(tmp_path: Path):
    written(tmp_path, '{"seq": 3, "low": 3, "buffer": "b"}')
    frame: Any = Frame()
    write_stream(frame, None, checkpoint=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(Invalid) as caught:
        frame.write(frame, 0)
    assert caught.value.code == "rows_without_range"
