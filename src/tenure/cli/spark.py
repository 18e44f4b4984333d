"""`tenure spark`: what a cluster needs to run Tenure's jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.main import OK
from tenure.cli.options import AsJson
from tenure.cli.screen import console_for, document
from tenure.cli.spark_guard import guarded
from tenure.cli.words import size

__all__ = ["spark"]

spark = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="For a Spark cluster: bundle.")


@spark.command("bundle")
def _bundle(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")] = Path("tenure-bundle.zip"),
    also: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="A further package that is installed here; may be given again."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one archive for `spark-submit --py-files`, for executors that have Python and Spark and nothing else."""
    raise typer.Exit(guarded(lambda: _made(out, also or [], as_json=as_json), as_json=as_json))


def _made(out: Path, also: list[str], *, as_json: bool) -> int:
    import msgspec

    from tenure.spark.bundle import make_bundle

    made = make_bundle(out, also=also)
    if as_json:
        document(msgspec.to_builtins(made))
        return OK
    console = console_for()
    parts = ", ".join(f"{name} {version}" for name, version in made.distributions.items())
    for text in (
        f"{made.path}: {size(made.bytes)}, for Python {made.python} on {made.platform}",
        f"in it: {parts}",
        f"use it: spark-submit --py-files {made.path} …, or --conf spark.submit.pyFiles={made.path}",
    ):
        console.print(text, markup=False, soft_wrap=True, highlight=False)
    return OK
