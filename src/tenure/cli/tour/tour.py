"""`tenure tour`: show the product in a few seconds, with real kills and recoveries; and Spark, if asked for.

Every claim is checked before it is printed. A check that fails ends the tour with exit code 1.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tenure.cli.main import OK, PROBLEM
from tenure.cli.screen import console_for, escape
from tenure.cli.tour.checks import Surprise
from tenure.cli.tour.kill import kill_and_recover
from tenure.cli.tour.leases import walk_through_leases
from tenure.cli.tour.spark import events_into_a_table
from tenure.cli.tour.takeover import lose_a_server
from tenure.errors import TenureError

__all__ = ["run"]


def run(spark_out: Path | None = None) -> int:
    """Run the tour, with Spark where a directory for its table and report is given; returns the exit code."""
    console, started = console_for(), time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tenure-tour-") as directory:
            asyncio.run(_tour(console, Path(directory) / "data"))
            if spark_out is not None:
                _title(console, "3. From the queue to a table and a report, by Spark")
                events_into_a_table(console, Path(directory) / "crowd", spark_out.absolute())
            _title(console, f"{3 if spark_out is None else 4}. A server is lost")
            lose_a_server(console, Path(directory) / "shared")
    except (Surprise, TenureError) as error:
        console_for(stderr=True).print(f"[bold red]the tour met a surprise:[/] {escape(str(error))}")
        return PROBLEM
    console.print(f"Everything above was checked, in {time.monotonic() - started:.1f} s. Read on: docs/start.md")
    return OK


async def _tour(console: Console, directory: Path) -> None:
    _title(console, "1. A worker is killed")
    console.print(
        "Another process opens a queue of class fsync, then produces, claims and acks, on and on. "
        "It tells us each answer it gets:\n"
    )
    await kill_and_recover(console, directory)
    _title(console, "2. The life of a lease")
    console.print("The same engine, in memory: one job, and four workers who are not careful with it.\n")
    await walk_through_leases(console)


def _title(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/]\n")
