"""`tenure home`: look at the home of a log, verify it, and bring a directory into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from tenure.backup.directory import restore_from
from tenure.chain.adopt import adopt as adopt_log
from tenure.chain.fetch import fetch_log
from tenure.chain.inspect import home_status
from tenure.chain.settings import ChainSettings
from tenure.chain.stored_checkpoint import StoredCheckpoint
from tenure.cli import screen
from tenure.cli.commands.directory import open_disk
from tenure.cli.commands.verify_home import open_home, show_verified, verify_url
from tenure.cli.main import OK
from tenure.cli.options import AsJson, Directory, KeepLeases
from tenure.cli.screen import Payload, Shown
from tenure.cli.words import age, count, format_path, size
from tenure.clock import SystemClock
from tenure.objects.background import background
from tenure.objects.store import open_store
from tenure.settings import Settings

__all__ = ["home"]

home = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The home of a log: a store in which it survives its machine."
)

_SETTINGS = ChainSettings()

Url = Annotated[str, typer.Argument(help="The home: s3://…, gs://…, az://… or file:///….", show_default=False)]


@home.command()
def status(url: Url, as_json: AsJson = False) -> None:
    """Show the log in a home: how long its chain is, where it ends, and who leads it."""
    raise typer.Exit(screen.answer(lambda: _status(url), _show_status, as_json=as_json))


@home.command()
def verify(url: Url, as_json: AsJson = False) -> None:
    """Read and prove everything that a new machine would need. Exit code 1 where something is damaged or missing."""
    raise typer.Exit(screen.answer(lambda: verify_url(url), show_verified, as_json=as_json))


@home.command()
def adopt(directory: Directory, url: Url, as_json: AsJson = False) -> None:
    """Bring the log of a directory into an empty home. No server may have it open; serve it with --home afterwards."""
    raise typer.Exit(screen.answer(lambda: _adopt(directory, url), _show_adopted, as_json=as_json))


@home.command()
def fetch(
    url: Url,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty directory for the copy.", show_default=False)
    ],
    keep_leases: KeepLeases = False,
    as_json: AsJson = False,
) -> None:
    """Make a log of its own, on this machine, of what a home has confirmed. The home and its leader may go on."""
    raise typer.Exit(screen.answer(lambda: _fetch(url, directory, keep_leases), _show_fetched, as_json=as_json))


def _fetch(url: str, directory: Path, keep_leases: bool) -> Shown:
    store = open_store(url)
    restored = restore_from(lambda disk: fetch_log(store, disk, _SETTINGS), directory, keep_leases=keep_leases)
    about: Payload = {"home": url, "directory": format_path(directory), "kept_leases": keep_leases}
    return about | msgspec.to_builtins(restored), OK


def _show_fetched(console: Console, payload: Payload) -> None:
    records, topics = count(payload["records"], "record"), count(payload["topics"], "topic")
    where = screen.escape(payload["directory"])
    console.print(f"fetched {records} in {topics} into {where}: a log of its own, {payload['log_id']}")
    console.print(f"next: tenure serve --data {where}")


def _status(url: str) -> Shown:
    found = background().run(home_status(open_home(url), _SETTINGS))
    payload: Payload = {
        "home": url,
        "log_id": found.facts.log_id,
        "epoch": found.last.epoch,
        "last_batch": found.last.last_batch,
        "links": found.links,
        "link_bytes": found.link_bytes,
        "segments": found.segments,
        "segment_bytes": found.segment_bytes,
        "checkpoints": found.checkpoints,
        "checkpoint": None if found.newest is None else _checkpoint(*found.newest),
        "released": found.last.is_released,
        "leader": found.leader.url if found.leader is not None else None,
    }
    return payload, OK


def _checkpoint(head: StoredCheckpoint, stored_ms: int) -> Payload:
    return {"batch": head.position.batch - 1, "made_by": head.made_by, "role": head.role, "stored_ms": stored_ms}


def _show_status(console: Console, payload: Payload) -> None:
    console.print(f"log {payload['log_id']}, epoch {payload['epoch']}, batch {payload['last_batch']:,}")
    console.print(f"{count(payload['links'], 'link')}, {size(payload['link_bytes'])}")
    console.print(f"{count(payload['segments'], 'sealed segment')}, {size(payload['segment_bytes'])}")
    console.print(count(payload["checkpoints"], "checkpoint"))
    if (newest := payload["checkpoint"]) is not None:
        by = f"the {newest['role']} {screen.escape(newest['made_by'])}".rstrip()
        ago = age(max(0, SystemClock().wall_ms() - newest["stored_ms"]))
        console.print(f"the newest is of batch {newest['batch']:,}, made by {by} {ago} ago")
    if payload["released"]:
        console.print("nobody leads it: the last leader has given it up")
    else:
        console.print(f"led by {payload['leader'] or 'a process that does not say where it is'}, unless that has died")


def _adopt(directory: Path, url: str) -> Shown:
    store, disk = open_store(url), open_disk(directory)
    segment_bytes = Settings().segment_bytes
    place = adopt_log(store, disk, settings=_SETTINGS, clock=SystemClock(), segment_bytes=segment_bytes)
    return {"directory": str(directory), "home": url, "epoch": place.epoch, "last_batch": place.end.batch}, OK


def _show_adopted(console: Console, payload: Payload) -> None:
    console.print(f"batch {payload['last_batch']:,} and all before it are in {screen.escape(payload['home'])}")
    console.print(
        f"next: tenure serve --data {screen.escape(payload['directory'])} --home {screen.escape(payload['home'])}"
    )
