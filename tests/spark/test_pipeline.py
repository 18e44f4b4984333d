"""A pipeline file at work: decode, steps, deduplication, expectations, and three tables that get each row once."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tenure.buffer import stat
from tenure.cli.app import app
from tenure.errors import Conflict, Invalid, LeaseLost, Overloaded
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.describe import describe, plan_of
from tenure.spark.pipeline.notes.history import last_run
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.pipeline.rows.outputs import Outputs
from tenure.spark.pipeline.rows.stages import empty_range
from tenure.spark.pipeline.runner.runner import backfill_pipeline
from tenure.spark.sinks.files.table import files
from tests.spark.conftest import Filled
from tests.spark.pipeline_case import FIRST, LOCAL, PIPELINE, SCHEMA, SECOND, order, ran, rows, set_up, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return set_up(tmp_path)


def test_each_entry_ends_in_one_table_once(spark: SparkSession, home: Path, filled: Filled) -> None:
    url = filled(FIRST, SECOND)
    file = written(home, url, PIPELINE.replace("entries_max", 'retain_for = "1h"\nentries_max'))
    run = ran(spark, file)
    assert (run.state, run.ranges, run.batches, run.low, run.high) == ("done", 2, 2, 0, 1)
    found = run.figures
    assert (found.entries, found.rows, found.malformed) == (8, 3, 2)
    assert (found.quarantined, found.dropped) == (3, 1)
    assert found.failed == {"positive": 1, "small": 1, "sane": 0}
    orders = rows(spark, home / "tables/orders", "id", "cents", "cast(day AS string)", "_seq", "_index")
    assert orders == [(1, 600, "2026-01-02", 0, 2), (2, 700, "2026-01-01", 0, 1), (6, 925, "2026-01-01", 1, 3)]
    aside = rows(spark, home / "tables/quarantine", "seq", "index", "reason", "row")
    assert [each[:3] for each in aside] == [(0, 3, "malformed"), (1, 0, "positive"), (1, 2, "malformed")]
    assert aside[0][3] == "not json"
    assert json.loads(aside[1][3])["id"] == 3
    kept = rows(spark, home / "tables/expectations", "low", "high", "expectation", "passed", "failed")
    assert kept[:3] == [(0, 0, "positive", 2, 0), (0, 0, "sane", 2, 0), (0, 0, "small", 2, 0)]
    assert (1, 1, "positive", 2, 1) in kept
    assert sorted(part.name for part in (home / "tables/orders").glob("day=*")) == ["day=2026-01-01", "day=2026-01-02"]

    again = ran(spark, file)
    assert (again.state, again.ranges, again.figures.rows) == ("done", 0, 0)
    assert rows(spark, home / "tables/orders", "id", "cents", "cast(day AS string)", "_seq", "_index") == orders
    assert [one.last_acked for one in asyncio.run(stat(url)).groups if one.group == "orders"] == [1]

    replayed = backfill_pipeline(read_pipeline(file), LOCAL, into="tables/again", first=0, last=1, spark=spark)
    assert replayed.figures.rows == 3
    assert rows(spark, home / "tables/again", "id", "_seq") == [(1, 0), (2, 0), (6, 1)]
    assert len(rows(spark, home / "tables/quarantine-tables-again", "seq")) == 3
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 3
    with pytest.raises(Invalid, match="the pipeline's own table"):
        backfill_pipeline(read_pipeline(file), LOCAL, into="tables/orders", first=0, last=1, spark=spark)


@pytest.mark.full
def test_seven_days_hold_under_three_pipelines_with_other_wishes(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    """The reader of each collects; what one asked to keep, another may not delete."""
    url = filled([b"0"], [b"1"])
    kinds = {"week": 'retain_for = "7d"\n', "none": "", "hour": 'retain_for = "1h"\n'}
    text = '[pipeline]\nname = "{name}"\n[source]\nbuffer = "{buffer}"\ngroup = "{name}"\n{wish}'
    text += '[decode]\nformat = "text"\n[sink]\nkind = "parquet"\npath = "{name}"\n'
    for name, wish in [*kinds.items(), *kinds.items()]:  # the second round collects what the first has acknowledged
        assert ran(spark, written(home, url, text.replace("{name}", name).replace("{wish}", wish))).state == "done"
    found = asyncio.run(stat(url))
    assert (found.retain_for_ms, found.first_seq, [each.why for each in found.kept]) == (
        7 * 86_400_000,
        0,
        ["retention"],
    )
    last = read_pipeline(home / "pipeline.toml")
    assert "which keeps batches for at least 1h" in describe(last)[0]
    backfill_pipeline(last, LOCAL, into="again", first=0, last=1, spark=spark)
    assert len(rows(spark, home / "again", "_seq")) == 2


@pytest.mark.full
def test_a_row_that_no_row_may_be_stops_the_run_before_anything_is_written(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    url = filled(FIRST, [order(-7, 1), order(-8, 1)])
    file = written(home, url)
    with pytest.raises(Conflict, match="2 rows fail the expectation sane, of batches 1: nothing") as caught:
        ran(spark, file)
    assert caught.value.code == "expectation_failed"
    assert [row[0] for row in rows(spark, home / "tables/orders", "_seq")] == [0, 0]
    assert rows(spark, home / "tables/expectations", "low") == [(0,)] * 3
    noted = last_run(url, "orders")
    assert noted is not None
    assert (noted.state, noted.ranges) == ("failed", 1)
    assert noted.error is not None
    assert noted.error["code"] == "expectation_failed"


@pytest.mark.full
def test_a_row_that_was_set_aside_is_kept_whole_and_can_be_replayed(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    long, raw = order(1, -1)[:-1] + b', "note": "' + b"x" * 20_000 + b'"}', b"\xff\x00" + b"y" * 20_000
    (home / "orders.toml").write_text(SCHEMA + 'note = "string"\n')
    file = written(home, filled([long, order(2, 5), raw, order(3, -1)], [order(4, 4)], [order(5, -5)]))
    ran(spark, file)
    aside = rows(spark, home / "tables/quarantine", "seq", "index", "reason", "entry", "length(row) > 20000")
    assert aside == [
        (0, 0, "positive", long, True),
        (0, 2, "malformed", raw, False),
        (0, 3, "positive", order(3, -1), False),
        (2, 0, "positive", order(5, -5), False),
    ]
    again = written(home, filled([each[3] for each in aside]), PIPELINE.replace("tables/", "again/"))
    assert ran(spark, again).figures.quarantined == 4
    assert rows(spark, home / "again/quarantine", "entry") == sorted((each[3],) for each in aside)


@pytest.mark.full
def test_a_range_costs_the_quarantine_one_file_and_none_where_nothing_was_set_aside(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    bad, good = [order(1, -1), b"no", order(2, -2), b"nor"], [order(number, 5) for number in range(4)]
    file = written(home, filled(good, bad, good, bad))
    assert ran(spark, file).ranges == 4
    found = files(home / "tables/quarantine")
    # The first range leaves the columns, so that the table can be read before anything was set aside.
    assert [pq.read_metadata(path).num_rows for path in found] == [0, 4, 4]
    assert {pq.read_metadata(path).row_group(0).column(0).compression for path in found[1:]} == {"ZSTD"}
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 8


@pytest.mark.full
def test_a_crash_between_the_tables_is_made_good_by_the_next_run(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.spark.sinks.files.table import FileTable

    file = written(home, filled(SECOND))
    write = FileTable.write

    def crash(self: FileTable, frame: Any, commit: Any) -> int | None:
        if self.name == "orders":
            raise RuntimeError("power is out")
        return write(self, frame, commit)

    monkeypatch.setattr(FileTable, "write", crash)
    with pytest.raises(Conflict, match="power is out") as caught:
        ran(spark, file)
    assert caught.value.code == "pipeline_failed"
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 2
    assert not (home / "tables/orders").exists()
    monkeypatch.undo()
    # The quarantine held the range already, and cannot say what it stored of it.
    assert ran(spark, file, unchecked=("quarantine",)).figures.rows == 1
    assert rows(spark, home / "tables/orders", "id") == [(6,)]
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 2
    assert len(rows(spark, home / "tables/expectations", "low")) == 3


@pytest.mark.full
def test_a_run_says_what_it_waits_for_and_goes_on(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.spark.sinks.files.table import FileTable

    file = written(home, filled(FIRST))
    write, refusals = FileTable.write, ["again", "again"]

    def busy(self: FileTable, frame: Any, commit: Any) -> int | None:
        if self.name == "orders" and refusals:
            refusals.pop()
            raise Overloaded("others commit to the table all the time", code="table_busy")
        return write(self, frame, commit)

    told: list[str] = []

    def look(run: Run) -> None:
        if run.waiting is not None and run.waiting.attempts == 2:
            told.append(CliRunner().invoke(app, ["pipeline", "status", str(file)]).output)

    monkeypatch.setattr(FileTable, "write", busy)
    run = ran(spark, file, unchecked=("quarantine",), on_range=look)
    assert (run.state, run.ranges, run.retries, run.waiting) == ("done", 1, 2, None)
    assert "last run: running" in told[0]
    assert "it waits, and tries again: 1 attempt since" in told[0]
    assert "because: others commit to the table all the time" in told[0]


def test_an_error_of_ours_that_a_task_raised_is_told_as_it_is(spark: SparkSession, home: Path, filled: Filled) -> None:
    steps = "def fails(frame):\n    def rows(parts):\n        from tenure.errors import LeaseLost\n\n"
    steps += "        yield from parts\n        raise LeaseLost('somebody else has it')\n\n"
    (home / "failing_step_of_tests.py").write_text(steps + "    return frame.mapInArrow(rows, frame.schema)\n")
    text = PIPELINE.replace("orders_steps_of_tests:with_cents", "failing_step_of_tests:fails")
    with pytest.raises(LeaseLost, match="somebody else has it") as caught:
        ran(spark, written(home, filled(FIRST), text))
    assert caught.value.code == "fenced"


def test_a_pipeline_without_its_buffer_leaves_nothing_where_one_may_be_made(home: Path) -> None:
    file = written(home, (home / "to-come").as_uri())
    done = CliRunner().invoke(app, ["pipeline", "run", str(file)])
    assert done.exit_code == 1
    assert done.output.startswith(f"tenure: there is no buffer at {(home / 'to-come').as_uri()}: check where it is")
    assert not (home / "to-come").exists()


@pytest.mark.full
@pytest.mark.parametrize("otherwise", ["drop", "fail"])
def test_without_side_tables_rows_are_counted_on_their_way(
    spark: SparkSession, home: Path, filled: Filled, otherwise: str
) -> None:
    text = PIPELINE[: PIPELINE.index("[[expect]]")].replace('"quarantine"', '"drop"')
    text += '[[expect]]\nname = "small"\nthat = "amount < 1000"\n'
    text += f'[[expect]]\nname = "sane"\nthat = "id > 0"\notherwise = "{otherwise}"\n'
    text += '[sink]\nkind = "parquet"\npath = "tables/orders"\n'
    found = ran(spark, written(home, filled(FIRST, SECOND), text)).figures
    assert (found.entries, found.rows, found.malformed, found.dropped) == (8, 4, 2, 3)
    assert found.failed == {"small": 1, "sane": 0}


def test_a_plan_can_be_seen_without_reading_anything(spark: SparkSession, home: Path, filled: Filled) -> None:
    pipeline = read_pipeline(written(home, filled(FIRST)))
    plan = plan_of(Outputs(pipeline).plan(empty_range(spark)))
    assert "Physical Plan" in plan
    assert describe(pipeline)[-2].startswith("append to parquet tables/orders, partitioned by day")


def test_explain_is_words_and_columns_and_the_plan_comes_when_asked_for(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Borrowed:
        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            """The session is everybody's."""

    monkeypatch.setattr("tenure.spark.pipeline.runner.runner.open_for", lambda *_: Borrowed())
    command = ["pipeline", "explain", str(written(home, filled(FIRST)))]
    short = CliRunner().invoke(app, command, env={"COLUMNS": "200"}).stdout
    assert "1. read " in short
    assert re.search(r"cents\W+bigint", short)
    assert len(short.splitlines()) < 30
    assert "Physical Plan" not in short
    assert "Physical Plan" in CliRunner().invoke(app, [*command, "--plan"]).stdout
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert {"name": "day", "type": "date"} in found["columns"]
    assert "plan" not in found


@pytest.mark.full
def test_a_stream_brings_every_entry_into_the_same_tables(spark: SparkSession, home: Path, filled: Filled) -> None:
    text = PIPELINE + '[schedule]\nrun = "streaming"\nevery_ms = 50\ncheckpoint = "checkpoint"\n'
    file = written(home, filled(FIRST, SECOND), text)
    stop, lags = threading.Event(), []

    def look(run: Run) -> None:
        lags.append((run.high, run.lag))
        if run.high == 1:
            stop.set()

    run = ran(spark, file, stop=stop, on_range=look)
    assert (run.state, run.figures.rows, run.figures.quarantined) == ("stopped", 3, 3)
    assert (run.figures.entries, run.bytes is not None and run.bytes > 0) == (8, True)
    assert set(lags) <= {(0, 1), (1, 0)}
    assert lags[-1] == (1, 0)
    assert rows(spark, home / "tables/orders", "id", "_seq") == [(1, 0), (2, 0), (6, 1)]
    assert len(rows(spark, home / "tables/quarantine", "seq")) == 3


@pytest.mark.full
def test_a_field_that_joins_the_schema_file_needs_no_restart(spark: SparkSession, home: Path, filled: Filled) -> None:
    url = filled([b'{"id":1,"note":"a"}'])
    text = '[pipeline]\nname = "o"\n[source]\nbuffer = "{buffer}"\n[decode]\nschema = "orders.toml"\n'
    text += '[schedule]\nrun = "follow"\nevery_ms = 10\n[sink]\nkind = "parquet"\npath = "tables/orders"\n'
    stop = threading.Event()

    def next_range(run: Run) -> None:
        if run.ranges == 1:
            (home / "orders.toml").write_text(SCHEMA + 'note = "string"\n')
            filled([b'{"id":2,"note":"b"}'], url=url)
        else:
            stop.set()

    run = ran(spark, written(home, url, text), stop=stop, on_range=next_range)
    assert (run.state, run.ranges) == ("stopped", 2)
    table = spark.read.option("mergeSchema", "true").parquet(str(home / "tables/orders"))
    assert sorted(tuple(row) for row in table.select("id", "note").collect()) == [(1, None), (2, "b")]


@pytest.mark.full
def test_a_stop_comes_behind_the_range_under_way(spark: SparkSession, home: Path, filled: Filled) -> None:
    file = written(home, filled(FIRST, FIRST, FIRST))
    stop = threading.Event()
    run = ran(spark, file, stop=stop, on_range=lambda _run: stop.set())
    assert (run.state, run.ranges) == ("stopped", 1)
    assert ran(spark, file).ranges == 2


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("date(at)", "date(ta)", r"pipeline\.toml:11: sql: \[UNRESOLVED_COLUMN.*ta"),
        ("SELECT * FROM dated", "SELECT * FORM dated", r"pipeline\.toml:11: sql: \[PARSE_SYNTAX_ERROR"),
        ("amount > 0", "amuont > 0", r"pipeline\.toml:21: that: \[UNRESOLVED_COLUMN"),
        ('keys = ["id"]', 'keys = ["no"]', r"pipeline\.toml:18: the rows have no no"),
        (":with_cents", ":f.lit", r"pipeline\.toml:16: python: "),
        (":with_cents", ":fails", r"pipeline\.toml:16: python: ValueError: as told$"),
        (":with_cents", ":nothing", r"pipeline\.toml:16: python: TypeError: the function gave NoneType, not a DataFr"),
        ('partition_by = ["day"]', 'partition_by = ["dya"]', r"pipeline\.toml:38: the rows have no dya"),
    ],
    ids=["column", "syntax", "expectation", "key", "function", "raising", "nothing", "partition"],
)
def test_what_only_spark_can_tell_is_told_with_its_line_before_anything_is_read(
    spark: SparkSession, home: Path, filled: Filled, before: str, after: str, told: str
) -> None:
    url = filled(FIRST)
    with pytest.raises(Invalid, match=told) as caught:
        ran(spark, written(home, url, PIPELINE.replace(before, after)))
    assert caught.value.code == "bad_step"
    assert asyncio.run(stat(url)).groups == []


@pytest.mark.full
def test_the_command_runs_a_pipeline_and_says_how_it_stands(home: Path, filled: Filled) -> None:
    file = written(home, filled(FIRST, SECOND))
    command = Path(sys.executable).with_name("tenure")

    def tenure(*arguments: object) -> subprocess.CompletedProcess[str]:
        given = [str(command), "pipeline", *map(str, arguments)]
        return subprocess.run(given, capture_output=True, text=True, check=False, timeout=500)

    sound = tenure("validate", file)
    assert (sound.returncode, sound.stdout) == (0, f"{file}: orders is sound\n"), sound.stderr
    assert "it has not run yet" in tenure("status", file).stdout
    done = tenure("run", file, "--master", "local[2]", "--conf", "spark.driver.memory=1g")
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders: done" in done.stdout
    assert "3 rows written to parquet tables/orders, 2 malformed, 3 quarantined, 1 dropped" in done.stdout
    standing = json.loads(tenure("status", file, "--json").stdout)
    assert (standing["lag_batches"], standing["last_run"]["state"]) == (0, "done")
    file.write_text(file.read_text().replace('kind = "parquet"', 'kind = "parkett"'))
    refused = tenure("run", file)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{file}:36: kind must be one of" in refused.stderr


@pytest.mark.full
def test_the_command_counts_through_spark_connect_too(home: Path, filled: Filled) -> None:
    text = PIPELINE[: PIPELINE.index("[[expect]]")].replace('"quarantine"', '"drop"')
    file = written(home, filled(FIRST, SECOND), text + '[sink]\nkind = "parquet"\npath = "tables/orders"\n')
    command = [str(Path(sys.executable).with_name("tenure")), "pipeline", "run", str(file), "--json"]
    command += ["--remote", "local[2]", "--conf", "spark.driver.memory=1g"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert (figures["entries"], figures["rows"], figures["malformed"]) == (8, 5, 2)
