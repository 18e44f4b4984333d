"""The memory of `tenure report` over more and more events: each size in a process of its own, with the same heap."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from bench.events import fill
from bench.measure import Row
from bench.processes import Peak

SIZES = {True: (200_000, 2_000_000), False: (1_000_000, 10_000_000)}


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
    with Peak(process.pid) as peak:
        process.wait()
    assert process.returncode == 0, f"the report over {count:,} events failed"
    return peak.mb


def main(home: str, count: str) -> None:
    from tenure.spark.report.events import find_events
    from tenure.spark.report.job import make_report
    from tenure.spark.session.session import open_session

    url = (Path(home).absolute() / "events").as_uri()
    asyncio.run(fill(url, int(count)))
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "8"}
    spark = open_session("bench-report", master="local[2]", conf=conf)
    make_report(spark, find_events(url), Path(home).absolute() / "out")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
