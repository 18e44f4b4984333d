"""The notes of a pipeline's runs, and `tenure pipeline status` over them; without Spark."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenure.buffer import Collector, Lag, verify
from tenure.buffer.blocking import Consumer
from tenure.buffer.ingest.sink import Commit
from tenure.cli.app import app
from tenure.client.client import Client
from tenure.errors import Conflict, NotFound
from tenure.objects.file_store import FileStore
from tenure.spark.jobs.balance import Account, demand_balance
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.notes.history import RUNS_KEPT_MAX, begin_run, last_run, note_run, runs_of
from tenure.spark.pipeline.notes.note import RunNote
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.pipeline.notes.unbalanced import (
    accept_unbalanced,
    demand_accepted,
    forget_settled,
    note_unbalanced,
    unbalanced_of,
)
from tenure.spark.pipeline.rows.figures import Change, Figures
from tenure.spark.pipeline.runner.progress import Look, entries_of, progress_of
from tenure.spark.pipeline.runner.streaming import _reporter
from tenure.spark.pipeline.runner.topics import topic_lag
from tests.kit.buffers import QUICK
from tests.kit.server import serving
from tests.spark.conftest import Filled
from tests.spark.pipeline_case import FIRST, PIPELINE, SECOND, set_up, written


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
        begin_run(url, run)
    second.state, second.high = "done", 4
    note_run(url, second)
    assert [(run.started_ms, run.state, run.high) for run in runs_of(url, "orders")] == [
        (120_000, "done", 4),
        (60_000, "done", 0),
    ]
    assert runs_of(url, "others") == []


def test_runs_that_find_nothing_to_write_do_not_push_out_those_that_did(url: str) -> None:
    begin_run(url, run_of(1, high=7))
    for number in range(2, RUNS_KEPT_MAX + 20):
        begin_run(url, run_of(number))
    runs = runs_of(url, "orders")
    assert [(run.high, run.idle_before) for run in runs] == [(None, RUNS_KEPT_MAX + 17), (7, 0)]
    failed = run_of(1_000, state="failed")
    begin_run(url, failed)
    begin_run(url, run_of(1_001))
    assert [run.state for run in runs_of(url, "orders")] == ["done", "failed", "done"]


def test_the_history_is_bounded_in_runs_and_in_bytes(url: str) -> None:
    for number in range(RUNS_KEPT_MAX + 5):
        begin_run(url, run_of(number + 1, high=number))
    runs = runs_of(url, "orders")
    assert (len(runs), runs[0].high, runs[-1].high) == (RUNS_KEPT_MAX, RUNS_KEPT_MAX + 4, 5)
    large = run_of(1_000, high=1)
    large.error = {"code": "x", "message": "y" * 300_000}
    begin_run(url, large)
    noted = runs_of(url, "orders")[0]
    assert noted.error is not None
    assert len(noted.error["message"]) == 4_000
    assert len(large.error["message"]) == 300_000


def test_a_note_that_cannot_be_read_is_no_run(url: str, tmp_path: Path) -> None:
    begin_run(url, run_of(1, high=0))
    [note] = (tmp_path / "notes/pipeline/orders").iterdir()
    for damaged in (b'{"ranges": 3}', b"", b"x" * 100_000):
        note.write_bytes(damaged)
        assert last_run(url, "orders") is None
    begin_run(url, run_of(2, high=1))
    assert [run.high for run in runs_of(url, "orders")] == [1]


def test_two_runs_at_the_same_time_lose_neither_note(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has read what is noted before the other writes."""
    begin_run(url, run_of(1, high=0))
    put, at_put, both = FileStore.put, list[str](), asyncio.Event()

    async def together(self: FileStore, key: str, data: bytes) -> None:
        at_put.append(key)
        if len(at_put) >= 2:
            both.set()
        await asyncio.wait_for(both.wait(), 60)
        await put(self, key, data)

    monkeypatch.setattr(FileStore, "put", together)
    first, second = run_of(2, state="running"), run_of(2, state="running")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda run: begin_run(url, run), (first, second)))
    assert len(at_put) == 2
    first.state, first.high, second.state, second.high = "done", 5, "failed", 3
    for run in (second, first, second):
        note_run(url, run)
    found = {(run.state, run.high) for run in runs_of(url, "orders")}
    assert found == {("done", 0), ("done", 5), ("failed", 3)}


def test_idle_runs_that_ended_beside_each_other_give_their_places_to_the_next(url: str) -> None:
    begin_run(url, run_of(1, high=0))
    beside = [run_of(number, state="running") for number in (2, 3)]
    for run in beside:
        begin_run(url, run)
    for run in beside:
        run.state = "done"
        note_run(url, run)
    begin_run(url, run_of(4, high=1))
    assert [(run.high, run.idle_before) for run in runs_of(url, "orders")] == [(1, 2), (0, 0)]


def test_a_run_goes_on_with_what_the_one_before_it_reached(url: str) -> None:
    before = run_of(1, high=7)
    before.reached = 7
    begin_run(url, before)
    for number in (2, 3):
        begin_run(url, run_of(number))
    after = run_of(4)
    begin_run(url, after)
    assert after.reached == 7


def test_the_notes_are_the_buffers_own(filled: Filled) -> None:
    url = filled(FIRST)
    begin_run(url, run_of(1, high=0))
    begin_run(url, run_of(2, high=0, name="orders.backfill"))

    async def found() -> list[str]:
        return [finding.key async for finding in verify(url)]

    assert asyncio.run(found()) == []


def test_status_shows_the_last_run_that_wrote_behind_one_that_had_nothing_to_write(
    tmp_path: Path, filled: Filled
) -> None:
    url = filled(FIRST, SECOND)
    file = written(set_up(tmp_path), url)
    for number in (1, 2, 3):
        begin_run(url, run_of(number, high=1 if number == 1 else None))
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
    wrote, unknown = run_of(1, high=0), run_of(3, high=0, name="orders.backfill")
    wrote.figures.stages = {"step 1": Change(8, 10), "deduplicate": Change(10, 3)}
    wrote.figures.duplicates = 1
    unknown.figures.stages = {"merge": Change(8, None)}
    for run in (wrote, failed, unknown):
        begin_run(url, run)
    arguments = ["pipeline", "status", str(file), "--history"]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [(run["pipeline"], run["state"]) for run in found["history"]] == [
        ("orders.backfill", "done"),
        ("orders", "failed"),
        ("orders", "done"),
    ]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).stdout
    assert "1970-01-01 00:02:00.000Z: the disk is full" in shown
    assert "3 rows written to parquet t, 1 duplicate\n" in shown
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("|")]
    of = [cells[0].index(head) for head in ("entries", "rows", "left out")]
    assert [[line[place] for place in of] for line in cells[2:]] == [
        ["8", "3", "unknown"],
        ["0", "0", "0"],
        ["8", "3", "5"],
    ]
    assert shown.index("00:03:00.000Z") < shown.index("00:01:00.000Z", shown.index("| started"))


def test_status_is_printed_as_metrics_without_what_is_not_known(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST, SECOND)
    file = written(set_up(tmp_path), url)
    run = run_of(1, high=1)
    run.figures.malformed = None
    begin_run(url, run)
    note_unbalanced(url, "orders", unbalanced(0, 1))
    shown = CliRunner().invoke(app, ["pipeline", "status", str(file), "--metrics"]).stdout.splitlines()
    values = dict(line.rsplit(" ", 1) for line in shown if not line.startswith("#"))
    named = {name.split("{")[0].removeprefix("tenure_pipeline_"): value for name, value in values.items()}
    assert (named["entries"], named["rows"], named["lag_batches"]) == ("8", "3", "2")
    assert (named["unbalanced_ranges"], named["last_run_failed"]) == ("1", "0")
    assert "malformed" not in named


def unbalanced(low: int, high: int, *, published: bool = True) -> Conflict:
    with pytest.raises(Conflict) as caught:
        demand_balance(Account(entries=10, stored=9), Commit("b", "orders", low, high, 1), published=published)
    return caught.value


def test_a_range_that_is_in_the_table_and_does_not_balance_waits_until_it_is_accepted(
    tmp_path: Path, filled: Filled
) -> None:
    url = filled(FIRST, SECOND)
    file = written(set_up(tmp_path), url)
    note_unbalanced(url, "orders", unbalanced(0, 0, published=False))
    demand_accepted(unbalanced_of(url, "orders"), file)
    note_unbalanced(url, "orders", unbalanced(1, 5_000_000_000))
    with pytest.raises(Conflict, match=r"go on with: tenure pipeline accept .* 1 5000000000"):
        demand_accepted(unbalanced_of(url, "orders"), file)
    with pytest.raises(NotFound, match="no range 1 to 2"):
        accept_unbalanced(url, "orders", 1, 2)
    for low, high in ((0, 0), (1, 5_000_000_000)):
        assert accept_unbalanced(url, "orders", low, high).accepted
    noted = unbalanced_of(url, "orders")
    demand_accepted(noted, file)
    assert runs_of(url, "orders") == []
    forget_settled(url, "orders", noted, reached=None)
    assert [each.range for each in unbalanced_of(url, "orders")] == [(0, 0)]  # which no run has written yet
    forget_settled(url, "orders", noted, reached=0)
    assert unbalanced_of(url, "orders") == []


def test_a_note_of_a_run_before_there_was_a_balance_is_read(url: str, tmp_path: Path) -> None:
    begin_run(url, run_of(1, high=0))
    [note] = (tmp_path / "notes/pipeline/orders").iterdir()
    old = json.loads(note.read_bytes())
    for name in ("duplicates", "stages", "unchecked"):
        del old["figures"][name]
    note.write_text(json.dumps(old))
    run = last_run(url, "orders")
    assert run is not None
    assert (run.figures.rows, run.figures.duplicates) == (3, None)


def test_the_entries_of_a_micro_batch_leave_out_what_was_given_up_where_that_matters(
    tmp_path: Path, filled: Filled
) -> None:
    url = filled(FIRST, SECOND)
    entries = entries_of(read_pipeline(written(set_up(tmp_path), url)))
    with Consumer(url, group="orders") as consumer:
        consumer.next_batch()
        consumer.quarantine(0, reason="as told")
    commit = Commit("b", "orders", 0, 1, 1)
    assert (entries(commit, False), entries(commit, True)) == (8, 4)
    assert entries(Commit("b", "orders", 0, 2, 1), True) is None


def test_what_lies_ahead_of_a_micro_batch_is_read_from_the_manifest(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST, SECOND)
    ahead = progress_of(read_pipeline(written(set_up(tmp_path), url)))
    descriptors, lag = ahead(Commit("b", "orders", 0, 0, 1))
    assert descriptors is not None
    assert lag is not None
    assert [each.entries for each in descriptors] == [4]
    assert (lag.batches, lag.ms > 0) == (1, True)
    filled(FIRST, url=url)
    descriptors, lag = ahead(Commit("b", "orders", 1, 2, 1))
    assert descriptors is not None
    assert lag is not None
    assert (sum(each.entries for each in descriptors), all(each.bytes for each in descriptors)) == (8, True)
    assert (lag.batches, lag.ms) == (0, 0)


def test_a_lag_that_cannot_be_read_stops_no_query(tmp_path: Path) -> None:
    ahead = progress_of(read_pipeline(written(set_up(tmp_path), (tmp_path / "none").as_uri())))
    assert ahead(Commit("b", "orders", 0, 0, 1)) == Look(None, None)


def test_a_lag_that_is_not_known_is_none_and_not_zero(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST)
    file = written(set_up(tmp_path), url)
    noting = RunNote(read_pipeline(file), run_of(0, state="running"), on_run=lambda _: None)
    told = _reporter(noting.count, lambda _: Look(None, None))
    told(Commit("b", "orders", 0, 3, 1))
    noting.end("done")
    noted = last_run(url, "orders")
    assert noted is not None
    assert (noted.high, noted.batches, noted.bytes, noted.lag, noted.lag_ms) == (3, 4, None, None, None)
    arguments = ["pipeline", "status", str(file), "--history"]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).stdout
    assert "what was still to come when it was noted is not known" in shown
    assert "stored in" not in shown
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [(run["bytes"], run["lag"], run["lag_ms"]) for run in found["history"]] == [(None, None, None)]


def test_the_lag_of_a_topic_counts_records_that_are_there_and_the_age_of_the_first(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, Client(server.url) as client:
        client.put_topic("orders", durability="fsync")
        source = f'topic = "orders"\nurl = "{server.url}"\n'
        text = PIPELINE.replace('buffer = "{buffer}"\ngroup = "orders"\n', source)
        text += '[schedule]\nrun = "once"\ncheckpoint = "checkpoint"\n'
        file = written(set_up(tmp_path), "", text)
        pipeline = read_pipeline(file)
        assert topic_lag(pipeline, None) == Lag(0, 0)
        client.produce("orders", [1, 2, 3, 4])
        client.delete_records("orders", seqs=[3])
        first = client.diff("orders", limit=1).records[0]
        began_ms = time.time_ns() // 1_000_000
        lag = topic_lag(pipeline, None)
        assert (lag.batches, lag.ms >= began_ms - first.ts) == (4, True)
        assert (topic_lag(pipeline, 2).batches, topic_lag(pipeline, 4)) == (1, Lag(0, 0))
        found = json.loads(CliRunner().invoke(app, ["pipeline", "status", str(file), "--json"]).stdout)
        assert (found["started"], found["lag_records"], found["lag_ms"] >= lag.ms) == (False, 4, True)
        assert progress_of(pipeline)(Commit("b", "orders", 1, 2, 1)).descriptors is None
    assert progress_of(pipeline)(Commit("b", "orders", 1, 2, 1)) == Look(None, None)


def test_bytes_of_which_some_are_not_known_are_none(url: str, tmp_path: Path, filled: Filled) -> None:
    pipeline = read_pipeline(written(set_up(tmp_path), filled(FIRST, SECOND)))
    known = progress_of(pipeline)
    noting = RunNote(pipeline, run_of(0, state="running"), on_run=lambda _: None)
    told = _reporter(noting.count, lambda commit: Look() if commit.low == 0 else known(commit))
    for seq in (0, 1):
        told(Commit("b", "orders", seq, seq, 1))
    assert (noting.run.bytes, noting.run.lag) == (None, 0)


async def collected(url: str) -> None:
    collector = Collector(url, settings=QUICK)
    assert (await collector.run_once()).trimmed == 2
    await collector.close()


def test_status_of_a_group_that_has_not_started_counts_what_it_will_read(tmp_path: Path, filled: Filled) -> None:
    url = filled(FIRST, SECOND, FIRST)
    file = written(set_up(tmp_path), url)
    with Consumer(url, group="others", settings=QUICK) as consumer:
        consumer.next_descriptors(2)
        consumer.ack_through(1)
    asyncio.run(collected(url))
    found = json.loads(CliRunner().invoke(app, ["pipeline", "status", str(file), "--json"]).stdout)
    assert (found["started"], found["last_acked"], found["lag_batches"]) == (False, None, 1)
    assert found["lag_ms"] >= 0
    shown = CliRunner().invoke(app, ["pipeline", "status", str(file)], env={"COLUMNS": "200"}).stdout
    assert f"orders: group orders of {url} has not started: 1 batch to read" in shown
    assert "it has not run yet" in shown
