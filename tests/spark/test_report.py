"""The report's tables against plain Python, and compacting; a real history, one session."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest

from tenure.buffer import Producer, stat
from tenure.errors import Invalid, NotFound
from tenure.export.rows import Exported, gap
from tenure.spark.jobs.compact_buffer import Compacted, compact
from tenure.spark.jobs.plan import Limits
from tenure.spark.report import events as report_events
from tenure.spark.report.events import find_events
from tenure.spark.report.job import Scope, make_report
from tenure.spark.report.model import Figures
from tenure.spark.report.parse import parse_entries
from tenure.spark.report.steps import steps_of
from tenure.spark.report.tables import TABLES, Inputs
from tenure.spark.sinks.files.table import files
from tenure.testing import ManualClock
from tests.kit.buffers import QUICK
from tests.spark.conftest import Filled
from tests.spark.crash_driver import Died, acting_before, die
from tests.spark.report_history import QUEUES, Counts, entries_of, kind_of, random_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

NO_EVENTS = [
    b"no JSON",
    b"\xff\xfe",
    b"[]",
    b'{"event":"acked"}',
    b'{"event":"acked","topic":"x","ts":1,"runs":[1],"batch":1,"n":1}',
    b'{"event":"acked","topic":"x","ts":1,"runs":[1,999999999999],"batch":1,"n":1}',
    b'{"event":"acked","topic":"x","ts":1,"runs":[1,900000,2000000,900000],"batch":1,"n":1}',
    b'{"event":"acked","topic":"x","ts":1,"runs":[-5,3],"batch":1,"n":1}',
    b'{"event":"acked","topic":"x","ts":99999999999999999999,"runs":[1,1],"batch":1,"n":1}',
    b'{"event":"acked","topic":"x","ts":9223372036854775807,"runs":[1,1],"batch":1,"n":1}',
    b'{"event":"exploded","topic":"x","ts":1,"runs":[1,1],"batch":1,"n":1}',
]


class Made(NamedTuple):
    """A report of a history, and the rows that it is about."""

    rows: list[Exported]
    figures: Figures
    out: Path
    tasks: int
    """How many Spark ran for it."""

    def table(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(self.out / "tables" / name).to_pylist()
        return found

    def counts(self) -> dict[str | None, Counts]:
        return {name: Counts(self.rows, name) for name in (None, *QUEUES)}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report on a history whose beginning is cut off, so that some jobs have none."""
    home = tmp_path_factory.mktemp("report")
    rows = random_history(7, steps=3_000)
    since_ms = rows[len(rows) // 5].ts
    told = [*entries_of(rows), *NO_EVENTS, gap("trimmed", ts=since_ms - 1, batch=9, n=-1, first_batch=3, last_batch=9)]
    url = (home / "events").as_uri()
    asyncio.run(fill(url, [told[start : start + 500] for start in range(0, len(told), 500)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_events, "ENTRIES_SMALL_MAX", 0)
        figures, tasks = report_on(spark, url, home / "out", since_ms=since_ms)
    return Made([row for row in rows if row.ts >= since_ms], figures, home / "out", tasks)


def report_on(spark: SparkSession, url: str, out: Path, *, since_ms: int) -> tuple[Figures, int]:
    """A report, and how many tasks it took."""
    group, tracker = str(out), spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup(group, "report")
    figures = make_report(spark, find_events(url), out, scope=Scope(since_ms=since_ms))
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    return figures, sum(stage.numCompletedTasks for stage in stages if stage is not None)


async def fill(url: str, batches: list[list[bytes]], clock: ManualClock | None = None) -> None:
    async with Producer(url, settings=QUICK, clock=clock) as producer:
        for batch in batches:
            await (await producer.produce(batch)).durable()


def pick(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_jobs_are_counted_per_queue_and_over_all(made: Made) -> None:
    by_queue = {row["queue"]: row for row in made.table("queues")}
    assert set(by_queue) == {None, *(row.topic for row in made.rows)}
    for name, counts in made.counts().items():
        found = by_queue[name]
        assert {event: found[event] for event in counts.jobs} == counts.jobs
        assert found["lives"] == len(counts.ends)
        assert found["begun_before"] == sum(end.life == 0 for end in counts.ends) > 0
        assert found["done"] == sum(end.row.event == "acked" for end in counts.ends)
        assert found["held"] == sum(end.row.event == "claimed" for end in counts.ends)
        assert found["delivered_again"] == sum(end.deliveries > 1 for end in counts.ends)
        assert sum(found[name] for name in ("done", "dead", "moved", "held", "waiting")) == found["lives"]


def test_dead_letters_and_redriven_jobs_are_moved_in_and_not_produced(made: Made) -> None:
    by_queue = {row["queue"]: row for row in made.table("queues")}
    for name in (None, "dead", "moved"):
        rows = [row for row in made.rows if row.event == "produced" and name in (None, row.topic)]
        assert by_queue[name]["moved_in"] == sum(row.runs[1] for row in rows if row.origin is not None) > 0
        assert by_queue[name]["produced"] == sum(row.runs[1] for row in rows if row.origin is None)
    assert by_queue["dead"]["produced"] == 0


def test_percentiles_are_those_of_all_durations(made: Made) -> None:
    by_measure = {(row["queue"], row["measure"]): row for row in made.table("latency")}
    seen = 0
    for name, counts in made.counts().items():
        for measure, unsorted in counts.durations.items():
            durations, found = sorted(max(0, ms) for ms in unsorted), by_measure[name, measure]
            assert found["jobs"] == len(durations)
            assert found["max_ms"] == durations[-1]
            assert found["sum_ms"] == sum(durations)
            for part in (50, 90, 99):
                rank = -(-part * len(durations) // 100)
                assert found[f"p{part}_ms"] == durations[rank - 1], (name, measure, part)
                seen += 1
    assert seen == len(by_measure) * 3


def test_classes_of_durations_hold_every_job_once(made: Made) -> None:
    for measure, durations in Counts(made.rows).durations.items():
        classes = {
            row["low_ms"]: row["jobs"]
            for row in made.table("latency_classes")
            if row["queue"] is None and row["measure"] == measure
        }
        assert sum(classes.values()) == len(durations)
        assert classes.get(0, 0) == sum(ms < 1 for ms in durations)
        assert classes.get(200, 0) == sum(200 <= ms < 500 for ms in durations)


def test_deliveries_per_job_are_those_of_lives_whose_beginning_was_seen(made: Made) -> None:
    ends = [end for end in Counts(made.rows).ends if end.life > 0]
    found = {row["low"]: row for row in made.table("deliveries") if row["queue"] is None}
    assert sum(row["jobs"] for row in found.values()) == len(ends)
    assert sum(row["deliveries"] for row in found.values()) == sum(end.deliveries for end in ends)
    for times in range(6):
        jobs = found[times]["jobs"] if times in found else 0
        assert jobs == sum(end.deliveries == times for end in ends)


def test_returned_deliveries_and_their_reasons_are_counted(made: Made) -> None:
    counts = Counts(made.rows)
    found = {(row["how"], row["reason"]): row for row in made.table("returns") if row["queue"] is None}
    assert {key: row["returned"] for key, row in found.items() if row["returned"]} == +counts.returned
    assert {key: row["redelivered"] for key, row in found.items() if row["redelivered"]} == counts.redelivered
    assert sum(row["lost_ms"] for row in found.values()) == sum(counts.durations["returned"])
    assert ("released", "<script>alert(1)</script>") in found
    assert {("lost", "its worker was lost"), ("lost", "its worker was lost: exit code 137")} <= set(found)
    assert {("returned", "returned untried"), ("returned", "returned untried: busy")} <= set(found)


def test_the_poison_ranking_begins_with_the_job_delivered_most(made: Made) -> None:
    expected = sorted(((end.deliveries, end.queue, end.seq) for end in Counts(made.rows).ends), reverse=True)
    found = made.table("poison")
    assert [row["deliveries"] for row in found] == [deliveries for deliveries, _, _ in expected[:100]]
    assert {(row["deliveries"], row["queue"], row["seq"]) for row in found} <= set(expected)


def test_workers_are_compared_by_jobs_and_by_time(made: Made) -> None:
    counts = Counts(made.rows)
    found = {row["node"]: row for row in made.table("workers") if row["queue"] is None}
    assert {node: row["acked"] for node, row in found.items()} == counts.acked_by
    assert {node: row["held_ms"] for node, row in found.items() if row["held_ms"]} == counts.held_ms_by
    shares = list(counts.acked_by.values())
    index = sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
    assert made.figures.all.jain_acked == pytest.approx(index)
    assert made.figures.all.workers == len(shares)


def test_throughput_over_time_adds_up(made: Made) -> None:
    points = [row for row in made.table("throughput") if row["queue"] is None]
    step_ms = made.figures.step_ms
    assert len(points) <= 120
    for event in ("produced", "moved_in", "claimed", "acked"):
        expected: Counter[int] = Counter()
        for row in made.rows:
            if kind_of(row) == event:
                expected[row.ts - row.ts % step_ms] += sum(row.runs[1::2])
        assert {row["start_ms"]: row[event] for row in points if row[event]} == expected


def test_dead_letters_are_counted_by_reason_and_destination(made: Made) -> None:
    expected: Counter[tuple[str, str | None, str | None]] = Counter()
    for row in made.rows:
        if row.event == "dead_lettered":
            expected[row.topic, row.reason, row.dest] += sum(row.runs[1::2])
    rows = [row for row in made.table("dead_letters") if row["queue"] is not None]
    assert {(row["queue"], row["reason"], row["dest"]): row["jobs"] for row in rows} == expected


def test_gaps_and_entries_that_are_no_events_are_told_and_fail_nothing(made: Made) -> None:
    assert made.figures.malformed == len(NO_EVENTS)
    assert [(row["reason"], row["first_batch"], row["last_batch"]) for row in made.table("gaps")] == [("trimmed", 3, 9)]
    page = (made.out / "report.html").read_text()
    assert "The report is incomplete" in page
    assert "<script" not in page
    assert sorted(path.name for path in (made.out / "tables").iterdir()) == sorted(TABLES)


def test_a_life_ends_with_a_redrive_and_begins_anew_and_extensions_count_for_nothing(spark: SparkSession) -> None:
    lives = [
        Exported("produced", "q", 100, [1, 3], batch=1, n=0),
        Exported("claimed", "q", 150, [1, 3], node="a", batch=2, n=0),
        Exported("acked", "q", 170, [1, 1, 3, 1], node="a", batch=3, n=0),
        Exported("extended", "q", 180, [2, 1], node="a", batch=4, n=0),
        Exported("dead_lettered", "q", 190, [2, 1], reason="bad", batch=5, n=0),
        Exported("redriven", "q", 500, [2, 1], dest="q", batch=6, n=0),
        Exported("claimed", "q", 510, [2, 1], node="b", batch=7, n=0),
        Exported("acked", "q", 530, [2, 1], node="b", batch=8, n=0),
        Exported("acked", "q", 540, [9, 1], node="c", batch=9, n=0),
        Exported("produced", "q", 900, [1, 1], batch=10, n=0),
        Exported("redriven", "dead", 950, [4, 1], dest="q", batch=11, n=0),
    ]
    frame = spark.createDataFrame([(bytearray(entry),) for entry in entries_of(lives)], "entry binary")
    steps = [row.asDict() for row in steps_of(parse_entries(frame)).collect()]
    told = {(step["topic"], step["seq"], step["event"], step["ts"]): step for step in steps}
    assert len(told) == len(steps) == 15, "no step for the extension"
    first, again = told["q", 2, "dead_lettered", 190], told["q", 2, "acked", 530]
    assert (first["life"], first["deliveries"], first["before_ms"], first["is_last"], first["node"]) == (
        1,
        1,
        40,
        True,
        "a",
    )
    assert (again["life"], again["deliveries"], again["life_ms"], again["is_last"], again["node"]) == (
        2,
        1,
        30,
        True,
        "b",
    )
    unseen, recreated = told["q", 9, "acked", 540], told["q", 1, "produced", 900]
    assert pick(unseen, "life", "life_ms", "before", "node") == (0, None, None, "c")
    assert recreated["life"] == 2, "a topic that was deleted and made again has its seqs again"
    assert told["dead", 4, "redriven", 950]["begins"] is False, "put back to work elsewhere"


def comparable(figures: Figures) -> dict[str, Any]:
    """The figures without the time of their making and the order of rows that are level."""
    found: dict[str, Any] = json.loads(msgspec.json.encode(figures), parse_float=lambda text: round(float(text), 9))
    del found["made_ms"]
    return {name: sorted(value, key=json.dumps) if isinstance(value, list) else value for name, value in found.items()}


@pytest.mark.full
def test_a_report_on_few_events_is_the_same_with_a_fraction_of_the_tasks(spark: SparkSession, made: Made) -> None:
    assert made.figures.source
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    figures, tasks = report_on(
        spark, made.figures.source, made.out.parent / "small", since_ms=min(row.ts for row in made.rows)
    )
    assert comparable(figures) == comparable(made.figures)
    assert tasks < 0.75 * made.tasks, (tasks, made.tasks)
    assert spark.conf.get("spark.sql.shuffle.partitions") == shuffles  # what was borrowed came back


def test_jobs_of_two_brokers_in_one_buffer_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "events").as_uri()

    async def export(name: str, at: int) -> None:
        async with Producer(url, settings=QUICK, name=f"export-{name}") as producer:
            rows = [
                Exported("produced", "q", at, [1, 1], batch=1, n=0),
                Exported("acked", "q", at + 5, [1, 1], batch=2, n=0),
            ]
            await (await producer.produce(entries_of(rows))).durable()

    asyncio.run(export("a", 100))
    asyncio.run(export("b", 700))
    steps = steps_of(find_events(url).rows(spark)).where("event = 'acked'").collect()
    assert sorted((step["log"], step["life"], step["life_ms"]) for step in steps) == [(0, 1, 5), (1, 1, 5)]


def test_compacting_makes_few_large_files_by_day_with_each_entry_once(spark: SparkSession, tmp_path: Path) -> None:
    url, home = (tmp_path / "buffer").as_uri(), tmp_path / "table"
    dice, days, expected = random.Random(3), 3, []
    for day in range(days):
        clock = ManualClock()
        clock.advance(day * 86_400_000)
        batches = [[b"%d-%d-" % (day, number) + dice.randbytes(100_000)] for number in range(12)]
        expected += [batch[0] for batch in batches]
        asyncio.run(fill(url, batches, clock))
    made = compact(spark, url, home, file_bytes=1 << 20, reader="python")
    assert (made.summary.batches, made.summary.entries) == (36, 36)
    rows = spark.read.parquet(home.as_uri()).orderBy("seq").collect()
    assert [bytes(row["entry"]) for row in rows] == expected
    assert len({str(row["day"]) for row in rows}) == days
    sizes = [Path(path).stat().st_size for path in files(home)]
    assert len(sizes) == made.files <= 3 + days
    assert max(sizes) < 1.5 * (1 << 20)
    again = compact(spark, url, home, file_bytes=1 << 20)
    assert (again.summary.batches, again.files, again.files_bytes) == (0, 0, 0)


def test_compacting_that_died_in_the_middle_goes_on_with_each_entry_once(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    url, home = filled(*([b"%d" % number] for number in range(6))), tmp_path / "table"

    def compacted() -> Compacted:
        return compact(spark, url, home, limits=Limits(batches_max=2))

    for call in ("tenure.spark.sinks.files.log:FileLog.append", "tenure.spark.jobs.plan:Plan.ack_through"):
        with acting_before(call, die), pytest.raises(Died):
            compacted()
    done = compacted()
    assert (done.summary.low, done.summary.high, done.files) == (2, 5, 2)
    rows = spark.read.parquet(home.as_uri()).orderBy("seq").collect()
    assert [bytes(row["entry"]) for row in rows] == [b"%d" % number for number in range(6)]
    assert len(list(home.rglob("*.parquet"))) == 3, "nothing is left of the attempts that died"


@pytest.mark.full
def test_jobs_that_took_ages_are_told_and_fail_nothing(spark: SparkSession) -> None:
    """A clock was wrong by eight thousand years: all durations together are more than a number of 64 bits holds."""
    jobs, last_ms = 40_000, 253_402_300_799_000
    told = {"topic": "x", "runs": [1, jobs], "batch": 1, "node": "w"}
    seen = (("produced", 0), ("claimed", 0), ("released", last_ms), ("claimed", last_ms), ("acked", last_ms))
    entries = [json.dumps({**told, "event": event, "ts": ts, "n": n}).encode() for n, (event, ts) in enumerate(seen)]
    events = parse_entries(spark.createDataFrame([(entry,) for entry in entries], "entry binary"))
    inputs = Inputs(events, steps_of(events).persist(), step_ms=1)
    of_measure = {row["measure"]: row for row in TABLES["latency"](inputs).where("queue IS NULL").collect()}
    assert [of_measure["returned"][name] for name in ("jobs", "p50_ms", "max_ms")] == [jobs, last_ms, last_ms]
    assert of_measure["returned"]["sum_ms"] == 9 * 10**18
    assert {row["held_ms"] for row in TABLES["workers"](inputs).collect()} == {9 * 10**18}
    assert {row["lost_ms"] for row in TABLES["returns"](inputs).collect()} == {9 * 10**18}
    inputs.steps.unpersist()


def test_what_is_no_source_is_refused_before_spark_is_asked(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        find_events(str(tmp_path / "nowhere"))
    assert refused.value.code == "no_events"
    (tmp_path / "other").mkdir()
    with pytest.raises(NotFound) as refused:
        find_events(str(tmp_path / "other"))
    assert refused.value.code == "no_events"


async def test_a_report_takes_no_part_in_the_buffer(made: Made) -> None:
    url = (made.out.parent / "events").as_uri()
    assert (await stat(url)).groups == [], "as no one has begun"


def test_a_directory_that_holds_something_else_is_left_alone(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    source = find_events((made.out.parent / "events").as_uri())
    with pytest.raises(Invalid) as refused:
        make_report(spark, source, tmp_path)
    assert refused.value.code == "report_out"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_time_without_events_is_nothing_to_report(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    source = find_events((made.out.parent / "events").as_uri())
    with pytest.raises(NotFound) as refused:
        make_report(spark, source, tmp_path / "out", scope=Scope(queues=("nobody",)))
    assert refused.value.code == "nothing_to_report"
