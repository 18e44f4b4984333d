"""Every run of a pipeline balances: what the buffer held is in the table, or left out of it by name."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tenure.buffer import stat
from tenure.cli.app import app
from tenure.errors import Conflict
from tenure.spark import FileTable, files, ingest
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.file.sink import make_sink
from tenure.spark.pipeline.notes.history import last_run
from tenure.spark.pipeline.runner.runner import run_pipeline
from tests.spark.conftest import Filled
from tests.spark.pg import running_postgres
from tests.spark.pipeline_case import LOCAL, order, ran, rows, set_up, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMPLE = """\
[pipeline]
name = "orders"
[source]
buffer = "{buffer}"
group = "orders"
[decode]
schema = "orders.toml"
"""
INTO_FILES = '[sink]\nkind = "parquet"\npath = "tables/orders"\n'
DEDUPLICATED = """\
[deduplicate]
keys = ["id"]
[[expect]]
name = "has-id"
that = "id IS NOT NULL"
otherwise = "quarantine"
[quarantine]
path = "tables/quarantine"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return set_up(tmp_path)


def entry(number: int, *tags: str) -> bytes:
    return json.dumps({"id": number, "tags": tags}).encode()


def test_rows_without_a_complete_key_and_malformed_entries_are_no_duplicates(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    no_key = [b'{"amount":%d}' % number for number in range(10)]
    malformed = [b"not json %d" % number for number in range(10)]
    twice = [b'{"id":1,"amount":1}', b'{"id":1,"amount":2}']
    run = ran(spark, written(home, filled([*twice, *no_key, *malformed]), SIMPLE + DEDUPLICATED + INTO_FILES))
    assert rows(spark, home / "tables/orders", "id", "int(amount)") == [(1, 2)]
    assert len(rows(spark, home / "tables/quarantine", "index")) == 20
    found = run.figures
    assert (found.entries, found.rows, found.quarantined, found.duplicates) == (22, 1, 20, 1)
    assert {name: (change.rows_in, change.rows_out) for name, change in found.stages.items()} == {
        "deduplicate": (22, 21),
        "expectations": (21, 1),
    }


STEPS = """\
[[step]]
sql = "SELECT *, explode(tags) AS tag FROM input"
[[step]]
sql = "SELECT * FROM input WHERE tag != 'left out'"
"""


def test_each_step_says_what_it_added_or_took(spark: SparkSession, home: Path, filled: Filled) -> None:
    (home / "orders.toml").write_text('[fields]\nid = "long"\ntags = ["string"]\n')
    text = SIMPLE + 'malformed = "drop"\n' + STEPS + INTO_FILES
    url = filled([entry(1, "a", "b", "left out"), entry(2), b"no"], [entry(3, "c")])
    found = ran(spark, written(home, url, text)).figures
    assert (found.entries, found.rows, found.malformed, found.dropped) == (4, 3, 1, 1)
    assert {name: (change.rows_in, change.rows_out) for name, change in found.stages.items()} == {
        "malformed": (4, 3),
        "step 1": (3, 4),
        "step 2": (4, 3),
    }


def test_a_step_that_does_not_read_all_it_gets_is_no_alarm(spark: SparkSession, home: Path, filled: Filled) -> None:
    url = filled([order(n, 1) for n in range(50)], [b"no"])
    shuffled = '[[step]]\nsql = "SELECT * FROM input WHERE rand() < 0.5 OR _index = 0"\n'
    limited = SIMPLE + '[[step]]\nsql = "SELECT * FROM input LIMIT 3"\n' + INTO_FILES
    some = ran(
        spark,
        written(
            home,
            url,
            limited.replace("[sink]", shuffled + "[sink]")
            .replace('"orders"', '"some"')
            .replace("tables/orders", "some"),
        ),
    ).figures
    assert some.entries == 51
    found = ran(spark, written(home, url, limited)).figures
    assert (found.entries, found.malformed, found.rows) == (51, 1, 3)
    nothing = (
        limited.replace("LIMIT 3", "WHERE false").replace("orders", "others").replace("others.toml", "orders.toml")
    )
    found = ran(spark, written(home, url, nothing), unchecked=("entries",)).figures
    assert (found.entries, found.malformed, found.rows, found.unchecked) == (51, None, 0, ["entries"])


def test_a_plan_that_spark_runs_twice_counts_each_row_once(spark: SparkSession, home: Path, filled: Filled) -> None:
    step = """[[step]]
sql = "SELECT * FROM input ORDER BY id"
[[step]]
sql = "SELECT a.* FROM input AS a JOIN input AS b ON a.id = b.id"
"""
    found = ran(spark, written(home, filled([order(n, 1) for n in range(50)]), SIMPLE + step + INTO_FILES)).figures
    assert (found.entries, found.rows) == (50, 50)


class Wrapped:
    """The table of a pipeline behind something that loses one row, of those it is given or of those it stored."""

    def __init__(self, table: Any, *, late: bool) -> None:
        self._table, self._late = table, late
        self.name, self.schema_version = table.name, table.schema_version
        self.needs, self.last_committed = table.needs, table.last_committed

    def write(self, frame: Any, commit: Any) -> int | None:
        if self._late:
            stored: int = self._table.write(frame, commit)
            return stored - 1
        index, seq = ("_index", "_seq") if "_index" in frame.columns else ("index", "seq")
        found: int | None = self._table.write(frame.where(f"{index} > 0 OR {seq} > 0"), commit)
        return found


def lose_a_row(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    monkeypatch.setattr(MAKE_SINK, lambda *given, **named: Wrapped(make_sink(*given, **named), late=late))


def acknowledged(url: str) -> list[int | None]:
    return [one.last_acked for one in asyncio.run(stat(url)).groups if one.group == "orders"]


@pytest.mark.parametrize("steps", ["", '[[step]]\nsql = "SELECT * FROM input"\n'], ids=["plain", "step"])
def test_a_row_that_is_lost_on_its_way_into_the_table_fails_the_run_and_nothing_is_published(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch, steps: str
) -> None:
    url = filled([order(n, 1) for n in range(10)])
    file = written(home, url, SIMPLE + steps + INTO_FILES)
    lose_a_row(monkeypatch, late=False)
    with pytest.raises(Conflict, match=r"batches 0 to 0 do not balance \(\w+\): 10 .*, and 9 rows stored") as caught:
        ran(spark, file)
    assert (caught.value.code, caught.value.detail["published"]) == ("unbalanced", False)
    assert acknowledged(url) == [None]
    assert not (home / "tables/orders/_spark_metadata").exists()
    monkeypatch.undo()
    assert (ran(spark, file).figures.rows, acknowledged(url)) == (10, [0])


def test_a_row_that_a_table_lost_after_its_commit_stops_the_next_run_too_until_the_range_is_accepted(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = filled([order(n, 1) for n in range(10)], [order(10, 1)])
    file = written(home, url, SIMPLE.replace("[decode]", "entries_max = 10\n[decode]") + INTO_FILES)
    lose_a_row(monkeypatch, late=True)
    with pytest.raises(Conflict, match="The table holds the range") as caught:
        ran(spark, file)
    assert (caught.value.code, caught.value.detail["published"]) == ("unbalanced", True)
    assert acknowledged(url) == [None]
    noted = last_run(url, "orders")
    assert noted is not None
    assert noted.error is not None
    assert (noted.state, noted.error["code"]) == ("failed", "unbalanced")
    monkeypatch.undo()
    with pytest.raises(Conflict, match=f"tenure pipeline accept {file} 0 0"):
        ran(spark, file)
    assert acknowledged(url) == [None]
    told = CliRunner().invoke(app, ["pipeline", "status", str(file)], env={"COLUMNS": "300"}).stdout
    assert "unbalanced, not accepted: batches 0 to 0 do not balance" in told
    assert CliRunner().invoke(app, ["pipeline", "accept", str(file), "0", "1"]).exit_code == 1
    assert CliRunner().invoke(app, ["pipeline", "accept", str(file), "0", "0"]).exit_code == 0
    run = ran(spark, file)
    assert (run.low, run.figures.rows, acknowledged(url)) == (1, 1, [1])
    assert json.loads(CliRunner().invoke(app, ["pipeline", "status", str(file), "--json"]).stdout)["unbalanced"] == []


@pytest.mark.parametrize("steps", [None, lambda rows: rows.where("index != 5")], ids=["plain", "transform"])
def test_a_job_without_a_pipeline_balances_too(spark: SparkSession, home: Path, filled: Filled, steps: Any) -> None:
    url, count = filled([b"%d" % n for n in range(10)]), 10 if steps is None else 9
    table = FileTable(home / "table")
    with pytest.raises(Conflict, match=f"{count:,} .*, and {count - 1} rows stored by the table") as caught:
        ingest(spark, url, Wrapped(table, late=False), group="orders", transform=steps)
    assert caught.value.code == "unbalanced"
    assert acknowledged(url) == [None]
    assert files(home / "table") == []
    assert ingest(spark, url, table, group="orders", transform=steps).entries == 10
    assert acknowledged(url) == [0]


def test_an_entry_that_decoding_lost_fails_the_run(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.spark.pipeline.rows.stages import Stages

    decode = Stages.decode
    monkeypatch.setattr(Stages, "decode", lambda self, raw: decode(self, raw).where("_index != 3"))
    url = filled([order(n, 1) for n in range(10)])
    held = SIMPLE + 'malformed = "quarantine"\n' + DEDUPLICATED + INTO_FILES
    for text in (held, SIMPLE + STEP_OF_ONE + INTO_FILES):
        with pytest.raises(Conflict, match=r"10 entries in the manifest, and 9 entries decoded") as caught:
            ran(spark, written(home, url, text))
        assert caught.value.detail["published"] is False
        assert acknowledged(url) == [None]
        assert not (home / "tables/orders/_spark_metadata").exists()


MAKE_SINK = "tenure.spark.pipeline.rows.outputs.make_sink"
STEP_OF_ONE = '[[step]]\nsql = "SELECT * FROM input"\n'


def test_a_range_that_never_balances_is_written_once_it_is_accepted(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.spark.pipeline.rows.stages import Stages

    decode = Stages.decode
    monkeypatch.setattr(Stages, "decode", lambda self, raw: decode(self, raw).where("_index != 3"))
    url = filled([order(n, 1) for n in range(10)])
    file = written(home, url, SIMPLE + DEDUPLICATED + INTO_FILES)
    for _ in range(2):
        with pytest.raises(Conflict, match="Nothing of the range is in the table"):
            ran(spark, file)
    assert CliRunner().invoke(app, ["pipeline", "accept", str(file), "0", "0"]).exit_code == 0
    run = run_pipeline(read_pipeline(file), LOCAL, spark=spark)
    assert (run.state, run.figures.rows, run.figures.unchecked, acknowledged(url)) == ("done", 9, ["entries"], [0])


def test_an_entry_with_a_row_that_fails_is_quarantined_whole_and_once(
    spark: SparkSession, home: Path, filled: Filled
) -> None:
    """Produced again, it makes each of its rows once."""
    (home / "orders.toml").write_text('[fields]\nid = "long"\ntags = ["string"]\n')
    expect = """[[expect]]
name = "good"
that = "tag != 'bad'"
otherwise = "quarantine"
[[expect]]
name = "short"
that = "length(tag) < 5"
[quarantine]
path = "tables/quarantine"
"""
    text = SIMPLE + 'malformed = "quarantine"\n' + STEPS.partition('[[step]]\nsql = "SELECT * FROM')[0] + expect
    url = filled([entry(1, "ok", "bad", "bad", "too long"), entry(2, "ok", "too long"), b"not json"], [entry(3, "ok")])
    file = written(home, url, text + INTO_FILES)
    found = ran(spark, file).figures
    assert (found.entries, found.rows, found.quarantined, found.dropped) == (4, 2, 5, 1)
    aside = rows(spark, home / "tables/quarantine", "seq", "index", "reason", "entry", "rows")
    assert aside == [
        (0, 0, "good, short", entry(1, "ok", "bad", "bad", "too long"), 4),
        (0, 2, "malformed", b"not json", 1),
    ]
    filled([each[3].replace(b'"bad"', b'"mended"') for each in aside[:1]], url=url)
    ran(spark, file)
    assert rows(spark, home / "tables/orders", "id", "tag") == [(1, "ok"), (2, "ok"), (3, "ok")]


def test_postgres_counts_entries_and_rows(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_postgres() as url:
        monkeypatch.setenv("ORDERS_DB", url)
        sink = '[sink]\nkind = "postgres"\nurl_env = "ORDERS_DB"\ntable = "orders"\n'
        for number, more in enumerate(("", 'malformed = "drop"\n' + STEP_OF_ONE)):
            text = (SIMPLE + more + sink).replace('"orders"', f'"orders{number}"')
            found = ran(spark, written(home, filled([order(1, 2), order(2, 3)], [b"no"]), text)).figures
            assert (found.entries, found.malformed, found.rows) == (3, 1, 3 - number)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "small_delta"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_delta_counts_entries_and_rows(spark: SparkSession, home: Path, filled: Filled, kind: str, mode: str) -> None:
    if (kind, mode) == ("small_delta", "merge"):
        pytest.skip("it does not merge")
    merging = f'mode = "{mode}"\nkeys = ["id"]\n' if mode == "merge" else ""
    text = SIMPLE + 'malformed = "drop"\n' + STEP_OF_ONE + f'[sink]\nkind = "{kind}"\npath = "orders"\n' + merging
    url = filled([order(1, 2), order(2, 3), order(1, 4)], [b"no", order(1, 5)])
    found = ran(spark, written(home, url, text), unchecked=("rows",) if mode == "merge" else ()).figures
    assert (found.entries, found.malformed, found.rows) == (5, 1, 4 if mode == "append" else 2)


@pytest.mark.full
def test_a_stream_balances_and_a_row_that_its_table_lost_ends_it(
    spark: SparkSession, home: Path, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = filled([order(n, 1) for n in range(10)], [b"no"])
    schedule = '[schedule]\nrun = "once"\ncheckpoint = "checkpoint"\n'
    text = SIMPLE + STEP_OF_ONE + INTO_FILES
    streaming = text + schedule.replace("once", "streaming")
    stop = threading.Event()
    run = ran(
        spark, written(home, url, streaming), stop=stop, on_range=lambda run: stop.set() if run.high == 1 else None
    )
    assert (run.figures.entries, run.figures.rows) == (11, 11)
    lose_a_row(monkeypatch, late=False)
    again = (
        streaming.replace('"checkpoint"', '"checkpoint2"')
        .replace("tables/orders", "tables/two")
        .replace('group = "orders"', 'group = "two"')
    )
    with pytest.raises(Conflict, match=r"batches 0 to \d do not balance") as caught:
        ran(spark, written(home, url, again))
    assert caught.value.code == "unbalanced"
