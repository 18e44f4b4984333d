"""`tenure report`: report on queues from their exported lifecycle events, by a Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from tenure.cli.guard import run_guarded
from tenure.cli.main import EMPTY, OK
from tenure.cli.options import AsJson
from tenure.cli.screen import Payload, console_for, document, refuse, table
from tenure.cli.spark.options import Conf, Master, Remote, Where, moment_ms, session, status_line
from tenure.errors import NotFound

if TYPE_CHECKING:
    from tenure.spark.report.job import Scope
    from tenure.spark.report.model import Figures, QueueRow

__all__ = ["report"]

_SIGNS: Final = {"bad": "!", "warn": "·", "info": " ", "good": " "}
_HEADS: Final = (
    "queue",
    "produced#",
    "completed#",
    "open#",
    "not acked#",
    "dead#",
    "waits p50#",
    "p99#",
    "works p50#",
    "p99#",
)


def report(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS", help="The buffer that the events are exported to, or a Parquet table.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="A directory for the page and the tables.")] = Path(
        "tenure-report"
    ),
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; may be given again.")] = None,
    since: Annotated[
        int | None,
        typer.Option("--from", parser=moment_ms, metavar="TIME", help="Events from then on: 2026-11-15T08:00, or 24h."),
    ] = None,
    until: Annotated[
        int | None, typer.Option("--to", parser=moment_ms, metavar="TIME", help="Events before that time.")
    ] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Report on what the queues did: times, redeliveries, poison, workers, dead letters; tables and one HTML page."""
    where = Where(master, remote, conf)

    def work() -> int:
        from tenure.spark.report.job import Scope

        scope = Scope(queues=tuple(queue or ()), since_ms=since, until_ms=until)
        try:
            figures = _make(events, out, scope, where=where)
        except NotFound as error:
            if error.code != "nothing_to_report":
                raise
            return refuse(error, EMPTY, as_json=as_json)
        if as_json:
            document(_payload(figures, out))
        else:
            _show(console_for(), figures, out)
        return OK

    raise typer.Exit(run_guarded(work, as_json=as_json))


def _make(events: str, out: Path, scope: Scope, *, where: Where) -> Figures:
    """Make the report. Its arguments are checked before Spark is started."""
    from tenure.spark.report.buckets import START_CONF
    from tenure.spark.report.events import find_events
    from tenure.spark.report.job import check_out, make_report
    from tenure.spark.session.session import spark_version

    check_out(out)
    source = find_events(events, since_ms=scope.since_ms)
    needs = source.needs(spark_version())
    if source.is_small:
        where.conf = {**START_CONF, **where.conf}
    with status_line() as show_status, session("tenure report", where, needs=[needs]) as spark:
        return make_report(spark, source, out, scope=scope, on_step=show_status)


def _payload(figures: Figures, out: Path) -> Payload:
    """Return the figures that fit into a terminal; the tables have the others."""
    import msgspec

    from tenure.spark.report.job import PAGE
    from tenure.spark.report.page.findings import findings

    return {
        "page": str((out / PAGE).absolute()),
        "tables": str((out / "tables").absolute()),
        "findings": [{"level": each.level, "sentence": each.sentence} for each in findings(figures)],
        "all": msgspec.to_builtins(figures.all),
        "queues": msgspec.to_builtins(figures.queues),
        "latency": msgspec.to_builtins(figures.latency),
        "gaps": figures.gaps_count,
        "malformed": figures.malformed,
    }


def _show(console: Console, figures: Figures, out: Path) -> None:
    """Print the findings, a row per queue, and the paths of the page and the tables."""
    from tenure.spark.report.job import PAGE
    from tenure.spark.report.page.findings import findings
    from tenure.spark.report.page.units import amount, moment

    every = figures.all
    console.print(f"{amount(every.rows)} events, {moment(every.first_ms)} to {moment(every.last_ms)} UTC")
    if figures.gaps_count:
        console.print(f"! the report is incomplete: {figures.gaps_count:,} gaps in the exported events")
    if figures.malformed:
        console.print(f"! {figures.malformed:,} entries are no lifecycle events")
    for each in findings(figures):
        console.print(f"{_SIGNS[each.level]} {each.sentence}", markup=False, soft_wrap=True)
    if figures.queues:
        table(console, _HEADS, [_row(figures, row) for row in figures.queues])
    if figures.queues_count > len(figures.queues):
        console.print(f"and {figures.queues_count - len(figures.queues):,} more queues in the tables")
    console.print(f"look at {(out / PAGE).absolute()}; the tables are in {(out / 'tables').absolute()}", soft_wrap=True)


def _row(figures: Figures, row: QueueRow) -> list[object]:
    from tenure.spark.report.page.units import amount, duration, share

    times: list[int | None] = []
    for measure in ("wait", "processing"):
        found = figures.latency_of(row.queue, measure)
        times += [None, None] if found is None else [found.p50_ms, found.p99_ms]
    return [
        row.queue,
        amount(row.produced),
        amount(row.acked),
        amount(row.held + row.waiting),
        share(row.returned, row.claimed),
        amount(row.dead_lettered),
        *(duration(ms) for ms in times),
    ]
