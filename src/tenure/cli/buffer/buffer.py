"""`tenure buffer`: inspect a buffer, produce entries, collect garbage, and skip damaged batches.

These commands are no consumers, so they fence none, except for `quarantine` and `drop-group`, which must.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from tenure.cli.buffer import show as buffer_show
from tenure.cli.guard import run_guarded
from tenure.cli.main import OK, PROBLEM
from tenure.cli.options import AsJson, duration
from tenure.cli.screen import Payload, Shown, console_for, document

__all__ = ["buffer"]

T = TypeVar("T")

buffer = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A buffer: stat, groups, manifest, tail, produce, set, gc, drop-group, quarantine, verify.",
)

Where = Annotated[
    str, typer.Argument(metavar="URL", help="file:///…, s3://…, gs://…, az://… or a directory.", show_default=False)
]
Group = Annotated[str, typer.Option("--group", help="Which group of consumers.")]


def store_url(where: str) -> str:
    """Return the URL of a buffer; a path is a directory of this machine."""
    return where if "://" in where else Path(where).absolute().as_uri()


def report(work: Callable[[], Coroutine[Any, Any, Shown]], show: Callable[..., None], *, as_json: bool) -> int:
    """Run a command and print its result, or its error in one line; returns the exit code."""

    def run() -> int:
        payload, code = asyncio.run(work())
        if as_json:
            document(payload)
        else:
            show(console_for(), payload)
        return code

    return run_guarded(run, as_json=as_json, spark=False)


@buffer.command("stat")
def _stat(where: Where, as_json: AsJson = False) -> None:
    """Figures: batches, entries, bytes, requests per GB, objects per hour, and how far each group is behind."""

    async def find() -> Shown:
        import msgspec

        from tenure.buffer import stat

        payload: Payload = msgspec.to_builtins(await stat(store_url(where)))
        return payload, OK

    raise typer.Exit(report(find, buffer_show.stat, as_json=as_json))


@buffer.command("groups")
def _groups(where: Where, as_json: AsJson = False) -> None:
    """List the groups: how far each is behind, since when it has not moved, and what it alone keeps."""

    async def find() -> Shown:
        import msgspec

        from tenure.buffer import groups

        return {"groups": msgspec.to_builtins(await groups(store_url(where)))}, OK

    raise typer.Exit(report(find, buffer_show.groups, as_json=as_json))


@buffer.command("drop-group")
def _drop_group(
    where: Where,
    group: Annotated[str, typer.Argument(help="The group.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Forget a group, so that no batch is kept for it any more. Its consumer, if one runs, is fenced."""

    async def find() -> Shown:
        from tenure.buffer import drop_group

        await drop_group(store_url(where), group)
        return {"dropped": group}, OK

    raise typer.Exit(report(find, buffer_show.dropped, as_json=as_json))


@buffer.command("set")
def _set(
    where: Where,
    retain_for: Annotated[
        int,
        typer.Option(
            "--retain-for",
            parser=duration,
            metavar="DURATION",
            help="Keep batches this long after they were produced, also if every group has acknowledged them.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change a property of the buffer, for every consumer and collector of it."""

    async def find() -> Shown:
        from tenure.buffer import set_retention

        before = await set_retention(store_url(where), retain_for)
        return {"retain_for_ms": retain_for, "before_ms": before}, OK

    raise typer.Exit(report(find, buffer_show.changed, as_json=as_json))


@buffer.command("manifest")
def _manifest(where: Where) -> None:
    """Print the folded manifest as JSON: groups, producers, runs, and the entries that no run holds yet."""

    async def find() -> Shown:
        from tenure.buffer import dump

        return await dump(store_url(where)), OK

    raise typer.Exit(report(find, buffer_show.nothing, as_json=True))


@buffer.command("tail")
def _tail(
    where: Where,
    from_seq: Annotated[
        int | None, typer.Option("--from", min=0, help="Begin with this batch [the last].", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Go on until interrupted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print entries, one a line, past every consumer; with --json each with its batch and its place in it."""
    from tenure.cli.buffer import tail as buffer_tail

    raise typer.Exit(buffer_tail.run(store_url(where), from_seq=from_seq, follow=follow, as_json=as_json))


@buffer.command("produce")
def _produce(
    where: Where,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files [standard input].", show_default=False)
    ] = None,
    format: Annotated[
        Literal["lines", "csv", "json", "parquet"] | None,
        typer.Option("--format", help="What the files are [what their content and name say].", show_default=False),
    ] = None,
    types: Annotated[
        Literal["inferred", "text"],
        typer.Option("--types", help="CSV: fields that are plainly numbers as numbers, or every field as text."),
    ] = "inferred",
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", help="CSV: between fields [as in the header].", show_default=False)
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one entry, as it is.")] = False,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Leave out so many entries at the beginning.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the files were taken for and show entries; produce nothing.")
    ] = False,
    metadata: Annotated[str, typer.Option("--metadata", help="What to say of the entries.")] = "",
    as_json: AsJson = False,
) -> None:
    """Produce lines, CSV, JSON or Parquet, plain or compressed, and return once every entry is durable. The buffer is
    created if it is not there.
    """
    from tenure.cli.buffer import produce as buffer_produce
    from tenure.cli.buffer.importing.source import Reading

    wanted = buffer_produce.Import(
        files=files or [],
        reading=Reading(format=format, types=types, delimiter=delimiter, whole=whole),
        metadata=metadata.encode(),
        skip=skip,
        dry_run=dry_run,
    )
    raise typer.Exit(buffer_produce.run(store_url(where), wanted, as_json=as_json))


@buffer.command("gc")
def _gc(
    where: Where,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    grace: Annotated[
        int,
        typer.Option("--grace", parser=duration, metavar="DURATION", help="Delete nothing that is younger."),
    ] = "1h",  # type: ignore[assignment]  # typer gives it to the parser
    as_json: AsJson = False,
) -> None:
    """Delete what every group has acknowledged and the retention has passed, and what was never committed."""

    async def find() -> Shown:
        import msgspec

        from tenure.buffer import BufferSettings, Collector

        collector = Collector(store_url(where), settings=BufferSettings(grace_ms=grace))
        try:
            found: Payload = msgspec.to_builtins(await collector.run_once(dry_run=dry_run))
        finally:
            await collector.close()
        return {"dry_run": dry_run} | found, OK

    raise typer.Exit(report(find, buffer_show.collected, as_json=as_json))


@buffer.command("quarantine")
def _quarantine(
    where: Where,
    seq: Annotated[int, typer.Argument(min=0, help="The group's next batch; for Spark, any.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Why it is given up.", show_default=False)],
    group: Group = "default",
    as_json: AsJson = False,
) -> None:
    """Give up a batch that a group cannot get past, on the record. Its consumer is fenced: start it again."""

    async def find() -> Shown:
        from tenure.buffer import quarantine

        passed = await quarantine(store_url(where), seq, reason=reason, group=group)
        return {"quarantined": seq, "group": group, "reason": reason, "passed": passed}, OK

    raise typer.Exit(report(find, buffer_show.quarantined, as_json=as_json))


@buffer.command("verify")
def _verify(
    where: Where,
    data: Annotated[bool, typer.Option("--data/--no-data", help="Fetch every batch, or look at sizes only.")] = True,
    as_json: AsJson = False,
) -> None:
    """Look for damage, gaps, orphans and foreign files; change nothing. Exit code 1 if anything is damaged or gone."""

    async def find() -> Shown:
        import msgspec

        from tenure.buffer import verify

        findings = [finding async for finding in verify(store_url(where), data=data)]
        harm = [finding for finding in findings if finding.harmful]
        payload = {"findings": msgspec.to_builtins(findings), "harmful": len(harm)}
        return payload, PROBLEM if harm else OK

    raise typer.Exit(report(find, buffer_show.verified, as_json=as_json))
