"""`tenure pipeline`: check, explain, run and replay a pipeline file, and see how it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.options import AsJson
from tenure.cli.spark.options import Conf, Master, Remote, Where

__all__ = ["pipeline"]

pipeline = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A pipeline file: run, validate, explain, status, accept, backfill.",
)

File = Annotated[Path, typer.Argument(metavar="PIPELINE", help="The pipeline file, TOML.", show_default=False)]


@pipeline.command("run")
def _run(
    file: File,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    once: Annotated[
        bool | None, typer.Option("--once/--follow", help="Over the schedule in the file.", show_default=False)
    ] = None,
    from_here: Annotated[
        bool, typer.Option("--from-here", help="Let a new table begin where the group is, without what came before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring what the buffer holds through the pipeline into its table. Interrupt it, and it ends behind its range."""
    from tenure.cli.pipeline import run as pipeline_run

    where = Where(master, remote, conf)
    raise typer.Exit(pipeline_run.run(file, where, once=once, from_here=from_here, as_json=as_json))


@pipeline.command("validate")
def _validate(file: File, as_json: AsJson = False) -> None:
    """Look for mistakes in a pipeline file and in what it names, all of them at once, without Spark."""
    from tenure.cli.pipeline import status as pipeline_status

    raise typer.Exit(pipeline_status.validate(file, as_json=as_json))


@pipeline.command("explain")
def _explain(
    file: File,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    plan: Annotated[bool, typer.Option("--plan", help="Spark's plan too, all of it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say in words what the pipeline does, and which columns its table gets; nothing is read."""
    from tenure.cli.pipeline import run as pipeline_run

    raise typer.Exit(pipeline_run.explain(file, Where(master, remote, conf), plan=plan, as_json=as_json))


@pipeline.command("status")
def _status(
    file: File,
    history: Annotated[bool, typer.Option("--history", help="Every run that is noted, newest first.")] = False,
    as_metrics: Annotated[bool, typer.Option("--metrics", help="As metrics, in the text form of Prometheus.")] = False,
    as_json: AsJson = False,
) -> None:
    """How far behind the pipeline is, and how its last run went; without Spark."""
    from tenure.cli.pipeline import status as pipeline_status

    raise typer.Exit(pipeline_status.status(file, history=history, as_metrics=as_metrics, as_json=as_json))


@pipeline.command("accept")
def _accept(
    file: File,
    low: Annotated[int, typer.Argument(metavar="LOW", help="The first batch of the range.", show_default=False)],
    high: Annotated[int, typer.Argument(metavar="HIGH", help="The last batch of the range.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Accept a range that did not balance, as it is: the next run goes past it."""
    from tenure.cli.pipeline import status as pipeline_status

    raise typer.Exit(pipeline_status.accept(file, low, high, as_json=as_json))


@pipeline.command("backfill")
def _backfill(
    file: File,
    into: Annotated[
        str, typer.Option("--into", help="The new path, table or topic, as in the file.", show_default=False)
    ],
    first: Annotated[str, typer.Option("--from", help="The first batch, or a time.", metavar="SEQ|TIME")],
    last: Annotated[str, typer.Option("--to", help="The last batch, or a time.", metavar="SEQ|TIME")],
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Replay batches that the buffer still keeps through the pipeline into a new table. No group moves."""
    from tenure.cli.pipeline import run as pipeline_run

    where = Where(master, remote, conf)
    raise typer.Exit(pipeline_run.backfill(file, where, into=into, first=first, last=last, as_json=as_json))
