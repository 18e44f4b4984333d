"""`tenure compact`: write the small batches of a buffer into large, partitioned files, by a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.buffer.buffer import store_url
from tenure.cli.guard import run_guarded
from tenure.cli.main import EMPTY, OK
from tenure.cli.options import AsJson
from tenure.cli.screen import Payload, console_for, document
from tenure.cli.spark.options import Conf, Master, Remote, Where, session, status_line
from tenure.cli.words import count, size
from tenure.limits import MIB

if TYPE_CHECKING:
    from tenure.spark.jobs.compact_buffer import By, Compacted

__all__ = ["compact"]


def compact(
    buffer: Annotated[
        str, typer.Argument(metavar="BUFFER", help="The buffer: a URL or a directory.", show_default=False)
    ],
    into: Annotated[str, typer.Argument(metavar="TABLE", help="The table: a URL or a directory.", show_default=False)],
    group: Annotated[str, typer.Option("--group", help="The group of consumers that this is; its own table each.")] = (
        "compact"
    ),
    by: Annotated[
        str, typer.Option("--by", metavar="[day|hour]", help="A directory per day or hour of ingestion, UTC.")
    ] = ("day"),
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, max=4_096, help="How large files should be.")] = 128,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make few large Parquet files of a buffer's many small batches, each entry once; run it again for what is new."""
    where = Where(master, remote, conf)
    if by not in ("day", "hour"):
        raise typer.BadParameter(f"files are laid out by day or by hour, not by {by!r}", param_hint="--by")
    layout: By = "hour" if by == "hour" else "day"

    def work() -> int:
        made = _compact(
            store_url(buffer), store_url(into), group=group, by=layout, file_bytes=file_mib * MIB, where=where
        )
        if as_json:
            document(_payload(made))
        else:
            console_for().print(_sentence(made), soft_wrap=True)
        return OK if made.summary.batches else EMPTY

    raise typer.Exit(run_guarded(work, as_json=as_json))


def _compact(buffer_url: str, table_url: str, *, group: str, by: By, file_bytes: int, where: Where) -> Compacted:
    """Run the job. A missing buffer and an invalid table are refused before Spark is started."""
    from tenure.buffer.inspect import buffer_id
    from tenure.objects.background import background
    from tenure.spark.jobs.compact_buffer import CompactTable, compact
    from tenure.spark.session.session import spark_version

    background().run(buffer_id(buffer_url))
    needs = CompactTable(buffer_url, table_url, by=by, file_bytes=file_bytes).needs(spark_version())
    with status_line() as show_status, session("tenure compact", where, needs=[needs]) as spark:
        show_status("reading batches")
        return compact(
            spark,
            buffer_url,
            table_url,
            group=group,
            by=by,
            file_bytes=file_bytes,
            on_range=lambda done: show_status(f"{done.summary.batches:,} batches are in the table"),
        )


def _payload(made: Compacted) -> Payload:
    moved = made.summary
    return {
        "batches": moved.batches,
        "entries": moved.entries,
        "bytes": moved.bytes,
        "files": made.files,
        "files_bytes": made.files_bytes,
        "low": moved.low,
        "high": moved.high,
    }


def _sentence(made: Compacted) -> str:
    moved = made.summary
    if not moved.batches:
        return "there is no batch that the table does not hold"
    before = f"{count(moved.batches, 'batch', 'batches')} of {count(moved.entries, 'entry', 'entries')}"
    return f"{before}, {size(moved.bytes)}, are {count(made.files, 'file')} of {size(made.files_bytes)} now"
