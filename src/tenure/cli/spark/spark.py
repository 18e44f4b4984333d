"""`tenure spark`: bundle the package for clusters, and compact file tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.buffer.buffer import store_url
from tenure.cli.guard import run_guarded
from tenure.cli.main import EMPTY, OK
from tenure.cli.options import AsJson
from tenure.cli.screen import console_for, document
from tenure.cli.spark.options import Conf, Master, Remote, Where, session, status_line
from tenure.cli.words import count, size

__all__ = ["spark"]

spark = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="For clusters and file tables: bundle, compact.")


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
    raise typer.Exit(run_guarded(lambda: _make_bundle(out, also or [], as_json=as_json), as_json=as_json))


@spark.command("compact")
def _compact(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The file table: a URL or a directory.", show_default=False)
    ],
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, max=4_096, help="How large files should be.")] = 128,
    files_min: Annotated[int, typer.Option("--files-min", min=2, help="Small files that are worth a rewrite.")] = 8,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make few large files of a file table's many small ones, in place, beside readers and writers; each row once."""
    where = Where(master, remote, conf)

    def work() -> int:
        before, after = _compact_table(store_url(table), file_bytes=file_mib << 20, files_min=files_min, where=where)
        if as_json:
            document({"files_before": before, "files_after": after})
        else:
            changed = f"{count(before, 'file')} of the table are {count(after, 'file')} now"
            console_for().print(changed if before else "the table has too few small files to rewrite", soft_wrap=True)
        return OK if before else EMPTY

    raise typer.Exit(run_guarded(work, as_json=as_json))


def _compact_table(table_url: str, *, file_bytes: int, files_min: int, where: Where) -> tuple[int, int]:
    """Run the job; return how many files were replaced, by how many. Raises NotFound without a table, before Spark
    starts.
    """
    from tenure.errors import NotFound
    from tenure.spark.jobs.compact_table import compact_table
    from tenure.spark.session.session import spark_version
    from tenure.spark.sinks.files.table import FileTable, files

    if not files(table_url):
        raise NotFound(f"there is no file table at {table_url}, or nothing is in it: name what a job fills")
    needs = FileTable(table_url).needs(spark_version())
    with status_line() as show_status, session("tenure spark compact", where, needs=[needs]) as spark:
        show_status("rewriting small files")
        made = compact_table(spark, table_url, file_bytes=file_bytes, files_min=files_min)
        return made.files_before, made.files_after


def _make_bundle(out: Path, also: list[str], *, as_json: bool) -> int:
    import msgspec

    from tenure.spark.bundle.bundle import make_bundle

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
