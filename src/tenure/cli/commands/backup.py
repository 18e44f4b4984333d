"""`tenure backup`, `tenure backup verify` and `tenure restore`: copies of a data directory that may be in use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from tenure import __version__
from tenure.cli.guard import run_guarded
from tenure.cli.main import OK, PROBLEM
from tenure.cli.options import AsJson, KeepLeases
from tenure.cli.screen import Payload, Shown, console_for, document
from tenure.cli.words import count, format_path, size, when
from tenure.limits import MIB

if TYPE_CHECKING:
    from tenure.backup.manifest import Manifest

__all__ = ["backup", "restore"]

_NICE = 19
_PROBLEMS_SHOWN = 50
_RATE_MAX = 1 << 20


class _TakeByDefault(TyperGroup):
    """A group whose first command is meant where none is named: `tenure backup --data DIR TARGET`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["take", *args]
        return super().parse_args(ctx, args)


backup = typer.Typer(
    cls=_TakeByDefault,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Back up a data directory: tenure backup --data DIR TARGET, also while a server uses it; verify a backup.",
)

Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A directory, file:///…, s3://…, gs://… or az://….", show_default=False),
]


@backup.command("take")
def _take(
    target: Target,
    data: Annotated[Path, typer.Option(help="The data directory to back up.", show_default=False)],
    rate: Annotated[
        int,
        typer.Option(min=0, max=_RATE_MAX, metavar="MIB", help="MiB of the log that are read a second; 0 is no limit."),
    ] = 64,
    as_json: AsJson = False,
) -> None:
    """Back up a data directory into an empty or new place; the server that uses it goes on. The default command."""

    _step_back()

    def find() -> Shown:
        from tenure.backup.directory import explained
        from tenure.backup.place import open_place
        from tenure.backup.settings import BackupSettings
        from tenure.backup.take import take_backup
        from tenure.cli.commands.directory import open_disk
        from tenure.cli.progress import Progress
        from tenure.clock import SystemClock

        settings = BackupSettings(rate_bytes_max=rate * MIB)
        with open_place(target, settings) as place, Progress("backing up", total=None) as progress:
            with explained(f"backing up {data}"):
                manifest = take_backup(
                    open_disk(data),
                    place,
                    version=__version__,
                    created_ms=SystemClock().wall_ms(),
                    on_progress=lambda done, total: progress.update(done, f"{size(done)} of {size(total)}"),
                )
            return {"directory": format_path(data), **_about(manifest, place.name)}, OK

    raise typer.Exit(_report(find, _show_taken, as_json=as_json))


@backup.command("verify")
def _verify(target: Target, as_json: AsJson = False) -> None:
    """Read every byte of a backup, change nothing, and list every problem. Exit code 1 if there is one."""

    def find() -> Shown:
        from tenure.backup.directory import explained
        from tenure.backup.place import open_place
        from tenure.backup.verify import verify_backup

        with open_place(target) as place, explained(f"verifying {target}"):
            found = verify_backup(place)
            payload = _about(found.manifest, place.name)
        payload |= {"ok": not found.problems, "batches": found.batches, "frames": found.frames}
        return payload | {"problems": found.problems}, PROBLEM if found.problems else OK

    raise typer.Exit(_report(find, _show_verified, as_json=as_json))


def restore(
    source: Annotated[
        str,
        typer.Argument(metavar="BACKUP", help="The place of a backup, as given to tenure backup.", show_default=False),
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty directory for the restored log.", show_default=False)
    ],
    keep_leases: KeepLeases = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new data directory, as a log of its own: the original may still run.

    Jobs that were in flight are the next in line, with their delivery counts, unless leases are kept.
    """

    def find() -> Shown:
        from tenure.backup.directory import restore_directory
        from tenure.backup.place import open_place

        with open_place(source) as place:
            manifest, restored = restore_directory(place, directory, keep_leases=keep_leases)
            name = place.name
        payload: Payload = {"backup": name, "directory": format_path(directory), "created_ms": manifest.created_ms}
        return payload | msgspec.to_builtins(restored) | {"kept_leases": keep_leases}, OK

    raise typer.Exit(_report(find, _show_restored, as_json=as_json))


def _step_back() -> None:
    """Let the server go first, and let nobody but the owner read what is written: it contains payloads."""
    os.nice(_NICE)
    os.umask(0o077)


def _report(find: Callable[[], Shown], show: Callable[[Console, Payload], None], *, as_json: bool) -> int:
    def run() -> int:
        payload, code = find()
        if as_json:
            document(payload)
        else:
            show(console_for(), payload)
        return code

    return run_guarded(run, as_json=as_json, spark=False)


def _about(manifest: Manifest, name: str) -> Payload:
    return {
        "backup": name,
        "created_ms": manifest.created_ms,
        "tenure": manifest.tenure,
        "log_id": manifest.log_id,
        "epoch": manifest.epoch,
        "end": msgspec.to_builtins(manifest.end),
        "segments": len(manifest.segments),
        "bytes": manifest.bytes,
        "linked_bytes": sum(file.bytes for file in manifest.files if file.whole),
        "checkpoint": manifest.checkpoint is not None,
    }


def _show_taken(console: Console, payload: Payload) -> None:
    where, linked = escape(payload["backup"]), payload["linked_bytes"]
    how = f", {size(linked)} of it linked" if linked else ""
    segments = count(payload["segments"], "segment")
    console.print(f"backed up {escape(payload['directory'])}: {segments}, {size(payload['bytes'])}{how}, into {where}")
    console.print(f"next: tenure backup verify {where}")


def _show_verified(console: Console, payload: Payload) -> None:
    taken = f"taken {when(payload['created_ms'])} of log {payload['log_id']}"
    console.print(f"{count(payload['segments'], 'segment')}, {size(payload['bytes'])}, {taken}")
    problems = payload["problems"]
    if not problems:
        console.print(f"{count(payload['batches'], 'batch', 'batches')} are whole; no problems found")
        return
    console.print(f"{count(len(problems), 'problem')}:")
    for problem in problems[:_PROBLEMS_SHOWN]:
        console.print(f"- {escape(problem)}")
    if len(problems) > _PROBLEMS_SHOWN:
        console.print(f"and {len(problems) - _PROBLEMS_SHOWN:,} more; --json lists them all")


def _show_restored(console: Console, payload: Payload) -> None:
    records, topics = count(payload["records"], "record"), count(payload["topics"], "topic")
    where = escape(payload["directory"])
    console.print(f"restored {records} in {topics}, as of {when(payload['created_ms'])}, into {where}")
    if payload["kept_leases"]:
        console.print("jobs in flight stay with their workers until their leases end")
    else:
        console.print(f"{count(payload['released'], 'job')} in flight were released, and are the next in line")
    console.print(f"it is a log of its own, {payload['log_id']}: readers that were ahead are told recreated")
    console.print(f"next: tenure serve --data {where}")
