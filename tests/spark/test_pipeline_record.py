"""The notes of a pipeline's runs, and `tenure pipeline status` over them; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tenure.buffer.sinks import Commit
from tenure.cli.app import app
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.outputs import Figures
from tenure.spark.pipeline.progress import ahead_in
from tenure.spark.pipeline.record import RUNS_KEPT_MAX, Run, last_run, note_run, runs_of
from tests.spark.conftest import Filled
from tests.spark.pipeline_case import FIRST, SECOND, set_up, written


def run_of(number: int, *, high: int | None = None, state: str = "done", name: str = "orders") -> Run:
    figures = Figures(entries=0 if high is None else 8, rows=0 if high is None else 3)
    run = Run(pipeline=name, schedule="once", state=state, into="parquet t", figures=figures, bytes=4_096)
    run.started_ms, run.updated_ms = number * 60_000, number * 60_000 + 2_000
    run.low, run.high, run.ranges = None if high is None else 0, high, int(high is not None)
    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "notes").as_uri()


def test_a_run_is_noted_over_its_own_note_and_beside_the_others(url: str) -> None:
    first, second = run_of(1, high=0), run_of(2, state="running")
    for run in (first, second):
        note_run(url, run)
    second.state, second.high = "done", 4
    note_run(url, second)
    assert [(run.started_ms, run.state, run.high) for run in runs_of(url, "orders")] == [
        (120_000, "done", 4),
        (60_000, "done", 0),
    ]
    assert runs_of(url, "others") == []


def test_runs_that_find_nothing_to_write_do_not_push_out_those_that_did(url: str) -> None:
    note_run(url, run_of(1, high=7))
    for number in range(2, RUNS_KEPT_MAX + 20):
        note_run(url, run_of(number))
    runs = runs_of(url, "orders")
    assert [(run.high, run.idle_before) for run in runs] == [(None, RUNS_KEPT_MAX + 17), (7, 0)]
    failed = run_of(1_000, state="failed")
    note_run(url, failed)
    note_run(url, run_of(1_001))
    assert [run.state for run in runs_of(url, "orders")] == ["done", "failed", "done"]


def test_the_history_is_bounded_in_runs_and_in_bytes(url: str) -> None:
    for number in range(RUNS_KEPT_MAX + 5):
        note_run(url, run_of(number + 1, high=number))
    runs = runs_of(url, "orders")
    assert (len(runs), runs[0].high, runs[-1].high) == (RUNS_KEPT_MAX, RUNS_KEPT_MAX + 4, 5)
    large = run_of(1_000, high=1)
    large.error = {"code": "x", "message": "y" * 300_000}
    for number in range(8):
        note_run(url, msgspec.structs.replace(large, started_ms=1_000_000_000 + number))
    assert 1 <= len(runs_of(url, "orders")) < 8
    assert runs_of(url, "orders")[0].started_ms == 1_000_000_007


def test_a_note_that_cannot_be_read_is_no_run(url: str, tmp_path: Path) -> None:
    note_run(url, run_of(1, high=0))
    [note] = (tmp_path / "notes").rglob("orders.json")
    note.write_bytes(b'{"runs": 3}')
    assert last_run(url, "orders") is None
    note_run(url, run_of(2, high=1))
    assert [run.high for run in runs_of(url, "orders")] == [1]


def test_status_shows_the_last_run_that_wrote_behind_one_that_had_nothing_to_write(
    tmp_path: Path, filled: Filled
) -> None:
    url = filled(FIRST, SECOND)
    file = written(set_up(tmp_path), url)
    for number in (1, 2, 3):
        note_run(url, run_of(number, high=1 if number == 1 else None))
    shown = CliRunner().invoke(app, ["pipeline", "status", str(file)], env={"COLUMNS": "200"}).stdout
    assert "last run: done, 1970-01-01 00:03:00.000Z" in shown
    assert "nothing was written" in shown
    assert "1 run before it had nothing to write" in shown
    assert "last run that wrote: done, 1970-01-01 00:01:00.000Z" in shown
    assert "8 entries, 4.0 KiB stored in 2.0 s" in shown
    found = json.loads(CliRunner().invoke(app, ["pipeline", "status", str(file), "--json"]).stdout)
    assert (found["last_run"]["high"], found["last_written"]["high"]) == (None, 1)
    assert "history" not in found


def test_the_history_lists_runs_and_backfills_newest_first(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST)
    file = written(set_up(tmp_path), url)
    failed = run_of(2, state="failed")
    failed.error = {"code": "pipeline_failed", "message": "the disk is full"}
    for run in (run_of(1, high=0), failed, run_of(3, high=0, name="orders.backfill")):
        note_run(url, run)
    arguments = ["pipeline", "status", str(file), "--history"]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [(run["pipeline"], run["state"]) for run in found["history"]] == [
        ("orders.backfill", "done"),
        ("orders", "failed"),
        ("orders", "done"),
    ]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).stdout
    assert "1970-01-01 00:02:00.000Z: the disk is full" in shown
    assert shown.index("00:03:00.000Z") < shown.index("00:01:00.000Z", shown.index("started"))


def test_what_lies_ahead_of_a_micro_batch_is_read_from_the_manifest(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST, SECOND)
    ahead = ahead_in(read_pipeline(written(set_up(tmp_path), url)))
    descriptors, lag = ahead(Commit("b", "orders", 0, 0, 1))
    assert [each.entries for each in descriptors] == [4]
    assert (lag.batches, lag.ms > 0) == (1, True)
    filled(FIRST, url=url)
    descriptors, lag = ahead(Commit("b", "orders", 1, 2, 1))
    assert (sum(each.entries for each in descriptors), all(each.bytes for each in descriptors)) == (8, True)
    assert (lag.batches, lag.ms) == (0, 0)


def test_a_lag_that_cannot_be_read_stops_no_query(tmp_path: Path) -> None:
    ahead = ahead_in(read_pipeline(written(set_up(tmp_path), (tmp_path / "none").as_uri())))
    assert ahead(Commit("b", "orders", 0, 0, 1))[0] == ()
