"""The memory of `tenure report` over more and more events: each size in a process of its own, with the same heap."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {True: (200_000, 2_000_000), False: (1_000_000, 10_000_000)}
_SHAPE = """
    SELECT element_at(array('produced', 'claimed', 'extended', 'acked'), CAST(step AS int) + 1) AS event,
           concat('queue-', job % 7) AS topic,
           1700000000000 + job DIV 100 + step * 250 + pmod(hash(job), 400) AS ts,
           array(job, 1L) AS runs,
           job * 4 + step AS batch,
           0L AS n,
           IF(step = 0, NULL, concat('worker-', pmod(hash(job), 20))) AS node
    FROM (SELECT id DIV 4 AS job, id % 4 AS step FROM range({count}))
"""


def report_memory(root: Path, *, quick: bool) -> list[Row]:
    """The peak of ten times the events against the peak of the fewer; the heap is the same, so it must do."""
    small, large = SIZES[quick]
    peaks = {}
    for count in (small, large):
        started = time.perf_counter()
        peaks[count] = _peak_mb(root / f"report-{count}", count)
        seconds = time.perf_counter() - started
        print(f"  report over {count:,} events, which it makes up first: {seconds:,.0f} s, peak {peaks[count]:,.0f} MB")
    ratio = peaks[large] / peaks[small]
    what = f"peak memory of the report, {large:,} events against {small:,}"
    return [(what, f"{ratio:.2f} ({peaks[large]:,.0f} MB)", "≤ 1.5", ratio <= 1.5)]


def _peak_mb(home: Path, count: int) -> float:
    """The most that the process and its children held at once, in anonymous memory."""
    process = subprocess.Popen([sys.executable, "-m", "bench.spark_report", str(home), str(count)])
    most = 0.0
    while process.poll() is None:
        most = max(most, sum(map(_anonymous_mb, _family(process.pid))))
        time.sleep(0.1)
    assert process.returncode == 0, f"the report over {count:,} events failed"
    return most


def _family(pid: int) -> list[int]:
    """A process and everything below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:  # gone meanwhile
                continue
    return found


def _anonymous_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(held[0]) / 1024 if held else 0.0


def make_events(spark: SparkSession, url: str, count: int) -> None:
    spark.sql(_SHAPE.format(count=count)).write.parquet(url)


def main(home: str, count: str) -> None:
    from tenure.spark.report.job import make_report
    from tenure.spark.report.source import TableEvents
    from tenure.spark.session import open_session

    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "8"}
    spark = open_session("bench-report", master="local[2]", conf=conf)
    events = Path(home).absolute() / "events"
    make_events(spark, events.as_uri(), int(count))
    make_report(spark, TableEvents(events.as_uri()), Path(home).absolute() / "out")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
